package wire

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"icecore/trace"
)

func TestEncodeRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := anyTrace(t)
		text := EncodeTraceJSON(nil, want)
		items, err := TracesJSON(text, Limits{})
		require.NoError(t, err, "%s", text)
		require.Nil(t, items[0].Err, "%s", text)
		equalTraces(t, want, items[0].Value)
		require.Equal(t, string(text), string(EncodeTraceJSON(nil, items[0].Value)))
	})
}

// TestEncodeBrokenBody: what is not JSON must not break the JSON around it.
func TestEncodeBrokenBody(t *testing.T) {
	v := &trace.Trace{TraceID: "t", RolloutID: "r", RequestBody: []byte("data: {\"a\":1}\n\n")}
	item := one(t, string(EncodeTraceJSON(nil, v)))
	require.Nil(t, item.Err)
	require.Equal(t, `"data: {\"a\":1}\n\n"`, string(item.Value.RequestBody))
}

var (
	idGen = rapid.StringMatching(`[a-zA-Z0-9/_. é-]{1,20}`)
	// Text without U+FFFD, which cannot be told from a repair.
	textGen = rapid.Map(rapid.String(), func(s string) string { return strings.ReplaceAll(strings.ToValidUTF8(s, ""), "\uFFFD", "") })
	timeGen = rapid.Int64Range(firstMicros, lastMicros)
)

func optional[T any](t *rapid.T, g *rapid.Generator[T], name string) *T {
	if !rapid.Bool().Draw(t, "has "+name) {
		return nil
	}
	v := g.Draw(t, name)
	return &v
}

func optionalString(t *rapid.T, g *rapid.Generator[string], name string) string {
	if v := optional(t, g, name); v != nil {
		return *v
	}
	return ""
}

func anyObject(t *rapid.T, prefix, name string) []byte {
	if !rapid.Bool().Draw(t, "has "+name) {
		return nil
	}
	keys := rapid.SliceOfNDistinct(textGen, 1, 4, rapid.ID[string]).Draw(t, name)
	var members []member
	for _, k := range keys {
		members = append(members, member{prefix + k, rapid.SampledFrom([][]byte{[]byte("1.50"), []byte("18446744073709551615"),
			[]byte(`"é\n"`), []byte("null"), []byte(`[{"a":[]}]`)}).Draw(t, "value")})
	}
	out, _ := joinMembers(members)
	return out
}

func anyBody(t *rapid.T, name string) []byte {
	body := rapid.SampledFrom([]string{"", `{ "a" : [1 , 2] }`, `"\ud800"`, "[1,\n2]", "false", "-0.0e1"}).Draw(t, name)
	if body == "" {
		return nil
	}
	return []byte(body)
}

// anyTrace is a valid trace as decoding gives it.
func anyTrace(t *rapid.T) *trace.Trace {
	natural := rapid.Int64Min(0)
	v := &trace.Trace{
		TraceID: idGen.Draw(t, "trace_id"), RolloutID: idGen.Draw(t, "rollout_id"),
		Seq: optional(t, natural, "seq"), PolicyVersion: optional(t, natural, "policy_version"),
		IDsIncomplete: rapid.Bool().Draw(t, "incomplete"), TextRepaired: rapid.Bool().Draw(t, "repaired"),
		Status: rapid.SampledFrom(trace.Statuses).Draw(t, "status"), Kind: rapid.SampledFrom(trace.Kinds).Draw(t, "kind"),
		FinishReason: rapid.SampledFrom(append([]string{""}, trace.FinishReasons...)).Draw(t, "reason"),
		ChoiceGroup:  optionalString(t, idGen, "choice_group"), ChoiceIndex: optional(t, natural, "choice_index"),
		Attributes: trace.Attributes{TaskID: optionalString(t, idGen, "task"), GroupID: optionalString(t, idGen, "group"),
			SampleIndex: optional(t, natural, "sample"), Harness: optionalString(t, textGen, "harness"),
			HarnessVersion: optionalString(t, textGen, "version"), Model: optionalString(t, textGen, "model")},
		Tokenizer: optionalString(t, textGen, "tokenizer"), API: optionalString(t, textGen, "api"),
		ParentRolloutID:  optionalString(t, idGen, "parent"),
		ChatTemplateHash: optionalString(t, textGen, "template"), ToolsHash: optionalString(t, textGen, "tools"),
		Sampling: anyObject(t, "", "sampling"), Usage: anyObject(t, "", "usage"), Metadata: anyObject(t, "", "metadata"),
		Extra: anyObject(t, "x_", "extra"), Error: optionalString(t, textGen, "error"),
		StartedAt: optional(t, timeGen, "started"), FirstTokenAt: optional(t, timeGen, "first"), FinishedAt: optional(t, timeGen, "finished"),
		RequestBody: anyBody(t, "request"), ResponseBody: anyBody(t, "response"),
	}
	ids := rapid.SliceOf(rapid.Int32Min(0))
	if rapid.Bool().Draw(t, "has prompt") {
		v.PromptIDs = trace.TokensOf(append([]int32{}, ids.Draw(t, "prompt")...))
	}
	if rapid.Bool().Draw(t, "has response") {
		v.ResponseIDs = append([]int32{}, ids.Draw(t, "response")...)
		if rapid.Bool().Draw(t, "has logprobs") {
			v.ResponseLogprobs = anyLogprobs(t, len(v.ResponseIDs))
		}
	}
	if rapid.Bool().Draw(t, "has hash") {
		v.PromptHash = rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "hash")
		if rapid.Bool().Draw(t, "has prefix") {
			v.PromptPrefix = &trace.PromptPrefix{TraceID: idGen.Draw(t, "prefix"), Length: rapid.Int64Range(0, math.MaxInt32).Draw(t, "length")}
		}
	}
	for i := range min(len(v.ResponseIDs), rapid.IntRange(0, 3).Draw(t, "spans")) {
		v.PolicyVersionSpans = append(v.PolicyVersionSpans, trace.VersionSpan{Start: int64(i), Version: natural.Draw(t, "v")})
	}
	return v
}

func anyLogprobs(t *rapid.T, n int) *trace.Logprobs {
	l := &trace.Logprobs{Values: []float32{}}
	for range n {
		switch rapid.IntRange(0, 5).Draw(t, "logprob kind") {
		case 0:
			l.AppendUnknown()
		case 1:
			l.Append(nan32())
		case 2:
			l.Append(float32(math.Inf(-1)))
		default:
			bits := rapid.Uint32().Draw(t, "bits")
			if f := math.Float32frombits(bits); f == f {
				l.Append(f)
			} else {
				l.Append(nan32())
			}
		}
	}
	return l
}
