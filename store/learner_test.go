package store

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/trace"
)

// trained stores one call of n sampled ids and publishes a row tr_1 that trains
// it behind two prompt ids.
func trained(t *testing.T, s *Store, n int) {
	t.Helper()
	c := call("c", "r", []int32{1, 2}, make([]int32, n))
	c.PolicyVersion = ptr(int64(3))
	c.ResponseLogprobs = &trace.Logprobs{Values: make([]float32, n)}
	put(t, s, c)
	publish(t, s, 1, "tr_1", n)
}

func publish(t *testing.T, s *Store, generation int64, id string, n int) {
	t.Helper()
	ctx := context.Background()
	r, err := s.Rollout(ctx, "r")
	require.NoError(t, err)
	x, err := s.lookup(ctx, "c")
	require.NoError(t, err)
	require.NoError(t, s.Publish(ctx, []*Merge{{Generation: generation, RolloutKey: r.Key, Policy: "strict_tree", Through: r.LastBatch,
		Traces: []MergedTrace{{Key: x.trace, Disposition: "trained", SpanStart: 2, Row: 0, Shared: -1}},
		Rows:   []MergedRow{{RolloutKey: r.Key, ID: id, NamingKey: x.trace, LastKey: x.trace, Length: n + 2, TrainedTokens: n}}}}))
}

// post says what version of the learner said of tr_1.
func post(t *testing.T, s *Store, version int64, l *trace.Logprobs) ItemStatus {
	t.Helper()
	ctx := context.Background()
	found, err := s.FindTrajectories(ctx, []string{"tr_1", "tr_none"})
	require.NoError(t, err)
	require.Len(t, found, 1)
	row := found["tr_1"][0]
	out, batch, err := s.PutLearnerLogprobs(ctx, []*LearnerPost{{Row: row, Trained: row.Trained,
		LearnerLogprobs: &trace.LearnerLogprobs{TrajectoryID: "tr_1", PolicyVersion: version, Logprobs: l}}})
	require.NoError(t, err)
	require.NoError(t, s.WaitDrained(ctx, batch))
	return out[0].Status
}

// said reads back what counts: per version and chunk, whether sampler and learner
// have a list there, and the learner's.
func said(t *testing.T, s *Store) (out []string) {
	t.Helper()
	require.NoError(t, s.wh().Query(context.Background(), eachRow(func(c *columnsOf) error {
		out = append(out, c.str())
		return nil
	}), `SELECT concat_ws(' ', learner_version, start, position, len(behaviour_logprobs), len(learner_logprobs), list_sum(learner_logprobs), list_count(learner_logprobs))
		FROM v1.mismatch_chunks ORDER BY learner_version, start`))
	return out
}

func flat(n int, v float32) *trace.Logprobs {
	l := &trace.Logprobs{Values: make([]float32, n)}
	for i := range l.Values {
		l.Values[i] = v
	}
	return l
}

// What a learner says lies chunk by chunk beside what the sampler said.
func TestLearnerLogprobs(t *testing.T) {
	s := open(t, Options{})
	const n = 2*maxList + 8
	trained(t, s, n)
	require.Equal(t, Stored, post(t, s, 7, flat(n+2, -1)))
	require.Equal(t, Duplicate, post(t, s, 7, flat(n+2, -1)))
	other := flat(n+2, -1)
	other.Values[0] = -9
	require.Equal(t, Duplicate, post(t, s, 7, other), "what is not trained is not content")
	chunks := func(v int64, sum, last float64) []string {
		return []string{fmt.Sprint(v, " 0 2 4096 4096 ", fmt.Sprintf("%.1f", sum*maxList), " 4096"),
			fmt.Sprint(v, " 4096 4098 4096 4096 ", fmt.Sprintf("%.1f", sum*maxList), " 4096"),
			fmt.Sprint(v, " 8192 8194 8 8 ", fmt.Sprintf("%.1f", last), " 8")}
	}
	require.Equal(t, chunks(7, -1, -8), said(t, s))
	require.Equal(t, Stored, post(t, s, 8, flat(n+2, -1)), "another version is another post")
	require.Equal(t, Stored, post(t, s, 7, flat(n+2, -2)), "other content takes its place")
	require.Equal(t, append(chunks(7, -2, -16), chunks(8, -1, -8)...), said(t, s))
	require.Equal(t, Stored, post(t, s, 7, flat(n+2, -1)), "and the first again")
	require.Equal(t, append(chunks(7, -1, -8), chunks(8, -1, -8)...), said(t, s))

	holes := flat(n+2, -1)
	holes.Values[n] = float32(math.Inf(-1))
	holes.Known = make([]bool, n+2)
	for i := range holes.Known {
		holes.Known[i] = i%2 == 0
	}
	require.Equal(t, Stored, post(t, s, 9, holes))
	require.Equal(t, []string{"9 0 2 4096 4096 -2048.0 2048", "9 4096 4098 4096 4096 -2048.0 2048", "9 8192 8194 8 8 -inf 4"}, said(t, s)[6:])
	var posts string
	require.NoError(t, s.wh().Query(context.Background(), eachRow(func(c *columnsOf) error {
		posts += c.str()
		return nil
	}), `SELECT concat_ws(' ', post, rollout_id, merge_policy, learner_version, policy_version_min, policy_version_max, staleness, length, trained_tokens, known_tokens) || E'\n'
		FROM v1.learner_logprobs ORDER BY post`))
	require.Equal(t, "2 r strict_tree 8 3 3 5 8202 8200 8200\n4 r strict_tree 7 3 3 4 8202 8200 8200\n5 r strict_tree 9 3 3 6 8202 8200 4100\n", posts)
}

// A learner may speak of a row that a newer merge has replaced, and of one that
// has grown since.
func TestFindTrajectories(t *testing.T) {
	s := open(t, Options{})
	trained(t, s, 5)
	publish(t, s, 2, "tr_2", 5)
	found, err := s.FindTrajectories(context.Background(), []string{"tr_1", "tr_2", "tr_3", "tr_'"})
	require.NoError(t, err)
	require.Len(t, found, 2)
	row := found["tr_1"][0]
	require.Equal(t, []any{"r", "strict_tree", 7}, []any{row.RolloutID, row.Policy, row.Length})
	require.Equal(t, []TrainedSpan{{TraceKey: row.Trained[0].TraceKey, Start: 2, End: 7, Kind: trace.KindAgent, Versions: VersionRange{ptr(int64(3)), ptr(int64(3))}}}, row.Trained)
	publish(t, s, 3, "tr_2", 5)
	found, err = s.FindTrajectories(context.Background(), []string{"tr_2"})
	require.NoError(t, err)
	require.Len(t, found["tr_2"], 1)
	require.EqualValues(t, 3, found["tr_2"][0].generation)
	// Spans that do not make up the row are those of a merge that is going.
	require.NoError(t, s.wh().Apply(context.Background(), nil, nil, `DELETE FROM ice.merged_traces WHERE generation = 3`))
	found, err = s.FindTrajectories(context.Background(), []string{"tr_2"})
	require.NoError(t, err)
	require.Empty(t, found)
}

// The index of posts can be made again; keys go on behind those in use.
func TestRebuildLearnerPosts(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	s, err := Open(ctx, quiet(t, Options{Dir: dir}))
	require.NoError(t, err)
	trained(t, s, 5)
	post(t, s, 7, flat(7, -1))
	post(t, s, 7, flat(7, -2))
	require.NoError(t, s.Close(ctx))
	require.NoError(t, os.Remove(filepath.Join(dir, controlFile)))
	s, err = Open(ctx, quiet(t, Options{Dir: dir, RebuildIndex: true}))
	require.NoError(t, err)
	require.Equal(t, Duplicate, post(t, s, 7, flat(7, -2)))
	require.Equal(t, Stored, post(t, s, 7, flat(7, -3)))
	require.Equal(t, []string{"7 0 2 5 5 -15.0 5"}, said(t, s))
	require.NoError(t, s.Close(ctx))
}

// Posts that are in the journal alone, about traces that were in a file that is
// lost, go with them: the traces are sent again under other keys.
func TestLearnerPostsOfLostTraces(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	opts := Options{Dir: dir, CheckpointInterval: 1 << 50, CheckpointBytes: 1 << 40}
	s, err := Open(ctx, quiet(t, opts))
	require.NoError(t, err)
	trained(t, s, 5)
	require.NoError(t, s.Close(ctx)) // its trace leaves the journal
	s, err = Open(ctx, quiet(t, opts))
	require.NoError(t, err)
	post(t, s, 7, flat(7, -1))
	lost := t.TempDir()
	for _, name := range []string{controlFile, controlFile + "-wal"} {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(lost, name), raw, 0o600))
	}
	require.NoError(t, s.Close(ctx))
	require.NoError(t, os.WriteFile(filepath.Join(lost, warehouseFile), []byte(strings.Repeat("garbage ", 4096)), 0o600))
	s, err = Open(ctx, quiet(t, Options{Dir: lost}))
	require.NoError(t, err)
	require.NoError(t, s.WaitDrained(ctx, s.NewestBatch()))
	require.Empty(t, said(t, s))
	n, err := s.wh().Int(ctx, `SELECT count(*) FROM ice.learner_posts`)
	require.NoError(t, err)
	require.Zero(t, n)
	trained(t, s, 5)
	require.Equal(t, Stored, post(t, s, 7, flat(7, -1)), "what was lost can be posted again")
	require.Len(t, said(t, s), 1)
	require.NoError(t, s.Close(ctx))
}
