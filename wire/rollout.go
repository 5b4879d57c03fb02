package wire

import (
	"errors"

	"icecore/trace"
)

var intentKind = &kind[trace.Intent]{
	list: "intents",
	fields: newTable(ignoreUnknown,
		field[trace.Intent]{name: "trace_id", set: text(func(i *trace.Intent) *string { return &i.TraceID })},
		field[trace.Intent]{name: "rollout_id", set: text(func(i *trace.Intent) *string { return &i.RolloutID })},
		field[trace.Intent]{name: "seq", set: optionalInteger(func(i *trace.Intent) **int64 { return &i.Seq })},
		field[trace.Intent]{name: "started_at", set: moment(func(i *trace.Intent) **int64 { return &i.StartedAt })},
	),
	id: func(i *trace.Intent) string { return i.TraceID },
	finish: func(_ *scanner, i *trace.Intent, rec *record) {
		if err := i.Validate(); err != nil {
			rec.refuse(err)
		}
	},
}

// IntentsJSON reads the body of POST /v1/traces/begin: an intent, an array of
// them, or {"intents": […]}. Unknown fields are passed over with a warning: the
// trace that follows carries them.
func IntentsJSON(body []byte, lim Limits) ([]Item[trace.Intent], error) {
	return readItems(body, lim, intentKind)
}

var rewardFields = newTable(refuseUnknown,
	field[trace.Reward]{name: "value", set: readRewardValue, words: true},
	field[trace.Reward]{name: "reward_id", set: text(func(r *trace.Reward) *string { return &r.RewardID })},
	field[trace.Reward]{name: "rollout_id", set: text(func(r *trace.Reward) *string { return &r.RolloutID })},
	field[trace.Reward]{name: "trace_id", set: text(func(r *trace.Reward) *string { return &r.TraceID })},
	field[trace.Reward]{name: "name", set: text(func(r *trace.Reward) *string { return &r.Name })},
	field[trace.Reward]{name: "source", set: text(func(r *trace.Reward) *string { return &r.Source })},
	field[trace.Reward]{name: "revision", set: integer(func(r *trace.Reward) *int64 { return &r.Revision })},
	field[trace.Reward]{name: "at", set: moment(func(r *trace.Reward) **int64 { return &r.At })},
	field[trace.Reward]{name: "metadata", set: jsonObject(func(r *trace.Reward) *[]byte { return &r.Metadata })},
)

func readRewardValue(s *scanner, r *trace.Reward) (err error) {
	r.Value, err = s.finite()
	return err
}

var rewardKind = &kind[trace.Reward]{
	list:   "rewards",
	fields: rewardFields,
	id:     func(r *trace.Reward) string { return r.RewardID },
	finish: func(_ *scanner, r *trace.Reward, rec *record) {
		if err := r.Validate(); err != nil {
			rec.refuse(err)
		} else if rec.given>>rewardFields.index["value"]&1 == 0 {
			rec.refuse(trace.Missing("value"))
		}
	},
}

// RewardsJSON reads the body of POST /v1/rewards: a reward, an array of them,
// or {"rewards": […]}. A reward with an unknown field is refused, since there is
// nowhere to keep it: own data belongs into metadata.
func RewardsJSON(body []byte, lim Limits) ([]Item[trace.Reward], error) {
	return readItems(body, lim, rewardKind)
}

var patchFields = newTable(refuseUnknown,
	field[trace.RolloutPatch]{name: "task_id", set: optionalText(func(p *trace.RolloutPatch) **string { return &p.TaskID })},
	field[trace.RolloutPatch]{name: "group_id", set: optionalText(func(p *trace.RolloutPatch) **string { return &p.GroupID })},
	field[trace.RolloutPatch]{name: "group_size", set: optionalInteger(func(p *trace.RolloutPatch) **int64 { return &p.GroupSize })},
	field[trace.RolloutPatch]{name: "sample_index", set: optionalInteger(func(p *trace.RolloutPatch) **int64 { return &p.SampleIndex })},
	field[trace.RolloutPatch]{name: "split", set: optionalText(func(p *trace.RolloutPatch) **string { return &p.Split })},
	field[trace.RolloutPatch]{name: "harness", set: optionalText(func(p *trace.RolloutPatch) **string { return &p.Harness })},
	field[trace.RolloutPatch]{name: "harness_version", set: optionalText(func(p *trace.RolloutPatch) **string { return &p.HarnessVersion })},
	field[trace.RolloutPatch]{name: "model", set: optionalText(func(p *trace.RolloutPatch) **string { return &p.Model })},
	field[trace.RolloutPatch]{name: "policy_version", set: optionalInteger(func(p *trace.RolloutPatch) **int64 { return &p.PolicyVersion })},
	field[trace.RolloutPatch]{name: "metadata", set: jsonObject(func(p *trace.RolloutPatch) *[]byte { return &p.Metadata })},
)

// RolloutPatchJSON reads the body of PUT /v1/rollouts/{rollout_id}. A field that
// is absent or null is left as it is; an empty string clears it. The error is an
// *EnvelopeError or a *trace.Error.
func RolloutPatchJSON(body []byte, lim Limits) (*trace.RolloutPatch, error) {
	return readOne(body, lim, patchFields, (*trace.RolloutPatch).Validate)
}

var finishFields = newTable(refuseUnknown,
	field[trace.Finish]{name: "status", set: text(func(f *trace.Finish) *string { return &f.Status })},
	field[trace.Finish]{name: "error", set: textOrJSON(func(f *trace.Finish) *string { return &f.Error })},
)

// FinishJSON reads the body of POST /v1/rollouts/{rollout_id}/finish. The error
// is an *EnvelopeError or a *trace.Error.
func FinishJSON(body []byte, lim Limits) (*trace.Finish, error) {
	return readOne(body, lim, finishFields, (*trace.Finish).Validate)
}

// readOne reads a body that is one object.
func readOne[T any](body []byte, lim Limits, fields *table[T], validate func(*T) *trace.Error) (*T, error) {
	s := &scanner{buf: body, lim: lim.WithDefaults()}
	s.space()
	one := &kind[T]{fields: fields, id: func(*T) string { return "" },
		finish: func(_ *scanner, v *T, rec *record) {
			if err := validate(v); err != nil {
				rec.refuse(err)
			}
		}}
	item, err := readItem(s, one)
	if err == nil {
		err = s.end()
	}
	var syntax *syntaxError
	switch {
	case errors.As(err, &syntax):
		return nil, syntax.envelope()
	case err != nil:
		return nil, err
	case item.Err != nil:
		return nil, item.Err
	}
	return item.Value, nil
}
