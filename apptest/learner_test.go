package apptest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
)

// learned is what a version of a learner says of a trajectory.
type learned struct {
	id      string
	version int64
	values  logprobs
}

func (l learned) object() object {
	return object{"trajectory_id": l.id, "policy_version": l.version, "logprobs": l.values}
}

// learn posts as JSON what learners say, and waits until SQL sees it.
func (s *server) learn(ls ...learned) *answer {
	s.t.Helper()
	var list []object
	for _, l := range ls {
		list = append(list, l.object())
	}
	return s.post("/v1/trajectories/logprobs?ack=queryable", list)
}

// arrowOfLearned writes the same as an Arrow stream of float64.
func arrowOfLearned(ls []learned) []byte {
	schema := arrow.NewSchema([]arrow.Field{{Name: "trajectory_id", Type: arrow.BinaryTypes.String}, {Name: "policy_version", Type: arrow.PrimitiveTypes.Int64},
		{Name: "logprobs", Type: arrow.ListOf(arrow.PrimitiveTypes.Float64)}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	for _, l := range ls {
		b.Field(0).(*array.StringBuilder).Append(l.id)
		b.Field(1).(*array.Int64Builder).Append(l.version)
		list := b.Field(2).(*array.ListBuilder)
		list.Append(true)
		for _, v := range l.values {
			if v == nil {
				list.ValueBuilder().AppendNull()
			} else {
				list.ValueBuilder().(*array.Float64Builder).Append(float64(*v))
			}
		}
	}
	rec := b.NewRecordBatch()
	defer rec.Release()
	var out bytes.Buffer
	w := ipc.NewWriter(&out, ipc.WithSchema(schema))
	if err := w.Write(rec); err != nil {
		panic(err)
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return out.Bytes()
}

// rows runs a statement of SQL that sees everything stored.
func (s *server) rowsOf(sql string) [][]any {
	s.t.Helper()
	var a struct{ Rows [][]any }
	s.post("/v1/sql", object{"sql": sql}).is(200).into(&a)
	return a.Rows
}

// twoCalls is a rollout whose row has 10 tokens, trained at 3–5 and 8–9.
func (s *server) twoCalls(rollout string) trajectory {
	s.t.Helper()
	one := plain(rollout, rollout+"/1", 1, ids(1, 2, 3), ids(4, 5, 9)).with("policy_version", int64(7), "harness", "h")
	two := plain(rollout, rollout+"/2", 2, append(one.whole(), 6, 7), ids(8, 9)).with("policy_version", int64(8), "finish_reason", "stop")
	s.traces(one, two).all("stored", 2)
	m := s.merged(rollout, "")
	require.Len(s.t, m.Trajectories, 1)
	return m.Trajectories[0]
}

// sameLogprob is n times v.
func sameLogprob(n int, v float64) (out logprobs) {
	for range n {
		out = append(out, lps(v)...)
	}
	return out
}

const tokensSQL = `SELECT trace_id, response_position, position, decile, behaviour_logprob, learner_logprob, policy_version, learner_version FROM mismatch ORDER BY learner_version, position`

// What comes in stands beside what the sampler said, token by token; a row need
// not have been published before.
func TestLearnerLogprobs(t *testing.T) {
	t.Parallel()
	s := start(t, "--merge-quiet=1h")
	row := s.twoCalls("r")
	values := append(sameLogprob(4, -9), lps(-0.25, math.Inf(-1), -9, -9, math.NaN())...)
	values = append(values, nil)
	a := s.learn(learned{row.TrajectoryID, 9, values}).is(200)
	require.Equal(t, items{Items: []item{{ID: row.TrajectoryID, Status: "stored"}}, Ack: "queryable"}, a.items())
	want := func(version string, l ...any) string {
		return fmt.Sprintf(`[["r/1",0,3,0,-0.125,%[2]v,7,%[1]s],["r/1",1,4,3,-0.25,%[3]v,7,%[1]s],["r/1",2,5,6,-0.375,%[4]v,7,%[1]s],
			["r/2",0,8,0,-0.125,%[5]v,8,%[1]s],["r/2",1,9,5,-0.25,%[6]v,8,%[1]s]]`, append([]any{version}, l...)...)
	}
	require.JSONEq(t, want("9", -9, -0.25, `"-Infinity"`, "null", "null"), string(encode(s.rowsOf(tokensSQL))))

	// The same in another coating is the same; what is not trained does not matter.
	values[0], values[8], values[9] = nil, nil, ptr(float32(math.NaN()))
	again := s.send("POST", "/v1/trajectories/logprobs", arrowOfLearned([]learned{{row.TrajectoryID, 9, values}}), "Content-Type", typeArrow)
	require.Equal(t, "duplicate", again.is(200).one())
	// Another version is another post; other values take the place of the first.
	require.Equal(t, "stored", s.learn(learned{row.TrajectoryID, 10, sameLogprob(10, -1)}).is(200).one())
	require.Equal(t, "stored", s.learn(learned{row.TrajectoryID, 9, sameLogprob(10, -2)}).is(200).one())
	require.Equal(t, "duplicate", s.learn(learned{row.TrajectoryID, 9, sameLogprob(10, -2)}).is(200).one())
	require.JSONEq(t, want("9", -2, -2, -2, -2, -2), string(encode(s.rowsOf(tokensSQL)[:5])))
	require.Len(t, s.rowsOf(tokensSQL), 10)
	require.JSONEq(t, `[["`+row.TrajectoryID+`","r","h",7,8,9,2,10,5,5],["`+row.TrajectoryID+`","r","h",7,8,10,3,10,5,5]]`, string(encode(s.rowsOf(
		`SELECT trajectory_id, rollout_id, harness, policy_version_min, policy_version_max, learner_version, staleness, length, trained_tokens, known_tokens
		FROM learner_logprobs ORDER BY learner_version`))))
	// In one request, a later item counts over an earlier one.
	both := s.learn(learned{row.TrajectoryID, 11, sameLogprob(10, -1)}, learned{row.TrajectoryID, 11, sameLogprob(10, -1)}, learned{row.TrajectoryID, 11, sameLogprob(10, -3)}).is(200).items()
	require.Equal(t, []string{"stored", "duplicate", "stored"}, []string{both.Items[0].Status, both.Items[1].Status, both.Items[2].Status})
	require.JSONEq(t, want("11", -3, -3, -3, -3, -3), string(encode(s.rowsOf(tokensSQL)[10:])))
	s.get("/readyz").is(200)
}

func TestLearnerLogprobsRefused(t *testing.T) {
	t.Parallel()
	s := start(t, "--max-items=50", "--max-tokens=100")
	row := s.twoCalls("r")
	one := func(n int) *answer { return s.learn(learned{row.TrajectoryID, 9, sameLogprob(n, -1)}) }
	short := one(9)
	require.Equal(t, "length_mismatch", short.is(422).one())
	message := short.items().Items[0].Message
	require.Contains(t, message, "has 9 entries, and the trajectory 10 tokens")
	require.Contains(t, message, "T alignment")
	for _, n := range []int{0, 1, 3, 5, 7, 8, 11, 100} {
		a := one(n)
		require.Equal(t, "length_mismatch", a.is(422).one(), "%d", n)
		require.NotContains(t, a.items().Items[0].Message, "T alignment")
	}
	require.Equal(t, "too_many_tokens", one(101).is(422).one())
	for _, id := range []string{"tr_00000000000000000000000000000000", "x", "'; DROP TABLE ice.traces", strings.ToUpper(row.TrajectoryID)} {
		a := s.learn(learned{id, 9, sameLogprob(10, -1)})
		require.Equal(t, "unknown_trajectory", a.is(422).one(), id)
	}
	mixed := s.learn(learned{"x", 9, sameLogprob(10, -1)}, learned{row.TrajectoryID, 9, sameLogprob(10, -1)}).is(207).items()
	require.Equal(t, []string{"unknown_trajectory", "stored"}, []string{mixed.Items[0].outcome(), mixed.Items[1].outcome()})
	require.Equal(t, "too_many_items", s.learn(make([]learned, 51)...).problem(413, "too_many_items").Code)
	s.send("POST", "/v1/trajectories/logprobs", []byte("{}"), "Content-Type", "application/x-ndjson").problem(415, "unsupported_media_type")
	s.send("POST", "/v1/trajectories/logprobs", []byte("{}"), "Content-Type", typeArrow).problem(400, "invalid_arrow")
	s.post("/v1/trajectories/logprobs", `[`).problem(400, "invalid_json")
	s.post("/v1/trajectories/logprobs?x=1", `[]`).problem(400, "invalid_parameter")
	s.post("/v1/trajectories/logprobs", `[]`).is(200)
	s.post("/v1/trajectories/logprobs", `{"logprobs":[]}`).is(200)
	require.Equal(t, "missing_field", s.post("/v1/trajectories/logprobs", object{"trajectory_id": row.TrajectoryID, "logprobs": sameLogprob(10, -1)}).is(422).one())
	require.Len(t, s.rowsOf("SELECT 1 FROM mismatch"), 5, "what was refused changed nothing")
	s.healthy()
}

// A row's id outlives its merge for a while: a rollout that went on after a
// learner took its row is named otherwise then.
func TestLearnerLogprobsOfReopenedRollout(t *testing.T) {
	t.Parallel()
	s := start(t)
	row := s.twoCalls("r")
	s.export("") // publishes it
	s.traces(plain("r", "r/3", 3, append(row.TokenIDs, 1), ids(2))).all("stored", 1)
	s.export("")
	newer := s.merged("r", "").Trajectories
	require.Len(t, newer, 1)
	require.NotEqual(t, row.TrajectoryID, newer[0].TrajectoryID)
	require.Equal(t, "stored", s.learn(learned{row.TrajectoryID, 9, sameLogprob(10, -1)}).is(200).one())
	require.Equal(t, "stored", s.learn(learned{newer[0].TrajectoryID, 9, sameLogprob(12, -1)}).is(200).one())
	require.Len(t, s.rowsOf("SELECT 1 FROM mismatch"), 5+6)
}

// A lease ends a row behind its last trained token of an agent's call, and does
// not train those of auxiliary calls: fillers there say nothing.
func TestLearnerLogprobsOfAuxiliaryCalls(t *testing.T) {
	t.Parallel()
	s := start(t)
	one := plain("r", "r/1", 1, ids(1), ids(2, 3))
	aux := plain("r", "r/2", 2, append(one.whole(), 4), ids(5, 6)).with("kind", "auxiliary")
	two := plain("r", "r/3", 3, append(aux.whole(), 7), ids(8, 9))
	end := plain("r", "r/4", 4, append(two.whole(), 1), ids(2, 3, 4)).with("kind", "auxiliary")
	s.traces(one, aux, two, end).all("stored", 4)
	row := s.merged("r", "").Trajectories[0]
	require.Len(t, row.TokenIDs, 13)
	kept := func() string {
		return string(encode(s.rowsOf("SELECT learner_version, trace_id, count(*), sum(learner_logprob) FROM mismatch GROUP BY ALL ORDER BY ALL")))
	}
	leased := sameLogprob(9, 0)
	leased[1], leased[2], leased[7], leased[8] = ptr[float32](-1), ptr[float32](-1), ptr[float32](-1), nil
	require.Equal(t, "stored", s.learn(learned{row.TrajectoryID, 1, leased}).is(200).one())
	require.JSONEq(t, `[[1,"r/1",2,-2],[1,"r/3",2,-1]]`, kept())
	require.Equal(t, "stored", s.learn(learned{row.TrajectoryID, 2, sameLogprob(13, -1)}).is(200).one())
	require.JSONEq(t, `[[1,"r/1",2,-2],[1,"r/3",2,-1],[2,"r/1",2,-2],[2,"r/2",2,-2],[2,"r/3",2,-2],[2,"r/4",3,-3]]`, kept())
	a := s.learn(learned{row.TrajectoryID, 3, sameLogprob(8, -1)})
	require.Equal(t, "length_mismatch", a.is(422).one())
	require.Contains(t, a.items().Items[0].Message, "(9 as far as a lease delivers it); one is missing")
}

// What a lease delivers is what can be posted for it, of whatever kinds and
// policy: as many tokens are kept as it trains, and zeros elsewhere say nothing.
func TestLearnerLogprobsOfLeases(t *testing.T) {
	t.Parallel()
	s := start(t, leaseHTTP...)
	agent := func(id string, seq int64, prompt, response []int32) call {
		return plain("r", id, seq, prompt, response)
	}
	s.perform(episode{id: "r", group: "g", size: 1, status: "succeeded", reward: ptr(1.0), put: object{"harness": "pi"}, calls: []call{
		agent("a1", 1, ids(1, 2), ids(3)),
		agent("x1", 2, ids(1, 2, 3, 4), ids(5, 6)).with("kind", "auxiliary"),
		agent("a2", 3, ids(1, 2, 3, 4, 5, 6, 7), ids(8)),
		agent("x2", 4, ids(1, 2, 3, 4, 5, 6, 7, 8, 9), ids(10, 11)).with("kind", "auxiliary"),
		agent("x3", 5, ids(20), ids(21)).with("kind", "auxiliary"),
		agent("x4", 6, ids(1, 2, 3, 4), ids(7)).with("kind", "auxiliary"),
		agent("a3", 7, ids(1, 2, 3, 4, 7, 5), ids(9)),
	}})
	importCaptures(s)
	version := int64(0)
	for _, policy := range []string{"strict_tree", "per_request", "polar_compat"} {
		for _, kinds := range [][]string{{"agent"}, {"auxiliary"}, {"agent", "auxiliary"}} {
			version++
			l := s.lease(fmt.Sprint(policy, kinds), object{"max_groups": 1000, "max_tokens": 1 << 30, "policy": policy, "where": object{"harness": "pi"}, "kinds": kinds})
			var ls []learned
			want := map[string]int64{}
			for i := range l.rows {
				values := sameLogprob(len(l.rows[i].TokenIDs), 0)
				for at, on := range l.rows[i].LossMask {
					if on == 1 {
						values[at] = ptr[float32](-1)
					}
				}
				ls = append(ls, learned{l.rows[i].TrajectoryID, version, values})
				want[l.rows[i].TrajectoryID] = l.rows[i].TrainedTokens
			}
			require.NotEmpty(t, ls)
			s.learn(ls...).all("stored", len(ls))
			got := map[string]int64{}
			for _, row := range s.rowsOf(fmt.Sprintf("SELECT trajectory_id, count(*) FROM mismatch WHERE learner_version = %d AND learner_logprob = -1 GROUP BY 1", version)) {
				n, err := row[1].(json.Number).Int64()
				require.NoError(t, err)
				got[row[0].(string)] = n
			}
			require.Equal(t, want, got, "%s %v", policy, kinds)
			require.Empty(t, s.rowsOf(fmt.Sprintf("SELECT 1 FROM mismatch WHERE learner_version = %d AND learner_logprob <> -1", version)))
		}
	}
}

// What was answered stored is there after kill -9, and is a duplicate then.
func TestLearnerLogprobsSurviveAKill(t *testing.T) {
	t.Parallel()
	s := launch(t, filepath.Join(t.TempDir(), "data"), nil)
	row := s.twoCalls("r")
	post := func(s *server) string {
		return s.post("/v1/trajectories/logprobs", learned{row.TrajectoryID, 9, sameLogprob(10, -1)}.object()).is(200).one()
	}
	require.Equal(t, "stored", post(s))
	s.kill()
	next := startOn(t, s.dir, nil)
	require.Equal(t, "duplicate", post(next))
	next.learn(learned{row.TrajectoryID, 10, sameLogprob(10, -1)}).all("stored", 1)
	require.Len(t, next.rowsOf("SELECT 1 FROM mismatch"), 10)
}
