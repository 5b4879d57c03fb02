package main

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/enginetest"
)

func TestCompareFindsEveryDifference(t *testing.T) {
	t.Parallel()
	p, q := float32(-0.25), float32(-0.5)
	entry := enginetest.Entry{
		RequestID: "t", Ended: "done", PromptIDs: []int32{1, 2},
		Choices: []enginetest.Sampled{{IDs: []int32{3, 4}, Logprobs: []float32{p, q}, Sent: 2}},
	}
	same := func() *stored {
		return &stored{TraceID: "t", Status: "ok", Prompt: []int32{1, 2}, IDs: []int32{3, 4}, Logprobs: []*float32{&p, &q}}
	}
	faults := func(s *stored, e enginetest.Entry) []string {
		res := &result{}
		compare(res, s, e)
		return res.faults
	}
	require.Empty(t, faults(same(), entry))
	for name, spoil := range map[string]func(*stored){
		"prompt":          func(s *stored) { s.Prompt = []int32{1, 9} },
		"prompt missing":  func(s *stored) { s.Prompt = nil },
		"id":              func(s *stored) { s.IDs[1] = 9 },
		"id missing":      func(s *stored) { s.IDs, s.Logprobs = s.IDs[:1], s.Logprobs[:1] },
		"id more":         func(s *stored) { s.IDs, s.Logprobs = append(s.IDs, 5), append(s.Logprobs, &p) },
		"logprob":         func(s *stored) { s.Logprobs[0] = &q },
		"logprob null":    func(s *stored) { s.Logprobs[1] = nil },
		"logprobs absent": func(s *stored) { s.Logprobs = nil },
		"status":          func(s *stored) { s.Status = "upstream_error" },
		"incomplete":      func(s *stored) { s.Incomplete = true },
		"flag":            func(s *stored) { s.Metadata.Gateway.Flags = []string{"usage_missing"} },
	} {
		s := same()
		spoil(s)
		require.NotEmpty(t, faults(s, entry), name)
	}

	// Of an answer that was cut, what came is kept, and it is not ok.
	cut := entry
	cut.Ended = "cut_broken"
	s := same()
	s.Status, s.IDs, s.Logprobs = "upstream_error", slices.Clone(s.IDs[:1]), s.Logprobs[:1]
	require.Empty(t, faults(s, cut))
	s.Status = "ok"
	require.NotEmpty(t, faults(s, cut))
	refused := enginetest.Entry{RequestID: "t", Ended: "refused"}
	require.NotEmpty(t, faults(same(), refused))
}
