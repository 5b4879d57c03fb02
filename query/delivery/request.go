package delivery

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"icecore/httpbody"
	"icecore/merge"
	"icecore/trace"
)

// Request is what a learner asks of a lease. Its JSON is what is kept with the
// lease, and what a later request with the same key is compared with; what is
// left out of it may differ between them.
type Request struct {
	Key          string  `json:"-"`
	LeaseSeconds int64   `json:"-"`
	WaitSeconds  float64 `json:"-"`
	// Shard is the shard to send; nil: all rows.
	Shard *int64 `json:"-"`

	MaxGroups int64 `json:"max_groups"`
	// Groups is an exact count; the limits do not hold then.
	Groups            *int64   `json:"groups"`
	MaxTrajectories   int64    `json:"max_trajectories"`
	MaxTokens         int64    `json:"max_tokens"`
	MaxRowTokens      *int64   `json:"max_row_tokens"`
	Policy            string   `json:"policy"`
	Where             Where    `json:"where"`
	PolicyVersion     *int64   `json:"policy_version"`
	MaxStaleness      *int64   `json:"max_staleness"`
	OnFailed          string   `json:"on_failed"`
	FailedScore       float64  `json:"failed_score"`
	Kinds             []string `json:"kinds"`
	RequireReward     bool     `json:"require_reward"`
	IncludeUnprompted bool     `json:"include_unprompted"`
	Estimator         string   `json:"estimator"`
	Sigma             string   `json:"sigma"`
	// Epsilon is nil for estimators that have none.
	Epsilon           *float64 `json:"epsilon"`
	Single            string   `json:"single"`
	SkipZeroAdvantage bool     `json:"skip_zero_advantage"`
	RowWeight         string   `json:"row_weight"`
	Shards            int64    `json:"shards"`
	// TokensPerMicrobatch is nil when no micro-batches are asked for.
	TokensPerMicrobatch *int64 `json:"tokens_per_microbatch"`
	Cost                string `json:"cost"`
	MicrobatchMultiple  int64  `json:"microbatch_multiple"`
	KeepGroupsTogether  bool   `json:"keep_groups_together"`
	// Seed is nil for the order of time.
	Seed *int64 `json:"seed"`
	// Quiet and Incomplete are in seconds; nil: as the server is told.
	Quiet      *float64 `json:"quiet_seconds"`
	Incomplete *float64 `json:"incomplete_seconds"`
}

// Where chooses groups: all known rollouts of a group must match. Each list means
// "one of"; nil: all.
type Where struct {
	Split   []string `json:"split"`
	Harness []string `json:"harness"`
	Model   []string `json:"model"`
	TaskID  []string `json:"task_id"`
	GroupID []string `json:"group_id"`
	// Complete: rollouts that miss calls are treated as failed ones are.
	Complete bool `json:"complete"`
}

// What on_failed, single and row_weight can be, beside estimators.
const (
	exclude   = "exclude"
	score     = "score"
	dropGroup = "drop_group"

	none = "none"
)

const (
	maxLeaseSeconds = 86400
	maxWaitSeconds  = 600
	maxShards       = 4096
)

func defaults() Request {
	return Request{
		LeaseSeconds: 300, MaxGroups: 16, MaxTrajectories: 1024, MaxTokens: 2_000_000, Policy: merge.StrictTree, Where: Where{Complete: true},
		OnFailed: exclude, Kinds: []string{string(trace.KindAgent)}, RequireReward: true, Estimator: "grpo", Sigma: "sample", Single: "zero",
		RowWeight: none, Shards: 1, Cost: "tokens", MicrobatchMultiple: 1, KeepGroupsTogether: true,
	}
}

type setReq = setter[Request]

// requestFields reads each field of a request.
var requestFields = map[string]setReq{
	"key":                   idField(func(r *Request) *string { return &r.Key }),
	"max_groups":            wholeField(func(r *Request) *int64 { return &r.MaxGroups }, 1, 65536),
	"groups":                optWholeField(func(r *Request) **int64 { return &r.Groups }, 1, 65536),
	"max_trajectories":      wholeField(func(r *Request) *int64 { return &r.MaxTrajectories }, 1, math.MaxInt32),
	"max_tokens":            wholeField(func(r *Request) *int64 { return &r.MaxTokens }, 1, 1<<53),
	"max_row_tokens":        optWholeField(func(r *Request) **int64 { return &r.MaxRowTokens }, 1, math.MaxInt32),
	"lease_seconds":         wholeField(func(r *Request) *int64 { return &r.LeaseSeconds }, 1, maxLeaseSeconds),
	"wait_seconds":          floatField(func(r *Request) *float64 { return &r.WaitSeconds }, 0, maxWaitSeconds),
	"policy":                setPolicy,
	"where":                 setWhere,
	"policy_version":        optWholeField(func(r *Request) **int64 { return &r.PolicyVersion }, 0, math.MaxInt64),
	"max_staleness":         optWholeField(func(r *Request) **int64 { return &r.MaxStaleness }, 0, math.MaxInt64),
	"on_failed":             choiceField(func(r *Request) *string { return &r.OnFailed }, exclude, score, dropGroup),
	"failed_score":          floatField(func(r *Request) *float64 { return &r.FailedScore }, math.Inf(-1), math.Inf(1)),
	"kinds":                 textsField(func(r *Request) *[]string { return &r.Kinds }, string(trace.KindAgent), string(trace.KindAuxiliary)),
	"require_reward":        flagField(func(r *Request) *bool { return &r.RequireReward }),
	"include_unprompted":    flagField(func(r *Request) *bool { return &r.IncludeUnprompted }),
	"estimator":             choiceField(func(r *Request) *string { return &r.Estimator }, "grpo", "dr_grpo", "rloo", "reinforce_pp", "maxrl", none),
	"sigma":                 choiceField(func(r *Request) *string { return &r.Sigma }, "sample", "population"),
	"epsilon":               optFloatField(func(r *Request) **float64 { return &r.Epsilon }, 0, 1),
	"single":                choiceField(func(r *Request) *string { return &r.Single }, "zero", "reward"),
	"skip_zero_advantage":   flagField(func(r *Request) *bool { return &r.SkipZeroAdvantage }),
	"row_weight":            choiceField(func(r *Request) *string { return &r.RowWeight }, none, "rollout_mean", "session_mean"),
	"shards":                wholeField(func(r *Request) *int64 { return &r.Shards }, 1, maxShards),
	"shard":                 optWholeField(func(r *Request) **int64 { return &r.Shard }, 0, maxShards-1),
	"tokens_per_microbatch": optWholeField(func(r *Request) **int64 { return &r.TokensPerMicrobatch }, 1, 1<<40),
	"cost":                  choiceField(func(r *Request) *string { return &r.Cost }, "tokens", "quadratic"),
	"microbatch_multiple":   wholeField(func(r *Request) *int64 { return &r.MicrobatchMultiple }, 1, 65536),
	"keep_groups_together":  flagField(func(r *Request) *bool { return &r.KeepGroupsTogether }),
	"seed":                  optWholeField(func(r *Request) **int64 { return &r.Seed }, math.MinInt64, math.MaxInt64),
	"quiet_seconds":         optFloatField(func(r *Request) **float64 { return &r.Quiet }, 0, maxLeaseSeconds),
	"incomplete_seconds":    optFloatField(func(r *Request) **float64 { return &r.Incomplete }, 0, maxLeaseSeconds),
}

var whereFields = map[string]setter[Where]{
	"split":    textsField(func(w *Where) *[]string { return &w.Split }, trace.Splits...),
	"harness":  textsField(func(w *Where) *[]string { return &w.Harness }),
	"model":    textsField(func(w *Where) *[]string { return &w.Model }),
	"task_id":  textsField(func(w *Where) *[]string { return &w.TaskID }),
	"group_id": textsField(func(w *Where) *[]string { return &w.GroupID }),
	"complete": flagField(func(w *Where) *bool { return &w.Complete }),
}

func setWhere(r *Request, raw json.RawMessage) error {
	if raw[0] != '{' {
		return errors.New("is not an object")
	}
	_, err := read(&r.Where, raw, whereFields, "where", "where.")
	return err
}

func setPolicy(r *Request, raw json.RawMessage) error {
	s, err := text(raw)
	if err != nil {
		return err
	}
	p, err := merge.ParsePolicy(s)
	r.Policy = p.String()
	return err
}

// parseRequest reads the body of a lease request; the error is the answer.
func parseRequest(body []byte) (*Request, error) {
	r := defaults()
	given, err := read(&r, body, requestFields, "a lease request", "")
	if err != nil {
		return nil, err
	}
	return &r, r.check(given)
}

// check refuses fields that contradict each other, or mean nothing beside the
// others; one that has its default contradicts nothing.
func (r *Request) check(given map[string]bool) error {
	for _, limit := range []string{"max_groups", "max_trajectories", "max_tokens"} {
		if r.Groups != nil && given[limit] {
			return invalid(limit, "does not go together with groups, which is an exact count")
		}
	}
	relative := slices.Contains([]string{"grpo", "dr_grpo", "rloo", "maxrl"}, r.Estimator)
	switch {
	case r.MaxStaleness != nil && r.PolicyVersion == nil:
		return invalid("max_staleness", "needs policy_version, the learner's own")
	case r.FailedScore != 0 && r.OnFailed != score:
		return invalid("failed_score", "goes with on_failed = score only")
	case r.Sigma != "sample" && r.Estimator != "grpo":
		return invalid("sigma", "goes with estimator = grpo only")
	case r.Epsilon != nil && r.Estimator != "grpo" && r.Estimator != "reinforce_pp":
		return invalid("epsilon", "goes with estimator = grpo or reinforce_pp only")
	case r.Single != "zero" && !relative:
		return invalid("single", "goes with estimators that compare a group's rollouts only")
	case r.SkipZeroAdvantage && !relative:
		return invalid("skip_zero_advantage", "goes with estimators that compare a group's rollouts only")
	case r.Shard != nil && *r.Shard >= r.Shards:
		return invalid("shard", fmt.Sprintf("is not below shards, which is %d", r.Shards))
	case r.MicrobatchMultiple != 1 && r.TokensPerMicrobatch == nil:
		return invalid("microbatch_multiple", "needs tokens_per_microbatch")
	}
	if r.Epsilon == nil {
		r.Epsilon = defaultEpsilon[r.Estimator]
	}
	return nil
}

var defaultEpsilon = map[string]*float64{"grpo": ptr(1e-6), "reinforce_pp": ptr(1e-8)}

func ptr[T any](v T) *T { return &v }

// kept is the request as it is kept with its lease.
func (r *Request) kept() []byte {
	raw, err := json.Marshal(r)
	if err != nil {
		panic(err) // numbers are finite, and texts always encode
	}
	return raw
}

// differs names the first field in which two kept requests differ; "": none. A
// field that is new since the older was made differs in nothing.
func differs(older, newer []byte) (string, error) {
	var was map[string]json.RawMessage
	fields, err := httpbody.Object(newer, maxFields)
	if err = errors.Join(err, json.Unmarshal(older, &was)); err != nil {
		return "", fmt.Errorf("compare lease requests: %w", err)
	}
	for _, f := range fields {
		if v, known := was[f.Name]; known && !bytes.Equal(v, f.Raw) {
			return f.Name, nil
		}
	}
	return "", nil
}
