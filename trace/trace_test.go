package trace

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func drawTokens(t *rapid.T, name string) Tokens {
	out := Tokens{}
	for range rapid.IntRange(0, 4).Draw(t, name) {
		out = append(out, rapid.SliceOfN(rapid.Int32Range(0, 3), 0, 5).Draw(t, name))
	}
	return out
}

// Tokens behave as the one slice that they stand for.
func TestTokensAreASlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawTokens(t, "a"), drawTokens(t, "b")
		flat := a.Flat()
		require.Equal(t, len(flat), a.Len())
		require.Equal(t, append(slices.Clone(flat), b.Flat()...), a.Concat(b).Flat())
		from := rapid.IntRange(0, len(flat)).Draw(t, "from")
		to := rapid.IntRange(from, len(flat)).Draw(t, "to")
		require.Equal(t, flat[from:to], a.Slice(from, to).Flat())
		require.Equal(t, flat, a.Compact().Flat())
		require.Equal(t, flat, a.Flat(), "nothing of it changed a")
		require.Panics(t, func() { a.Slice(from, len(flat)+1) })
	})
	require.Nil(t, TokensOf(nil).Flat(), "not known stays not known")
	require.NotNil(t, TokensOf([]int32{}).Flat(), "empty stays empty")
}

// Ten thousand small steps must not become ten thousand pieces each.
func TestGrowingTokensStayInFewPieces(t *testing.T) {
	ids := Tokens{}
	for i := range int32(10_000) {
		ids = ids.Concat(TokensOf([]int32{i})).Concat(TokensOf([]int32{-i})).Compact()
	}
	require.Equal(t, 20_000, ids.Len())
	require.Less(t, len(ids), 20)
}

// What is appended behind a slice of Tokens must not reach what it was cut from.
func TestSlicesDoNotGrowIntoTheirSource(t *testing.T) {
	whole := []int32{1, 2, 3, 4}
	piece := TokensOf(whole).Slice(0, 2)
	_ = append(piece[0], 9)
	require.Equal(t, []int32{1, 2, 3, 4}, whole)
}

func TestCommonPrefix(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.SliceOfN(rapid.Int32(), 0, 3*prefixBlock).Draw(t, "a")
		b := slices.Clone(a)
		at := rapid.IntRange(0, len(a)).Draw(t, "at")
		if at < len(b) {
			b[at]++
		}
		require.Equal(t, at, CommonPrefix(a, b[:rapid.IntRange(at, len(b)).Draw(t, "end")]))
		require.Equal(t, len(a), CommonPrefix(a, a))
	})
}

func TestBytesAreLittleEndian(t *testing.T) {
	ids := []int32{0, 1, 151645, math.MaxInt32}
	var want []byte
	for _, id := range ids {
		want = binary.LittleEndian.AppendUint32(want, uint32(id))
	}
	require.Equal(t, want, Bytes(ids))
}

func TestUnknownLogprobsAreNotNaN(t *testing.T) {
	l := &Logprobs{}
	l.Append(-1)
	l.AppendUnknown()
	l.Append(float32(math.NaN()))
	require.Equal(t, 3, l.Len())
	for i, known := range []bool{true, false, true} {
		_, have := l.At(i)
		require.Equal(t, known, have, i)
	}
}

func num(v int64) *int64 { return &v }

// Each fault is named by its code and its place.
func TestValidateNamesFieldAndItem(t *testing.T) {
	for _, c := range []struct {
		alter func(*Trace)
		code  Code
		field string
	}{
		{func(t *Trace) { t.TraceID = "" }, CodeMissingField, "trace_id"},
		{func(t *Trace) { t.RolloutID = "" }, CodeMissingField, "rollout_id"},
		{func(t *Trace) { t.TraceID = strings.Repeat("x", 129) }, CodeInvalidField, "trace_id"},
		{func(t *Trace) { t.RolloutID = "a\x00b" }, CodeInvalidField, "rollout_id"},
		{func(t *Trace) { t.RolloutID = "a\nb" }, CodeInvalidField, "rollout_id"},
		{func(t *Trace) { t.RolloutID = "\xff" }, CodeInvalidField, "rollout_id"},
		{func(t *Trace) { t.Attributes.GroupID = "\u200b" }, CodeInvalidField, "group_id"},
		{func(t *Trace) { t.Seq = num(-1) }, CodeInvalidField, "seq"},
		{func(t *Trace) { t.PromptIDs = Tokens{{1, 2}, {3, -4}} }, CodeInvalidTokenID, "prompt_token_ids[3]"},
		{func(t *Trace) { t.ResponseIDs[1] = -1 }, CodeInvalidTokenID, "response_token_ids[1]"},
		{func(t *Trace) { t.ResponseLogprobs.Values = t.ResponseLogprobs.Values[:1] }, CodeLengthMismatch, "response_logprobs"},
		{func(t *Trace) { t.ResponseIDs = nil }, CodeLengthMismatch, "response_logprobs"},
		{func(t *Trace) { t.PromptPrefix = &PromptPrefix{TraceID: "x", Length: 1} }, CodeMissingField, "prompt_hash"},
		{func(t *Trace) {
			t.PromptPrefix, t.PromptHash = &PromptPrefix{TraceID: "x", Length: -1}, make([]byte, 32)
		}, CodeInvalidField, "prompt_prefix.length"},
		{func(t *Trace) { t.PromptHash = make([]byte, 31) }, CodeInvalidField, "prompt_hash"},
		{func(t *Trace) { t.PolicyVersionSpans = []VersionSpan{{Start: 1}} }, CodeInvalidField, "policy_version_spans[0].start"},
		{func(t *Trace) { t.PolicyVersionSpans = []VersionSpan{{}, {}} }, CodeInvalidField, "policy_version_spans[1].start"},
		{func(t *Trace) { t.PolicyVersionSpans = []VersionSpan{{}, {Start: 2}} }, CodeInvalidField, "policy_version_spans[1].start"},
		{func(t *Trace) { t.PolicyVersionSpans = []VersionSpan{{Version: -1}} }, CodeInvalidField, "policy_version_spans[0].version"},
		{func(t *Trace) { t.Status = "fine" }, CodeInvalidField, "status"},
		{func(t *Trace) { t.Kind = "other" }, CodeInvalidField, "kind"},
		{func(t *Trace) { t.FinishReason = "because" }, CodeInvalidField, "finish_reason"},
		{func(t *Trace) { t.RequestBody = make([]byte, 9) }, CodeBodyTooLarge, "request"},
		{func(t *Trace) { t.PromptIDs = Tokens{make([]int32, 4), make([]int32, 5)} }, CodeTooManyTokens, "prompt_token_ids"},
	} {
		v := &Trace{TraceID: "t", RolloutID: "r", PromptIDs: TokensOf([]int32{1}), ResponseIDs: []int32{2, 3},
			ResponseLogprobs: &Logprobs{Values: []float32{-1, -2}}}
		limits := Limits{MaxTokens: 10, MaxBodyBytes: 8}
		require.Nil(t, v.Validate(limits))
		require.Equal(t, StatusOK, v.Status)
		require.Equal(t, KindAgent, v.Kind)
		c.alter(v)
		err := v.Validate(limits)
		require.NotNil(t, err, c.field)
		require.Equal(t, c.code, err.Code, err)
		require.Equal(t, c.field, err.Field, err)
		require.True(t, strings.HasPrefix(err.Error(), c.field), err)
	}
}

func TestRewardsMustBeFinite(t *testing.T) {
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		err := (&Reward{RewardID: "w", RolloutID: "r", Value: v}).Validate()
		require.NotNil(t, err)
		require.Equal(t, "value", err.Field)
	}
	w := &Reward{RewardID: "w", RolloutID: "r"}
	require.Nil(t, w.Validate())
	require.Equal(t, DefaultReward, w.Name)
}
