package store

import (
	"context"
	"fmt"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"icecore/failpoint"
	"icecore/store/warehouse"
)

// Merge is what one policy made of one rollout, over the traces of all batches
// up to Through.
type Merge struct {
	Generation    int64
	RolloutKey    int64
	Policy        string
	Through       int64
	SampledTokens int64
	TrainedTokens int64
	Traces        []MergedTrace
	Rows          []MergedRow
}

// MergedTrace is what a merge made of one trace; see the table merged_traces.
// Negative numbers stand for NULL.
type MergedTrace struct {
	Key         int64
	Disposition string
	PreviousKey int64
	Cut         int
	SpanStart   int
	Row         int
	Boundary    string
	NearestKey  int64
	Shared      int
}

// MergedRow is one trajectory; see the table trajectories.
type MergedRow struct {
	RolloutKey    int64
	Through       int64
	Row           int
	ID            string
	NamingKey     int64
	LastKey       int64
	Length        int
	TrainedTokens int
	VersionMin    *int64
	VersionMax    *int64
	Rewritten     bool
}

// Publish writes merges. Each is a new generation; the newest generation of a
// rollout and policy is the published one, so all of them appear at once, with
// the transaction.
func (s *Store) Publish(ctx context.Context, merges []*Merge) error {
	gens, traces, trajs := tableGenerations.rows(), tableMergedTraces.rows(), tableTrajectories.rows()
	defer gens.b.Release()
	defer traces.b.Release()
	defer trajs.b.Release()
	now := time.Now().UnixMicro()
	for _, m := range merges {
		gens.i64(m.Generation)
		gens.i64(m.RolloutKey)
		gens.str(m.Policy)
		gens.i64(m.Through)
		gens.i32(len(m.Traces))
		gens.i32(len(m.Rows))
		gens.i64(m.SampledTokens)
		gens.i64(m.TrainedTokens)
		gens.time(now)
		gens.end()
		for i := range m.Traces {
			m.Traces[i].row(traces, m)
		}
		for i := range m.Rows {
			m.Rows[i].row(trajs, m)
		}
	}
	var adds []warehouse.Addition
	var held []arrow.RecordBatch
	defer func() {
		for _, rec := range held {
			rec.Release()
		}
	}()
	for _, r := range []*rows{gens, traces, trajs} {
		if r.n > 0 {
			rec := r.record()
			held = append(held, rec)
			adds = append(adds, warehouse.Addition{Table: r.table.name, Records: []arrow.RecordBatch{rec}})
		}
	}
	if len(merges) == 0 {
		return nil
	}
	// A generation is given out once, and all of them are written with the first.
	done := func() (bool, error) {
		n, err := s.wh().Int(ctx, fmt.Sprintf(`SELECT count(*) FROM ice.generations WHERE generation = %d`, merges[0].Generation))
		return n > 0, err
	}
	return s.applied(ctx, done, func() error { return failpoint.Hit("publish.inside") }, adds)
}

func (t *MergedTrace) row(to *rows, m *Merge) {
	to.i64(m.Generation)
	to.i64(m.RolloutKey)
	to.str(m.Policy)
	to.i64(t.Key)
	to.str(t.Disposition)
	to.optI64(positive(t.PreviousKey))
	to.i32(t.Cut)
	to.optI32(t.SpanStart, t.SpanStart >= 0)
	to.optI32(t.Row, t.Row >= 0)
	to.optStr(t.Boundary)
	to.optI64(positive(t.NearestKey))
	to.optI32(t.Shared, t.Boundary != "")
	to.end()
}

func (r *MergedRow) row(to *rows, m *Merge) {
	to.i64(m.Generation)
	to.i64(m.RolloutKey)
	to.str(m.Policy)
	to.i32(r.Row)
	to.str(r.ID)
	to.i64(r.NamingKey)
	to.i64(r.LastKey)
	to.i32(r.Length)
	to.i32(r.TrainedTokens)
	to.optI64(r.VersionMin)
	to.optI64(r.VersionMax)
	to.flag(r.Rewritten)
	to.end()
}

func positive(v int64) *int64 {
	if v <= 0 {
		return nil
	}
	return &v
}

// NewestGeneration is the greatest generation number of which there are rows.
func (s *Store) NewestGeneration(ctx context.Context) (int64, error) {
	return s.wh().Int(ctx, `SELECT max(generation) FROM (
		SELECT generation FROM ice.generations UNION ALL SELECT generation FROM ice.dropped_generations)`)
}

// published selects the newest generation of each rollout and policy.
const published = `SELECT rollout_key, policy, max(generation) AS generation, arg_max(through_batch, generation) AS through_batch
	FROM ice.generations`

// MergedThrough says up to which batch each of the rollouts is merged by a
// policy; one that is not merged at all is absent.
func (s *Store) MergedThrough(ctx context.Context, keys []int64, policy string) (map[int64]int64, error) {
	out := map[int64]int64{}
	if len(keys) == 0 {
		return out, nil
	}
	err := s.wh().Query(ctx, eachRow(func(c *columnsOf) error {
		out[c.i64()] = c.i64()
		return nil
	}), `SELECT rollout_key, through_batch FROM (`+published+` WHERE policy = ? AND rollout_key IN `+inList(keys)+` GROUP BY ALL)`, policy)
	return out, err
}

// Unmerged lists the rollouts that have traces which policy has not merged.
func (s *Store) Unmerged(ctx context.Context, policy string) ([]int64, error) {
	var out []int64
	err := s.wh().Query(ctx, eachRow(func(c *columnsOf) error {
		out = append(out, c.i64())
		return nil
	}), `SELECT t.rollout_key FROM (SELECT rollout_key, max(batch) AS newest FROM ice.traces GROUP BY ALL) t
		LEFT JOIN (SELECT rollout_key, max(through_batch) AS through FROM ice.generations WHERE policy = ? GROUP BY ALL) g
		ON g.rollout_key = t.rollout_key WHERE g.through IS NULL OR g.through < t.newest ORDER BY 1`, policy)
	return out, err
}

// MergedPolicies lists the policies that have published something.
func (s *Store) MergedPolicies(ctx context.Context) ([]string, error) {
	var out []string
	err := s.wh().Query(ctx, eachRow(func(c *columnsOf) error {
		out = append(out, c.str())
		return nil
	}), `SELECT DISTINCT policy FROM ice.generations ORDER BY 1`)
	return out, err
}

// MergedRows lists the published trajectories of the rollouts, by rollout and
// row.
func (s *Store) MergedRows(ctx context.Context, keys []int64, policy string) ([]MergedRow, error) {
	var out []MergedRow
	for at := 0; at < len(keys); at += loadKeys {
		list := inList(keys[at:min(at+loadKeys, len(keys))])
		err := s.wh().Query(ctx, eachRow(func(c *columnsOf) error {
			r := MergedRow{RolloutKey: c.i64(), Through: c.i64(), Row: c.i32(), ID: c.str(), NamingKey: c.i64(), LastKey: c.i64(),
				Length: c.i32(), TrainedTokens: c.i32(), VersionMin: c.optI64(), VersionMax: c.optI64(), Rewritten: c.flag()}
			out = append(out, r)
			return nil
		}), `SELECT t.rollout_key, g.through_batch, t.row_index, t.trajectory_id, t.naming_key, t.last_key, t.length,
			t.trained_tokens, t.policy_version_min, t.policy_version_max, t.history_rewritten
			FROM ice.trajectories t JOIN (`+published+` WHERE policy = ? AND rollout_key IN `+list+` GROUP BY ALL) g
			ON t.generation = g.generation WHERE t.rollout_key IN `+list+` ORDER BY t.rollout_key, t.row_index`, policy)
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Counts sums what the published merges of each harness made, for display.
type Counts struct {
	Harness       string
	Rollouts      int64
	Traces        int64
	Trajectories  int64
	SampledTokens int64
	TrainedTokens int64
	SentTokens    int64
	KeptTokens    int64
	Dispositions  map[string]int64
	Boundaries    map[string]int64
}

// CountsByHarness reads Counts for one policy.
func (s *Store) CountsByHarness(ctx context.Context, policy string) ([]*Counts, error) {
	var out []*Counts
	by := map[string]*Counts{}
	newest := `(SELECT rollout_key, coalesce(harness, '') AS harness FROM ice.rollouts
		QUALIFY row_number() OVER (PARTITION BY rollout_key ORDER BY batch DESC) = 1)`
	gens := `(SELECT * FROM ice.generations WHERE policy = $1
		QUALIFY row_number() OVER (PARTITION BY rollout_key ORDER BY generation DESC) = 1)`
	err := s.wh().Query(ctx, eachRow(func(c *columnsOf) error {
		k := &Counts{Harness: c.str(), Rollouts: c.i64(), Traces: c.i64(), Trajectories: c.i64(), SampledTokens: c.i64(),
			TrainedTokens: c.i64(), SentTokens: c.i64(), KeptTokens: c.i64(),
			Dispositions: map[string]int64{}, Boundaries: map[string]int64{}}
		by[k.Harness] = k
		out = append(out, k)
		return nil
	}), `SELECT r.harness, count(*), sum(g.traces)::BIGINT, sum(g.trajectories)::BIGINT, sum(g.sampled_tokens)::BIGINT,
			sum(g.trained_tokens)::BIGINT, coalesce(sum(t.sent), 0)::BIGINT, coalesce(sum(k.kept), 0)::BIGINT
		FROM `+gens+` g JOIN `+newest+` r USING (rollout_key)
		LEFT JOIN (SELECT rollout_key, sum(coalesce(prompt_length, 0) + coalesce(response_length, 0)) AS sent
			FROM ice.traces GROUP BY 1) t USING (rollout_key)
		LEFT JOIN (SELECT rollout_key, sum(len(token_ids)) AS kept FROM ice.tape_chunks GROUP BY 1) k USING (rollout_key)
		GROUP BY 1 ORDER BY 1`, policy)
	if err != nil {
		return nil, err
	}
	for _, part := range []struct {
		column string
		of     func(*Counts) map[string]int64
	}{
		{"disposition", func(c *Counts) map[string]int64 { return c.Dispositions }},
		{"boundary", func(c *Counts) map[string]int64 { return c.Boundaries }},
	} {
		err := s.wh().Query(ctx, eachRow(func(c *columnsOf) error {
			if k := by[c.str()]; k != nil {
				part.of(k)[c.str()] = c.i64()
			}
			return nil
		}), `SELECT r.harness, m.`+part.column+`, count(*) FROM ice.merged_traces m JOIN `+gens+` g ON m.generation = g.generation
			JOIN `+newest+` r ON r.rollout_key = m.rollout_key WHERE m.`+part.column+` IS NOT NULL GROUP BY ALL`, policy)
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// NewestTraces says in which batch, up to through, each rollout's newest trace
// came; a rollout without traces is absent.
func (s *Store) NewestTraces(ctx context.Context, keys []int64, through int64) (map[int64]int64, error) {
	out := map[int64]int64{}
	if len(keys) == 0 {
		return out, nil
	}
	err := s.wh().Query(ctx, eachRow(func(c *columnsOf) error {
		out[c.i64()] = c.i64()
		return nil
	}), fmt.Sprintf(`SELECT rollout_key, max(batch) FROM ice.traces WHERE rollout_key IN %s AND batch <= %d GROUP BY 1`,
		inList(keys), through))
	return out, err
}
