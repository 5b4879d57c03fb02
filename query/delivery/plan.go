package delivery

import (
	"encoding/json"
	"fmt"

	"github.com/klauspost/compress/zstd"

	"icecore/query/advantage"
	"icecore/query/shards"
	"icecore/store"
	"icecore/trace"
)

// plan is everything that a lease delivers, but for ids, log-probs and spans,
// which follow from it: the calls up to a batch never change, and a policy is a
// pure function. It is kept with the lease, so that a retry gives the same bytes
// whatever came since.
type plan struct {
	Schema   string   `json:"schema"`
	Policy   string   `json:"policy"`
	Kinds    []string `json:"kinds"`
	Settings settings `json:"settings"`
	Shards   int      `json:"shards"`
	// Microbatches is how many each shard has; 0: none were asked for.
	Microbatches int     `json:"microbatches"`
	Left         leftOut `json:"left"`
	Skipped      skipped `json:"skipped"`
	// Newer counts rows of a newer policy version than the learner's own.
	Newer int `json:"newer_than_learner,omitempty"`
	// CutBy is the limit that kept out groups that were ready; "": none did.
	CutBy    string        `json:"cut_by,omitempty"`
	Groups   []planGroup   `json:"groups"`
	Rollouts []planRollout `json:"rollouts"`
	Rows     []planRow     `json:"rows"`
}

// settings are repeated to the learner as they were asked for.
type settings struct {
	Estimator        string   `json:"estimator"`
	Sigma            string   `json:"sigma"`
	Epsilon          *float64 `json:"epsilon"`
	RowWeight        string   `json:"row_weight"`
	PolicyVersionNow *int64   `json:"policy_version_now"`
}

// planGroup is a group; its place is its group_index.
type planGroup struct {
	Finished int  `json:"finished"`
	Scored   int  `json:"scored"`
	Zero     bool `json:"zero,omitempty"`
}

// planRollout is a rollout that has rows, with the attributes that it had; its
// place is its rollout_index.
type planRollout struct {
	Group       int      `json:"group"`
	Key         int64    `json:"key"`
	Through     int64    `json:"through"`
	ID          string   `json:"id"`
	GroupID     string   `json:"group_id,omitempty"`
	TaskID      string   `json:"task_id,omitempty"`
	Split       string   `json:"split,omitempty"`
	Harness     string   `json:"harness,omitempty"`
	Model       string   `json:"model,omitempty"`
	GroupSize   *int64   `json:"group_size,omitempty"`
	SampleIndex *int64   `json:"sample_index,omitempty"`
	Status      string   `json:"status,omitempty"`
	OpenIntents int64    `json:"open_intents,omitempty"`
	Reward      *float64 `json:"reward,omitempty"`
	Advantage   *float32 `json:"advantage,omitempty"`
}

// planRow is a row; Rollout is a place in Rollouts. Rows stand in the order in
// which they are sent.
type planRow struct {
	Rollout    int     `json:"r"`
	Index      int     `json:"i"`
	Length     int     `json:"l"`
	Trained    int     `json:"t"`
	Weight     float32 `json:"w"`
	Shard      int     `json:"s,omitempty"`
	Microbatch *int    `json:"m,omitempty"`
}

// newPlan makes the plan of a lease of some groups.
func newPlan(r *Request, picks []*pick, skips skipped, cutBy string) (*plan, error) {
	if r.Estimator == string(advantage.ReinforcePP) {
		if err := overLease(r, picks); err != nil {
			return nil, err
		}
	}
	p := &plan{Schema: trace.SchemaVersion, Policy: r.Policy, Kinds: r.Kinds, Shards: int(r.Shards), Skipped: skips, CutBy: cutBy,
		Settings: settings{Estimator: r.Estimator, Epsilon: r.Epsilon, RowWeight: r.RowWeight, PolicyVersionNow: r.PolicyVersion}}
	if r.Estimator == string(advantage.GRPO) {
		p.Settings.Sigma = r.Sigma
	}
	for i, k := range picks {
		p.Left.add(k.left)
		p.Groups = append(p.Groups, planGroup{Finished: k.finished, Scored: k.outcome.Scored, Zero: k.outcome.Zero})
		for j, m := range k.members {
			if len(m.rows) > 0 {
				p.addRollout(i, m, k.outcome.Advantages[j])
				p.Newer += m.newerThan(r.PolicyVersion)
			}
		}
	}
	p.weigh(r)
	p.deal(r)
	return p, nil
}

func (p *plan) addRollout(group int, m *member, a *float64) {
	o := planRollout{Group: group, Key: m.Key, Through: m.through, ID: m.ID, GroupID: m.GroupID, TaskID: m.TaskID, Split: m.Split,
		Harness: m.Harness, Model: m.Model, GroupSize: m.GroupSize, SampleIndex: m.SampleIndex, Status: m.Status, OpenIntents: m.OpenIntents,
		Reward: m.reward}
	if a != nil {
		o.Advantage = ptr(float32(*a))
	}
	for _, row := range m.rows {
		p.Rows = append(p.Rows, planRow{Rollout: len(p.Rollouts), Index: row.index, Length: row.length, Trained: row.trained})
	}
	p.Rollouts = append(p.Rollouts, o)
}

// weigh sets the rows' weights, over the whole lease.
func (p *plan) weigh(r *Request) {
	trained := make([][]int, len(p.Rollouts))
	for _, row := range p.Rows {
		trained[row.Rollout] = append(trained[row.Rollout], row.Trained)
	}
	at := 0
	for _, weights := range advantage.RowWeight(r.RowWeight).Weights(trained) {
		for _, w := range weights {
			p.Rows[at].Weight = float32(w)
			at++
		}
	}
}

// deal sets the rows' shards and micro-batches.
func (p *plan) deal(r *Request) {
	o := shards.Options{Shards: p.Shards, Quadratic: r.Cost == "quadratic", Multiple: int(r.MicrobatchMultiple), KeepGroupsTogether: r.KeepGroupsTogether}
	if r.TokensPerMicrobatch != nil {
		o.TokensPerMicrobatch = int(*r.TokensPerMicrobatch)
	}
	rows := make([]shards.Row, len(p.Rows))
	for i, row := range p.Rows {
		rows[i] = shards.Row{Group: p.Rollouts[row.Rollout].Group, Tokens: row.Length}
	}
	dealt := o.Plan(rows)
	p.Microbatches = dealt.Microbatches
	for i := range p.Rows {
		p.Rows[i].Shard = dealt.Shard[i]
		if dealt.Microbatch != nil {
			p.Rows[i].Microbatch = &dealt.Microbatch[i]
		}
	}
}

// leasedGroups is what the store must know of the plan.
func (p *plan) leasedGroups(picks []*pick) []store.LeasedGroup {
	out := make([]store.LeasedGroup, len(picks))
	for i, k := range picks {
		out[i] = store.LeasedGroup{Key: k.group.Key, PolicyVersionMin: k.version()}
		for _, m := range k.members {
			out[i].Pins = append(out[i].Pins, store.Pin{Rollout: m.Key, LastBatch: m.through, RewardID: m.rewardID})
		}
	}
	has := make(map[[2]int]bool)
	for _, row := range p.Rows {
		group := p.Rollouts[row.Rollout].Group
		if !has[[2]int{group, row.Shard}] {
			has[[2]int{group, row.Shard}] = true
			out[group].Shards = append(out[group].Shards, row.Shard)
		}
	}
	return out
}

// encode gives the plan as it is kept.
func (p *plan) encode() ([]byte, error) {
	raw, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encode the plan of a lease: %w", err)
	}
	return packer.EncodeAll(raw, nil), nil
}

func decodePlan(blob []byte) (*plan, error) {
	raw, err := unpacker.DecodeAll(blob, nil)
	if err != nil {
		return nil, fmt.Errorf("unpack the plan of a lease: %w", err)
	}
	var p plan
	if err := json.Unmarshal(raw, &p); err != nil {
		return nil, fmt.Errorf("decode the plan of a lease: %w", err)
	}
	return &p, nil
}

// Both are safe for concurrent use.
var (
	packer   = must(zstd.NewWriter(nil, zstd.WithEncoderConcurrency(2)))
	unpacker = must(zstd.NewReader(nil, zstd.WithDecoderConcurrency(2)))
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err) // options that are constant
	}
	return v
}
