package store

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"icecore/trace"
)

// FoundTrajectory is a row that a merge made, by the spans that it trains.
type FoundTrajectory struct {
	ID         string
	RolloutKey int64
	RolloutID  string
	Policy     string
	Length     int
	// Trained are the spans trained in it, by position.
	Trained []TrainedSpan

	generation int64
	index      int
	trained    int
}

// TrainedSpan is the range [Start, End) of a trajectory that one trace sampled:
// its whole response.
type TrainedSpan struct {
	TraceKey   int64
	Start, End int
	Kind       trace.Kind
	// Versions are those that sampled it.
	Versions VersionRange
}

// FindTrajectories looks up rows by their ids, among all merges of which the
// warehouse still has the rows: a learner may speak of one that a newer merge has
// replaced since. An id that is not known is absent. Of several rows with an id
// (polar_compat's grow) the newest of each length is given, the newest first.
func (s *Store) FindTrajectories(ctx context.Context, ids []string) (map[string][]*FoundTrajectory, error) {
	found := map[string][]*FoundTrajectory{}
	byGeneration := map[int64][]*FoundTrajectory{}
	var rollouts []int64
	list, err := json.Marshal(ids)
	if err != nil {
		return nil, fmt.Errorf("look up trajectories: %w", err)
	}
	err = s.wh().Query(ctx, eachRow(func(c *columnsOf) error {
		f := &FoundTrajectory{ID: c.str(), generation: c.i64(), RolloutKey: c.i64(), Policy: c.str(), index: c.i32(), Length: c.i32(), trained: c.i32()}
		found[f.ID] = append(found[f.ID], f)
		byGeneration[f.generation] = append(byGeneration[f.generation], f)
		rollouts = append(rollouts, f.RolloutKey)
		return nil
	}), `SELECT trajectory_id, generation, rollout_key, policy, row_index, length, trained_tokens FROM ice.trajectories
		WHERE trajectory_id IN (SELECT unnest($1::JSON::VARCHAR[]))
		QUALIFY row_number() OVER (PARTITION BY trajectory_id, length ORDER BY generation DESC) = 1
		ORDER BY generation DESC`, string(list))
	if err != nil {
		return nil, fmt.Errorf("look up trajectories: %w", err)
	}
	slices.Sort(rollouts)
	rollouts = slices.Compact(rollouts)
	for at := 0; at < len(rollouts); at += loadKeys {
		if err := s.trainedSpans(ctx, rollouts[at:min(at+loadKeys, len(rollouts))], byGeneration); err != nil {
			return nil, err
		}
	}
	for id, rows := range found {
		// A merge that is being deleted may have lost its spans already.
		rows = slices.DeleteFunc(rows, func(f *FoundTrajectory) bool { return f.RolloutID == "" || f.trained != 0 })
		if found[id] = rows; len(rows) == 0 {
			delete(found, id)
		}
	}
	return found, nil
}

// trainedSpans adds the spans of rows of some rollouts; trained counts down the
// tokens that are not found yet.
func (s *Store) trainedSpans(ctx context.Context, rollouts []int64, byGeneration map[int64][]*FoundTrajectory) error {
	of := func(alias string) string { return keysWhere(alias+".rollout_key", rollouts) }
	generations := slices.Collect(maps.Keys(byGeneration))
	err := s.wh().Query(ctx, eachRow(func(c *columnsOf) error {
		generation, row := c.i64(), c.i32()
		i := slices.IndexFunc(byGeneration[generation], func(f *FoundTrajectory) bool { return f.index == row })
		if i < 0 {
			return nil
		}
		f := byGeneration[generation][i]
		key, start, length, kind := c.i64(), c.i32(), c.i32(), trace.Kind(c.str())
		f.RolloutID = c.str()
		span := TrainedSpan{TraceKey: key, Start: start, End: start + length, Kind: kind}
		span.Versions.Widen(&Call{PolicyVersion: c.optI64(), Versions: c.versions()})
		f.Trained = append(f.Trained, span)
		f.trained -= length
		return nil
	}), `SELECT m.generation, m.row_index, m.trace_key, m.span_start, t.response_length, t.kind, t.rollout_id, t.policy_version, t.policy_version_spans
		FROM ice.merged_traces m JOIN ice.traces t ON t.trace_key = m.trace_key
		WHERE m.row_index IS NOT NULL AND `+keysWhere("m.generation", generations)+` AND `+of("m")+` AND `+of("t")+` ORDER BY m.generation, m.span_start`)
	if err != nil {
		return fmt.Errorf("read spans of trajectories: %w", err)
	}
	return nil
}
