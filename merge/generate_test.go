package merge

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"icecore/trace"
)

// rollouts generates what harnesses do and what they should not: over few ids, so
// that sequences meet by chance as well.
func rollouts() *rapid.Generator[[]Call] {
	return rapid.Custom(func(t *rapid.T) []Call {
		n := rapid.IntRange(0, 14).Draw(t, "calls")
		names := rapid.Permutation(numbers(n)).Draw(t, "names")
		// Groups need two calls that agree: a rollout has many, or none.
		choosing := rapid.Bool().Draw(t, "choosing")
		var calls []Call
		for i := range n {
			c := drawCall(t, calls)
			if choosing {
				c.ChoiceGroup = rapid.SampledFrom([]string{"g", "g", "h", ""}).Draw(t, "group")
				c.ChoiceIndex = rapid.SampledFrom([]*int64{ptr(int64(0)), nil, ptr(int64(1))}).Draw(t, "index")
			}
			c.TraceID = fmt.Sprintf("t%02d", names[i])
			switch rare(t, "seq") {
			case 0: // none
			case 1: // perhaps that of another call
				c.Seq = ptr(int64(rapid.IntRange(0, n).Draw(t, "wild seq")))
			default:
				c.Seq = ptr(int64(i))
			}
			calls = append(calls, c)
		}
		return rapid.Permutation(calls).Draw(t, "arrival")
	})
}

func numbers(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// rare gives 0, 1 or 2 now and then. (rapid's own integers are mostly small.)
func rare(t *rapid.T, label string) int {
	return rapid.SampledFrom([]int{9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 0, 1, 2}).Draw(t, label)
}

func drawIDs(t *rapid.T, most int) []int32 {
	return rapid.SliceOfN(rapid.Int32Range(1, 4), 0, most).Draw(t, "ids")
}

func drawCall(t *rapid.T, before []Call) Call {
	var c Call
	if len(before) == 0 {
		c.Prompt, c.Response = seqTokens(1), seqTokens(drawIDs(t, 3)...)
	} else {
		other := rapid.SampledFrom(before).Draw(t, "other")
		p, r := drawHistory(t, other)
		c.Prompt, c.Response = seqTokens(p...), seqTokens(r...)
	}
	switch rare(t, "unknown") {
	case 0:
		c.Prompt = nil
	case 1:
		c.Response = nil
	case 2:
		c.IDsIncomplete = true
	}
	c.Status = rapid.SampledFrom([]trace.Status{
		"", "", trace.StatusOK, trace.StatusAborted, trace.StatusClientGone, trace.StatusUpstreamError,
	}).Draw(t, "status")
	c.FinishReason = rapid.SampledFrom([]string{"", "stop", "tool_calls", "length"}).Draw(t, "finish")
	return c
}

// drawHistory gives prompt and response of a call that comes after other.
func drawHistory(t *rapid.T, other Call) (p, r []int32) {
	op, or := other.Prompt.Flat(), other.Response.Flat()
	s := slices.Concat(op, or)
	r = drawIDs(t, 3)
	switch rapid.SampledFrom([]string{
		"goes on", "goes on", "goes on", "resumes", "retry", "retry", "stub", "longer", "again", "other split",
		"edited", "rewound", "compacted", "new", "bare",
	}).Draw(t, "kind") {
	case "goes on":
		return append(s, drawIDs(t, 3)...), r
	case "resumes":
		return s, r
	case "retry":
		return op, r
	case "stub":
		return op, or[:rapid.IntRange(0, len(or)).Draw(t, "cut")]
	case "longer":
		return op, append(or, r...)
	case "again":
		return op, or
	case "other split":
		k := rapid.IntRange(0, len(s)).Draw(t, "split")
		return s[:k], s[k:]
	case "edited":
		if len(s) > 0 {
			s[rapid.IntRange(0, len(s)-1).Draw(t, "place")] = 4
		}
		return append(s, drawIDs(t, 2)...), r
	case "rewound":
		return s[:rapid.IntRange(0, len(s)).Draw(t, "back")], r
	case "compacted":
		return append(s[:min(1, len(s))], drawIDs(t, 3)...), r
	case "new":
		return drawIDs(t, 3), r
	}
	return nil, r
}

func policies() *rapid.Generator[Policy] {
	return rapid.SampledFrom([]Policy{
		{}, {Name: StrictTree}, {Name: PerRequest}, {Name: PolarCompat}, endOfTurn(2), endOfTurn(3),
	})
}
