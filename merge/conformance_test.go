package merge

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/trace"
)

type wireTrace struct {
	TraceID       string       `json:"trace_id"`
	RolloutID     string       `json:"rollout_id"`
	Seq           *int64       `json:"seq"`
	Prompt        []int32      `json:"prompt_token_ids"`
	Response      []int32      `json:"response_token_ids"`
	IDsIncomplete bool         `json:"ids_incomplete"`
	Status        trace.Status `json:"status"`
	FinishReason  string       `json:"finish_reason"`
	ChoiceGroup   string       `json:"choice_group"`
	ChoiceIndex   *int64       `json:"choice_index"`
}

func (w *wireTrace) call() Call {
	return CallOf(&trace.Trace{
		TraceID: w.TraceID, RolloutID: w.RolloutID, Seq: w.Seq,
		PromptIDs: trace.TokensOf(w.Prompt), ResponseIDs: w.Response, IDsIncomplete: w.IDsIncomplete,
		Status: w.Status, FinishReason: w.FinishReason, ChoiceGroup: w.ChoiceGroup, ChoiceIndex: w.ChoiceIndex,
	})
}

type wireSpan struct {
	TraceID   string `json:"trace_id"`
	Start     int    `json:"start"`
	End       int    `json:"end"`
	Trainable bool   `json:"trainable"`
}

type wireRow struct {
	TokenIDs  []int32    `json:"token_ids"`
	Length    int        `json:"length"`
	SHA256    string     `json:"sha256"`
	Spans     []wireSpan `json:"spans"`
	Rewritten bool       `json:"history_rewritten"`
}

type wireBoundary struct {
	TraceID string  `json:"trace_id"`
	Kind    string  `json:"kind"`
	Nearest *string `json:"nearest"`
	Shared  int     `json:"shared"`
}

type wirePolar struct {
	EndOfTurn    int32                  `json:"end_of_turn"`
	Trajectories []wireRow              `json:"trajectories"`
	Dispositions map[string]Disposition `json:"dispositions"`
}

func viewBoundaries(in []wireBoundary) (out []viewBoundary) {
	for _, b := range in {
		v := viewBoundary{TraceID: b.TraceID, Kind: BoundaryKind(b.Kind), Shared: b.Shared}
		if b.Nearest != nil {
			v.Nearest = *b.Nearest
		}
		out = append(out, v)
	}
	return out
}

func viewSpans(in []wireSpan) (out []viewSpan) {
	for _, s := range in {
		out = append(out, viewSpan(s))
	}
	return out
}

type conformanceCase struct {
	Name   string      `json:"name"`
	Traces []wireTrace `json:"traces"`
	Expect struct {
		StrictTree   []wireRow              `json:"strict_tree"`
		PerRequest   []wireRow              `json:"per_request"`
		Polar        wirePolar              `json:"polar_compat"`
		Dispositions map[string]Disposition `json:"dispositions"`
		Boundaries   []wireBoundary         `json:"boundaries"`
	} `json:"expect"`
}

func loadConformance(t *testing.T) []conformanceCase {
	raw, err := os.ReadFile("../testdata/conformance/merge.json")
	require.NoError(t, err)
	var file struct {
		Cases []conformanceCase `json:"cases"`
	}
	require.NoError(t, json.Unmarshal(raw, &file))
	require.Len(t, file.Cases, 44)
	return file.Cases
}

func TestConformance(t *testing.T) {
	for _, c := range loadConformance(t) {
		t.Run(c.Name, func(t *testing.T) {
			var calls []Call
			for i := range c.Traces {
				calls = append(calls, c.Traces[i].call())
			}
			c.check(t, calls)
			rng := rand.New(rand.NewPCG(1, 2))
			for range 8 {
				c.check(t, shuffled(calls, rng))
				c.check(t, inPieces(shuffled(calls, rng), rng))
			}
		})
	}
}

func (c *conformanceCase) check(t *testing.T, calls []Call) {
	e := &c.Expect
	boundaries := viewBoundaries(e.Boundaries)
	for _, want := range []struct {
		policy       Policy
		rows         []wireRow
		dispositions map[string]Disposition
	}{
		{Policy{Name: StrictTree}, e.StrictTree, e.Dispositions},
		{Policy{}, e.StrictTree, e.Dispositions},
		{Policy{Name: PerRequest}, e.PerRequest, e.Dispositions},
		{endOfTurn(e.Polar.EndOfTurn), e.Polar.Trajectories, e.Polar.Dispositions},
	} {
		got := runView(calls, want.policy)
		require.Equal(t, want.dispositions, got.Dispositions, want.policy)
		require.Equal(t, boundaries, got.Boundaries, want.policy)
		require.Len(t, got.Rows, len(want.rows), want.policy)
		for i, row := range want.rows {
			require.Equal(t, row.TokenIDs, got.Rows[i].IDs, want.policy)
			require.Equal(t, viewSpans(row.Spans), got.Rows[i].Spans, want.policy)
			require.Equal(t, row.Rewritten, got.Rows[i].Rewritten, want.policy)
		}
	}
}

// The reference must obey the cases too, or agreeing with it proves nothing.
func TestConformanceOfReference(t *testing.T) {
	for _, c := range loadConformance(t) {
		var calls []Call
		for i := range c.Traces {
			calls = append(calls, c.Traces[i].call())
		}
		got := refRun(calls, Policy{})
		require.Equal(t, c.Expect.Dispositions, got.Dispositions, c.Name)
		require.Equal(t, viewBoundaries(c.Expect.Boundaries), got.Boundaries, c.Name)
		for _, want := range []struct {
			policy Policy
			rows   []wireRow
		}{
			{Policy{}, c.Expect.StrictTree},
			{Policy{Name: PerRequest}, c.Expect.PerRequest},
			{endOfTurn(9), c.Expect.Polar.Trajectories},
		} {
			got := refRun(calls, want.policy)
			require.Len(t, got.Rows, len(want.rows), c.Name)
			for i, row := range want.rows {
				require.Equal(t, row.TokenIDs, got.Rows[i].IDs, c.Name)
				require.Equal(t, viewSpans(row.Spans), got.Rows[i].Spans, c.Name)
			}
		}
	}
}
