package trajectory

import (
	"bytes"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"icecore/merge/pass"
	"icecore/store"
	"icecore/trace"
)

// lease is a plan of some groups of rollouts, and the rows that it must send.
type lease struct {
	plan Plan
	from fixed
	rows []*Row
}

func leases() *rapid.Generator[*lease] {
	return rapid.Custom(func(t *rapid.T) *lease {
		l := &lease{from: fixed{}, plan: Plan{Policy: policies().Draw(t, "policy"), Kinds: both[:rapid.IntRange(1, 2).Draw(t, "kinds")],
			Rollouts: map[int64]*Rollout{}}}
		key, reward := int64(0), 0.5
		for group := range rapid.IntRange(1, 4).Draw(t, "groups") {
			for range rapid.IntRange(1, 3).Draw(t, "rollouts") {
				key++
				l.add(rollouts(key).Draw(t, "rollout"), &Rollout{Rollout: attributes(key), Reward: &reward}, group)
			}
		}
		return l
	})
}

// attributes gives the attributes of a rollout.
func attributes(key int64) store.Rollout {
	return store.Rollout{Key: key, ID: "r" + string(rune('0'+key)), GroupID: "g", Harness: "h", Status: "succeeded"}
}

func (l *lease) add(calls *store.RolloutCalls, k *Rollout, group int) {
	l.from[calls.Key], l.plan.Rollouts[calls.Key] = calls, k
	m := pass.Run(calls, l.plan.Policy)
	for i := range m.Result.Trajectories {
		r := New(m, k.ID, i, nil).Restrict(l.plan.Kinds)
		if r == nil {
			continue
		}
		n := len(l.plan.Wants)
		advantage, microbatch := float32(n)/4, n%3
		d := &Delivered{GroupIndex: group, RolloutIndex: int(calls.Key) - 1, GroupFinished: 3, GroupScored: 2, Weight: float32(n) + 1, Shard: n % 2,
			ZeroAdvantage: n%5 == 0}
		if n%2 == 0 {
			d.Advantage, d.Microbatch = &advantage, &microbatch
		}
		l.plan.Wants = append(l.plan.Wants, Want{Rollout: calls.Key, Through: 1, Row: i, Length: r.Length(), InRollout: k.Rows, Delivered: d})
		k.Rows++
		k.Trained += int64(r.TrainedTokens())
		l.rows = append(l.rows, r)
	}
}

// read gives a stream's rows as maps of its columns.
func read(t require.TestingT, stream []byte) (*arrow.Schema, []map[string]any) {
	r, err := ipc.NewReader(bytes.NewReader(stream))
	require.NoError(t, err)
	defer r.Release()
	var out []map[string]any
	for r.Next() {
		rec := r.RecordBatch()
		for i := range int(rec.NumRows()) {
			row := map[string]any{}
			for j, f := range rec.Schema().Fields() {
				row[f.Name] = value(rec.Column(j), i)
			}
			out = append(out, row)
		}
	}
	require.NoError(t, r.Err())
	return r.Schema(), out
}

func value(a arrow.Array, i int) any {
	if a.IsNull(i) {
		return nil
	}
	switch a := a.(type) {
	case *array.Int32:
		return int(a.Value(i))
	case *array.Int64:
		return a.Value(i)
	case *array.Float32:
		return a.Value(i)
	case *array.Float64:
		return a.Value(i)
	case *array.Boolean:
		return a.Value(i)
	case *array.List:
		from, to := a.ValueOffsets(i)
		var out []any
		for j := int(from); j < int(to); j++ {
			switch v := a.ListValues().(type) {
			case *array.Int8:
				out = append(out, int(v.Value(j)))
			case *array.Struct:
				out = append(out, v.Field(0).ValueStr(j))
			default:
				out = append(out, value(v, j))
			}
		}
		return out
	}
	return a.ValueStr(i)
}

// The stream of a lease has every column of its schema, describes the rows as they
// are restricted, and finds the shared beginnings that comparing all pairs finds.
func TestDeliveredStream(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := leases().Draw(t, "lease")
		var out bytes.Buffer
		require.NoError(t, Send(t.Context(), l.from, &l.plan, NewArrow(&out, trace.DeliverySchema, map[string]string{"rows": "7"}, "")))
		schema, got := read(t, out.Bytes())
		require.True(t, schema.Equal(trace.DeliverySchema))
		require.Equal(t, "7", schema.Metadata().ToMap()["icecore.rows"])
		require.Len(t, got, len(l.rows))
		for i, r := range l.rows {
			w, k, row := l.plan.Wants[i], l.plan.Rollouts[l.plan.Wants[i].Rollout], got[i]
			d := w.Delivered
			ids := r.Tokens().Flat()
			require.Len(t, row["token_ids"], len(ids))
			require.Len(t, row["loss_mask"], len(ids))
			require.Len(t, row["logprobs"], len(ids))
			mask := 0
			for j, id := range ids {
				require.Equal(t, int(id), row["token_ids"].([]any)[j])
				mask += row["loss_mask"].([]any)[j].(int)
			}
			require.Equal(t, r.TrainedTokens(), mask)
			require.Len(t, row["spans"], len(r.Spans()))
			logprobs, complete := make([]any, len(ids)), true
			for _, s := range r.Spans() {
				for at := s.Start; at < s.End; at++ {
					if v, known := logprob(at - s.Start); known {
						logprobs[at] = v
					} else {
						complete = complete && !s.Trainable
					}
				}
			}
			require.Equal(t, logprobs, row["logprobs"])
			require.Equal(t, complete, row["logprobs_complete"])
			nearest, shared := slowPrefix(l, i)
			want := map[string]any{
				"trajectory_id": r.ID(), "rollout_id": k.ID, "prompt_length": r.PromptLength(), "trained_tokens": mask, "reward": 0.5,
				"rollout_trajectories": k.Rows, "rollout_trained_tokens": k.Trained, "row_in_rollout": w.InRollout, "is_last": w.InRollout == k.Rows-1,
				"truncated": r.Truncated(), "history_rewritten": r.Rewritten(),
				"group_index": d.GroupIndex, "rollout_index": d.RolloutIndex, "group_finished": 3, "group_scored": 2, "advantage": nil,
				"zero_advantage": d.ZeroAdvantage, "weight": d.Weight, "shard": d.Shard, "microbatch": nil,
				"shared_prefix_row": nearest, "shared_prefix_len": shared,
			}
			if d.Advantage != nil {
				want["advantage"], want["microbatch"] = *d.Advantage, *d.Microbatch
			}
			for name, v := range want {
				require.Equal(t, v, row[name], "row %d: %s", i, name)
			}
		}
	})
}

// slowPrefix compares row i with every earlier one of its group.
func slowPrefix(l *lease, i int) (nearest any, shared int) {
	ids := l.rows[i].Tokens().Flat()
	for j := range i {
		if l.plan.Wants[j].Delivered.GroupIndex != l.plan.Wants[i].Delivered.GroupIndex {
			continue
		}
		other, n := l.rows[j].Tokens().Flat(), 0
		for n < min(len(ids), len(other)) && ids[n] == other[n] {
			n++
		}
		if nearest == nil || n > shared {
			nearest, shared = j, n
		}
	}
	return nearest, shared
}

// A row that comes out other than planned, and one of which the lease says
// nothing, end the stream.
func TestDeliveredFaults(t *testing.T) {
	t.Parallel()
	seq := int64(0)
	calls := &store.RolloutCalls{Key: 1, Calls: []store.Call{{Key: 1, TraceID: "t", Seq: &seq, Kind: trace.KindAgent, Status: trace.StatusOK,
		Prompt: trace.TokensOf([]int32{1}), Response: trace.TokensOf([]int32{2, 3})}}}
	for name, spoil := range map[string]func(l *lease){
		"merging gave another row": func(l *lease) { l.plan.Wants[0].Length-- },
		"gave another row than":    func(l *lease) { l.plan.Wants[0].Row++ },
		"another row than the one": func(l *lease) { l.plan.Kinds = []trace.Kind{trace.KindAuxiliary} },
		"lease says of the row":    func(l *lease) { l.plan.Wants[0].Delivered = nil },
	} {
		l := &lease{from: fixed{}, plan: Plan{Kinds: both, Rollouts: map[int64]*Rollout{}}}
		l.add(calls, &Rollout{Rollout: attributes(1)}, 0)
		spoil(l)
		var out bytes.Buffer
		require.ErrorContains(t, Send(t.Context(), l.from, &l.plan, NewArrow(&out, trace.DeliverySchema, nil, "")), name)
	}
}
