package analytics

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
)

// Worst names where learner and sampler agree least.
type Worst struct {
	ByK3   []WorstTrajectory `json:"trajectories_by_k3"`
	ByAbs  []WorstTrajectory `json:"trajectories_by_abs"`
	Tokens []WorstToken      `json:"tokens"`
}

// WorstTrajectory is a trajectory that a learner's version posted log-probs of.
type WorstTrajectory struct {
	TrajectoryID     string  `json:"trajectory_id"`
	RolloutID        string  `json:"rollout_id"`
	Harness          *string `json:"harness"`
	Model            *string `json:"model"`
	TaskID           *string `json:"task_id"`
	GroupID          *string `json:"group_id"`
	MergePolicy      string  `json:"merge_policy"`
	LearnerVersion   int64   `json:"learner_version"`
	PolicyVersionMin *int64  `json:"policy_version_min"`
	PolicyVersionMax *int64  `json:"policy_version_max"`
	TrainedTokens    int64   `json:"trained_tokens"`
	ComparedTokens   int64   `json:"compared_tokens"`
	K3               float64 `json:"k3"`
	AbsMean          float64 `json:"abs_mean"`
	AbsMax           float64 `json:"abs_max"`
	// LogWeight is the sum of d.
	LogWeight float64 `json:"log_weight"`
}

// WorstToken is one trained token. Position counts in the trajectory,
// ResponsePosition in the trace's response.
type WorstToken struct {
	TrajectoryID     string  `json:"trajectory_id"`
	RolloutID        string  `json:"rollout_id"`
	Harness          *string `json:"harness"`
	Model            *string `json:"model"`
	TaskID           *string `json:"task_id"`
	MergePolicy      string  `json:"merge_policy"`
	LearnerVersion   int64   `json:"learner_version"`
	PolicyVersion    *int64  `json:"policy_version"`
	TraceID          string  `json:"trace_id"`
	FinishReason     *string `json:"finish_reason"`
	ResponsePosition int64   `json:"response_position"`
	Position         int64   `json:"position"`
	TokenID          *int32  `json:"token_id"`
	Behaviour        Number  `json:"behaviour_logprob"`
	Learner          Number  `json:"learner_logprob"`
	LogRatio         Number  `json:"log_ratio"`
	Comparable       bool    `json:"comparable"`
}

// Number is a number that may be infinite, which JSON writes as a text.
type Number float64

// MarshalJSON writes an infinity as "Infinity" or "-Infinity".
func (n Number) MarshalJSON() ([]byte, error) {
	switch v := float64(n); {
	case math.IsInf(v, 1):
		return []byte(`"Infinity"`), nil
	case math.IsInf(v, -1):
		return []byte(`"-Infinity"`), nil
	default:
		return json.Marshal(v) //nolint:wrapcheck // encoding/json says the rest
	}
}

// UnmarshalJSON reads a number, and an infinity as arrow-go writes it.
func (n *Number) UnmarshalJSON(raw []byte) error {
	switch string(raw) {
	case `"+Inf"`:
		*n = Number(math.Inf(1))
		return nil
	case `"-Inf"`:
		*n = Number(math.Inf(-1))
		return nil
	}
	return json.Unmarshal(raw, (*float64)(n)) //nolint:wrapcheck // encoding/json says the rest
}

func worstOf(ctx context.Context, w Warehouse, filters []any, worst int64) (Worst, error) {
	out := Worst{[]WorstTrajectory{}, []WorstTrajectory{}, []WorstToken{}}
	if worst == 0 {
		return out, nil
	}
	args := append(slices.Clip(filters), worst)
	type ranked struct {
		WorstTrajectory
		ByK3  int64 `json:"by_k3"`
		ByAbs int64 `json:"by_abs"`
	}
	rows, err := rowsOf[ranked](ctx, w, MismatchTrajectoriesSQL, args...)
	if err != nil {
		return out, fmt.Errorf("find the worst trajectories: %w", err)
	}
	for i := range rows {
		if rows[i].ByK3 <= worst {
			out.ByK3 = append(out.ByK3, rows[i].WorstTrajectory)
		}
	}
	slices.SortFunc(rows, func(a, b ranked) int { return cmp.Compare(a.ByAbs, b.ByAbs) })
	for i := range rows {
		if rows[i].ByAbs <= worst {
			out.ByAbs = append(out.ByAbs, rows[i].WorstTrajectory)
		}
	}
	tokens, err := rowsOf[WorstToken](ctx, w, MismatchTokensSQL, args...)
	if err != nil {
		return out, fmt.Errorf("find the worst tokens: %w", err)
	}
	out.Tokens = append(out.Tokens, tokens...)
	return out, nameTokens(ctx, w, out.Tokens)
}

// The ids of a few responses. The list stands as a condition of the view itself,
// so that only these are assembled.
const responseSQL = `SELECT trace_id, response_token_ids FROM v1.traces WHERE list_contains($1::JSON::VARCHAR[], trace_id)`

// nameTokens adds the ids of tokens.
func nameTokens(ctx context.Context, w Warehouse, tokens []WorstToken) error {
	if len(tokens) == 0 {
		return nil
	}
	var traces []string
	for i := range tokens {
		traces = append(traces, tokens[i].TraceID)
	}
	slices.Sort(traces)
	rows, err := rowsOf[struct {
		TraceID string  `json:"trace_id"`
		IDs     []int32 `json:"response_token_ids"`
	}](ctx, w, responseSQL, list(slices.Compact(traces)))
	if err != nil {
		return fmt.Errorf("read the worst tokens' ids: %w", err)
	}
	for _, r := range rows {
		for i := range tokens {
			if t := &tokens[i]; t.TraceID == r.TraceID && t.ResponsePosition < int64(len(r.IDs)) {
				t.TokenID = &r.IDs[t.ResponsePosition]
			}
		}
	}
	return nil
}
