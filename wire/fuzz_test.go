package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/stretchr/testify/require"

	"icecore/trace"
)

var fuzzLimits = Limits{Limits: trace.Limits{MaxTokens: 64, MaxBodyBytes: 256, MaxJSONDepth: 8}, MaxItems: 8, MaxBytes: 1 << 20}

func seedJSON(f *testing.F) {
	f.Add([]byte(with(`"prompt_token_ids":[1,2],"response_token_ids":[3],"response_logprobs":[NaN]`)))
	f.Add([]byte(`{"traces":[` + with(`"metadata":{"b":1,"a":"\ud83d\ude00"},"request":[[]],"foo":1`) + `,7]}`))
	f.Add([]byte(with(`"prompt_prefix":{"trace_id":"a","length":1},"policy_version_spans":[{"start":0,"version":1}],"started_at":"2026-01-01T00:00:00Z"`)))
	f.Add([]byte(with(`"response_logprobs":[null,-0.5,"-Infinity"],"error":{"x":[]},"response_token_ids":[1,2,3]`) + "\n\n" + with("")))
	for _, d := range documents {
		f.Add([]byte(with(`"request":` + d)))
	}
}

// checkItems: an item is refused or valid, and a valid one survives encoding.
func checkItems(t *testing.T, items []Item[trace.Trace]) {
	for _, item := range items {
		require.Equal(t, item.Err == nil, item.Value != nil)
		if item.Value == nil {
			continue
		}
		v := *item.Value
		require.Nil(t, v.Validate(fuzzLimits.Limits))
		for _, b := range [][]byte{v.Sampling, v.Usage, v.Metadata, v.Extra, v.RequestBody, v.ResponseBody} {
			require.True(t, b == nil || json.Valid(b), "%q", b)
		}
		text := EncodeTraceJSON(nil, item.Value)
		again, err := TracesJSON(text, Limits{})
		require.NoError(t, err, "%s", text)
		require.Nil(t, again[0].Err, "%s", text)
		equalTraces(t, item.Value, again[0].Value)
	}
}

func FuzzTracesJSON(f *testing.F) {
	seedJSON(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		items, err := TracesJSON(bytes.Clone(body), fuzzLimits)
		checkItems(t, items)
		var e *EnvelopeError
		if err != nil {
			require.True(t, errors.As(err, &e))
			require.True(t, e.Offset >= 0 && e.Offset <= int64(len(body)))
		}
		words := bytes.Contains(body, []byte("NaN")) || bytes.Contains(body, []byte("Infinity"))
		start := strings.TrimLeft(string(body), " \t\r\n")
		if !words && err == nil {
			require.True(t, json.Valid(body))
		}
		if json.Valid(body) && strings.HasPrefix(start, "[") && err != nil {
			require.Equal(t, CodeTooManyItems, e.Code, "%v", err)
		}
	})
}

func FuzzTracesNDJSON(f *testing.F) {
	seedJSON(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		items, err := TracesNDJSON(bytes.Clone(body), fuzzLimits)
		if err != nil {
			requireEnvelope(t, err, CodeTooManyItems, 413)
			return
		}
		checkItems(t, items)
		lines := 0
		for line := range bytes.Lines(body) {
			if len(bytes.Trim(line, " \t\r\n")) > 0 {
				lines++
			}
		}
		require.Len(t, items, lines)
	})
}

func FuzzTracesArrow(f *testing.F) {
	for i := range 6 {
		l := layout{text: i, body: i, whole: i, list: i, elem: i, float: i, stamp: i, hash: i}
		batch := l.batch([]*trace.Trace{{TraceID: "t", RolloutID: "r", PromptIDs: trace.TokensOf([]int32{1, 2}), ResponseIDs: []int32{3},
			ResponseLogprobs: &trace.Logprobs{Values: []float32{1}}, Metadata: []byte(`{"a":1}`), RequestBody: []byte("[]")}})
		f.Add(stream(append(batches(batch), batch), codecs[i%len(codecs)]...))
	}
	f.Add(stream(batches(records(f, `[{,"n":1}]`, fieldsOf("n")...)), ipc.WithZstd()))
	f.Fuzz(func(t *testing.T, body []byte) {
		items, err := TracesArrow(bytes.Clone(body), fuzzLimits)
		if err != nil {
			var e *EnvelopeError
			require.True(t, errors.As(err, &e))
			require.Nil(t, items)
			return
		}
		checkItems(t, items)
	})
}

func FuzzInflate(f *testing.F) {
	f.Add([]byte("plain"), "")
	f.Add(gzipped("one", "two"), "gzip")
	f.Add(zstded(nil, "one", "two"), "zstd")
	f.Add(wideWindow(), "zstd")
	f.Fuzz(func(t *testing.T, body []byte, coding string) {
		const limit = 1 << 16
		out, err := Inflate(bytes.NewReader(body), coding, limit)
		if err != nil {
			var e *EnvelopeError
			require.True(t, errors.As(err, &e), "%v", err)
			return
		}
		require.LessOrEqual(t, len(out), limit)
	})
}

func FuzzRewards(f *testing.F) {
	f.Add([]byte(`[{"reward_id":"w","rollout_id":"r","value":-1.5e-1,"revision":2,"at":"2026-01-01T00:00:00Z","metadata":{}}]`))
	f.Add([]byte(`{"rewards":[{"reward_id":"w","value":NaN},{"value":-Infinity}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		items, _ := RewardsJSON(bytes.Clone(body), fuzzLimits)
		for _, item := range items {
			require.Equal(t, item.Err == nil, item.Value != nil)
			if item.Value != nil {
				require.Nil(t, item.Value.Validate())
			}
		}
		_, _ = IntentsJSON(body, fuzzLimits)
		_, _ = RolloutPatchJSON(body, fuzzLimits)
		_, _ = FinishJSON(body, fuzzLimits)
	})
}

func FuzzLearnerLogprobs(f *testing.F) {
	f.Add([]byte(`{"logprobs":[{"trajectory_id":"t","policy_version":1,"logprobs":[null,-0.5,NaN]},7]}`), false)
	f.Add([]byte(`[{"logprobs":[],"trajectory_id":"t","policy_version":1,"x":{}}]`), false)
	rows := []trace.LearnerLogprobs{{TrajectoryID: "t", PolicyVersion: 1, Logprobs: &trace.Logprobs{Values: []float32{0, -1}, Known: []bool{false, true}}}}
	for i := range 4 {
		l := layout{list: i}
		f.Add(stream(batches(learnerBatch(pick(textTypes, i), pick(wholeTypes, i), l.listOf(pick(floatTypes, i)), rows)), codecs[i%len(codecs)]...), true)
	}
	f.Fuzz(func(t *testing.T, body []byte, arrow bool) {
		decode := LearnerLogprobsJSON
		if arrow {
			decode = LearnerLogprobsArrow
		}
		items, err := decode(bytes.Clone(body), fuzzLimits)
		if err != nil {
			var e *EnvelopeError
			require.True(t, errors.As(err, &e))
			require.Nil(t, items)
			return
		}
		require.LessOrEqual(t, len(items), fuzzLimits.MaxItems)
		for _, item := range items {
			require.Equal(t, item.Err == nil, item.Value != nil)
			if item.Value == nil {
				continue
			}
			require.Nil(t, item.Value.Validate())
			require.LessOrEqual(t, item.Value.Logprobs.Len(), fuzzLimits.MaxTokens)
			for i := range item.Value.Logprobs.Values {
				v, known := item.Value.Logprobs.At(i)
				require.False(t, known && v != v, "NaN is not known")
			}
		}
	})
}
