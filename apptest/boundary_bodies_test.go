package apptest

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// engineShapes write a call's answer as engines do.
var engineShapes = map[string]func(c call) json.RawMessage{
	"vllm chat": func(c call) json.RawMessage {
		return jsonf(`{"prompt_token_ids":%s,"choices":[{"index":0,"token_ids":%s,"logprobs":{"content":%s}}],%s}`,
			idText(c.ids("prompt_token_ids")), idText(c.ids("response_token_ids")), content(c, 0, 1<<30), usage(c))
	},
	"vllm stream as SSE": func(c call) json.RawMessage {
		text, err := json.Marshal("data: " + strings.Join(vllmChunks(c), "\n\ndata: ") + "\n\ndata: [DONE]\n\n")
		if err != nil {
			panic(err)
		}
		return text
	},
	"vllm stream as chunks": func(c call) json.RawMessage { return jsonf("[%s]", strings.Join(vllmChunks(c), ",")) },
	"sglang generate": func(c call) json.RawMessage {
		n := len(c.ids("response_token_ids"))
		return jsonf(`{"output_ids":%s,"meta_info":{"prompt_tokens":%d,"completion_tokens":%d,"output_token_logprobs":%s}}`,
			idText(c.ids("response_token_ids")), len(c.ids("prompt_token_ids")), n,
			entriesOf(c, 0, n, func(id int32, p string) string { return fmt.Sprintf(`[%s,%d,null]`, p, id) }))
	},
	"openai chat": func(c call) json.RawMessage {
		return jsonf(`{"choices":[{"index":0,"logprobs":{"content":%s}}],%s}`,
			entriesOf(c, 0, 1<<30, func(_ int32, p string) string { return fmt.Sprintf(`{"token":"x","logprob":%s}`, p) }), usage(c))
	},
}

func jsonf(format string, args ...any) json.RawMessage { return fmt.Appendf(nil, format, args...) }

func idText(list []int32) string { return string(encodeValue(list)) }

func usage(c call) string {
	return fmt.Sprintf(`"usage":{"prompt_tokens":%d,"completion_tokens":%d}`, len(c.ids("prompt_token_ids")), len(c.ids("response_token_ids")))
}

// entriesOf writes one entry per sampled token of [from, to).
func entriesOf(c call, from, to int, form func(id int32, logprob string) string) string {
	list := c.ids("response_token_ids")
	l, _ := c["response_logprobs"].(logprobs)
	var out []string
	for i := from; i < min(to, len(list)); i++ {
		text := "null"
		if l[i] != nil {
			text = strconv.FormatFloat(float64(*l[i]), 'g', -1, 64) // as Python writes a float32
		}
		out = append(out, form(list[i], text))
	}
	return "[" + strings.Join(out, ",") + "]"
}

func content(c call, from, to int) string {
	return entriesOf(c, from, to, func(id int32, p string) string { return fmt.Sprintf(`{"token":"token_id:%d","logprob":%s}`, id, p) })
}

func vllmChunks(c call) []string {
	out := []string{fmt.Sprintf(`{"choices":[{"index":0,"delta":{"role":"assistant"}}],"prompt_token_ids":%s}`, idText(c.ids("prompt_token_ids")))}
	list := c.ids("response_token_ids")
	for from := 0; from < len(list); from += 3 {
		to := min(from+3, len(list))
		out = append(out, fmt.Sprintf(`{"choices":[{"index":0,"token_ids":%s,"logprobs":{"content":%s}}]}`, idText(list[from:to]), content(c, from, to)))
	}
	return append(out, `{"choices":[],`+usage(c)+`}`)
}

// sampleCalls are captured calls with a response of ten ids and more.
func sampleCalls(t *testing.T, n int) (out []call) {
	t.Helper()
	c, err := captured()
	require.NoError(t, err)
	for i := 0; len(out) < n; i += 17 {
		if one := c.calls[i%len(c.calls)]; len(one.ids("response_token_ids")) >= 10 {
			out = append(out, one.with("rollout_id", "body", "trace_id", "body-"+itoa(i), "seq", int64(i)))
		}
	}
	return out
}

// A body that tells what the trace tells agrees, whichever engine wrote it.
func TestBoundaryBodiesAgree(t *testing.T) {
	t.Parallel()
	s := start(t)
	for name, write := range engineShapes {
		for _, c := range sampleCalls(t, 4) {
			id := c.text("trace_id") + name
			c = c.with("trace_id", id, "response", write(c), "request", jsonf(`{"prompt":%s}`, idText(c.ids("prompt_token_ids"))))
			s.traces(c).all("stored", 1)
			b := s.inspect(id, "tokens=full")
			require.True(t, b.OK, "%s: %+v", name, b.bad())
			body := b.Stations.Body
			require.True(t, body.Present)
			require.Equal(t, strings.Contains(name, "stream"), body.Streamed)
			equal(t, c["response_logprobs"].(logprobs).bits(), body.Logprobs.bits())
			require.True(t, b.check(t, "body.prompt_ids").OK)
			require.True(t, b.check(t, "body.usage_response").OK)
			if name != "openai chat" {
				equal(t, c.ids("response_token_ids"), body.IDs)
			}
		}
	}
}

// A body that tells otherwise is found, and where.
func TestBoundaryBodiesDiffer(t *testing.T) {
	t.Parallel()
	s := start(t)
	rng := rand.New(rand.NewPCG(5, 5))
	n := 0
	// put stores c with the body that an engine wrote of what it really sampled.
	put := func(c, truth call, shape string) (call, inspected) {
		n++
		c = c.with("trace_id", "differs-"+itoa(n), "response", engineShapes[shape](truth))
		s.traces(c).all("stored", 1)
		return c, s.inspect(c.text("trace_id"), "window=2")
	}
	for _, shape := range []string{"vllm chat", "vllm stream as SSE", "sglang generate"} {
		for _, c := range sampleCalls(t, 3) {
			list, l := c.ids("response_token_ids"), c["response_logprobs"].(logprobs)
			at := rng.IntN(len(list))

			other := slices.Clone(list)
			other[at]++
			_, b := put(c, c.with("response_token_ids", other), shape)
			require.Equal(t, []string{"body.ids ids_differ", "body.ids ids_differ"}, b.bad())
			got := b.check(t, "body.ids")
			require.Equal(t, []any{at, "response", 1, []int{at}}, []any{*got.Position, got.Sequence, got.Differing, got.Positions})
			require.Equal(t, fmt.Sprintln(other[at], list[at]), fmt.Sprintln(got.Expected, got.Got))
			require.Equal(t, max(0, at-2), got.Window.From)
			require.Equal(t, fmt.Sprint(other[max(0, at-2):min(len(list), at+3)]), fmt.Sprint(got.Window.Expected))
			require.Equal(t, list[max(0, at-2):min(len(list), at+3)], b.Stations.Trace.IDs)

			nudged := slices.Clone(l)
			nudged[at] = ptr(math.Nextafter32(*l[at], 0))
			_, b = put(c.with("response_logprobs", nudged), c, shape)
			require.Equal(t, []string{"body.logprobs logprob_differs"}, b.bad())
			require.Equal(t, at, *b.check(t, "body.logprobs").Position)

			moved := append(slices.Clone(l[1:]), l[0])
			_, b = put(c.with("response_logprobs", moved), c, shape)
			require.Equal(t, []string{"body.logprobs logprob_differs"}, b.bad())
			got = b.check(t, "body.logprobs")
			first := slices.IndexFunc(l[1:], func(p *float32) bool { return *p != *l[0] })
			require.LessOrEqual(t, *got.Position, first)
			require.Contains(t, got.Detail, "taken 1 later")

			unknown := slices.Clone(l)
			unknown[at] = nil
			_, b = put(c.with("response_logprobs", unknown), c, shape)
			require.Equal(t, []string{"body.logprobs missing_in_trace"}, b.bad())
			_, b = put(c, c.with("response_logprobs", unknown), shape)
			require.Equal(t, []string{"body.logprobs missing_in_body"}, b.bad())
			require.Equal(t, at, *b.check(t, "body.logprobs").Position)

			for _, none := range []float32{-9999, 2.5} {
				odd := slices.Clone(l)
				odd[at] = ptr(none)
				_, b = put(c.with("response_logprobs", unknown), c.with("response_logprobs", odd), shape)
				require.True(t, b.OK, b.bad())
			}

			_, b = put(c.with("response_token_ids", list[:at], "response_logprobs", l[:at]), c, shape)
			require.Contains(t, b.bad(), "body.ids length_differs")
			require.Contains(t, b.bad(), "body.usage_response usage_disagrees")
			require.Equal(t, at, *b.check(t, "body.ids").Position)
			require.Equal(t, "end", b.check(t, "body.ids").Got)

			if shape == "sglang generate" {
				continue // it carries no prompt here
			}
			prompt := slices.Clone(c.ids("prompt_token_ids"))
			place := rng.IntN(len(prompt))
			prompt[place]++
			_, b = put(c, c.with("prompt_token_ids", prompt), shape)
			require.Equal(t, []string{"body.prompt_ids ids_differ"}, b.bad())
			require.Equal(t, []any{place, "prompt"}, []any{*b.check(t, "body.prompt_ids").Position, b.check(t, "body.prompt_ids").Sequence})
		}
	}
}

// The engine's finish reason is compared in its own words; a trace without any body
// says that its capture was not checked.
func TestBoundaryFinishReason(t *testing.T) {
	t.Parallel()
	s := start(t)
	for id, c := range map[string]struct {
		body, says string
		findings   []string
		checked    bool
	}{
		"same":     {`{"choices":[{"finish_reason":"length","token_ids":[5]}]}`, "length", nil, true},
		"its word": {`{"type":"message","content":[],"stop_reason":"tool_use"}`, "tool_calls", nil, true},
		"differs":  {`{"choices":[{"finish_reason":"length","token_ids":[5]}]}`, "stop", []string{"body.finish_reason finish_differs"}, true},
		"untold":   {`{"choices":[{"finish_reason":null,"token_ids":[5]}]}`, "stop", nil, false},
		"odd word": {`{"choices":[{"finish_reason":"repetition","token_ids":[5]}]}`, "stop", nil, false},
		"unsaid":   {`{"choices":[{"finish_reason":"length","token_ids":[5]}]}`, "", nil, false},
	} {
		one := plain("finish", id, 1, ids(1, 2), ids(5)).with("response", json.RawMessage(c.body))
		delete(one, "response_logprobs") // these bodies have none
		if c.says != "" {
			one = one.with("finish_reason", c.says)
		}
		s.traces(one).all("stored", 1)
		b := s.inspect(id, "")
		require.ElementsMatch(t, c.findings, b.bad(), id)
		checked := slices.ContainsFunc(b.Checks, func(k inspectedCheck) bool { return k.Name == "body.finish_reason" })
		require.Equal(t, c.checked, checked, id)
	}
	s.traces(plain("bare", "bare", 1, ids(1, 2), ids(5))).all("stored", 1)
	for id, want := range map[string]string{"same": " checks agree\n", "bare": " checks agree; the capture itself could not be checked: no body was kept\n"} {
		out, log, err := command(t, nil, "trace", "--server", s.url, id)
		require.NoError(t, err, log)
		require.True(t, strings.HasSuffix(out, want), out)
		require.Equal(t, id == "bare", strings.Contains(log, "GET /v1/traces/bare?include=bodies"), log)
	}
}

// Ids that an engine kept back, and log-probs that came from elsewhere.
func TestBoundaryBodiesLack(t *testing.T) {
	t.Parallel()
	s := start(t)
	c := plain("lack", "", 1, ids(1, 2), ids(5, 6, 7, 8))
	for id, want := range map[string]struct {
		call     call
		body     string
		findings []string
	}{
		"log-probs from elsewhere": {c, `{"choices":[{"token_ids":[5,6,7,8]}]}`, []string{"body.logprobs missing_in_body"}},
		"tail only": {c, `{"choices":[{"token_ids":[7,8]}],"usage":{"completion_tokens":4}}`,
			[]string{"body.ids ids_differ", "body.logprobs missing_in_body"}},
		"one log-prob too many": {c, `{"choices":[{"token_ids":[5,6,7,8],"logprobs":{"token_logprobs":[-0.125,-0.25,-0.375,-0.5,-1]}}]}`,
			[]string{"body.logprobs length_differs"}},
		"and rightly dropped": {c.with("response_logprobs", nil), `{"choices":[{"token_ids":[5,6,7,8],"logprobs":{"token_logprobs":[-0.125,-0.25,-0.375,-0.5,-1]}}]}`, nil},
		"wrongly dropped": {c.with("response_logprobs", nil), `{"choices":[{"token_ids":[5,6,7,8],"logprobs":{"token_logprobs":[-0.125,-0.25,-0.375,-0.5]}}]}`,
			[]string{"body.logprobs missing_in_trace"}},
		"ids not taken":   {plain("lack", "", 1, nil, nil), `{"choices":[{"token_ids":[5]}]}`, []string{"body.ids missing_in_trace"}},
		"told incomplete": {c.with("ids_incomplete", true), `{"choices":[{"token_ids":[5,6,7,8],"logprobs":{"token_logprobs":[-0.125,-0.25,-0.375,-0.5]}}],"usage":{"completion_tokens":57}}`, nil},
		"own usage":       {c.with("usage", object{"prompt_tokens": 3, "completion_tokens": 4}), `{}`, []string{"trace.usage_prompt usage_disagrees"}},
		"another choice": {c.with("choice_group", "g", "choice_index", int64(1)), `{"choices":[{"index":0,"token_ids":[1]},{"index":1,"token_ids":[5,6,7,9]}],"usage":{"completion_tokens":5}}`,
			[]string{"body.ids ids_differ", "body.logprobs missing_in_body"}},
		"not an engine's": {c, `"<html>"`, nil},
	} {
		s.traces(want.call.with("trace_id", id, "response", json.RawMessage(want.body))).all("stored", 1)
		b := s.inspect(id, "")
		require.Equal(t, want.findings, b.bad(), id)
	}
	s.traces(c.with("trace_id", "half told", "response", json.RawMessage(`{"choices":[{"logprobs":{"content":[{"token":"token_id:5","logprob":-0.125},
		{"token":"x","logprob":-0.25},{"token":"token_id:7","logprob":-0.375},{"token":"token_id:8","logprob":-0.5}]}}]}`))).all("stored", 1)
	require.True(t, ptr(s.inspect("half told", "")).OK)
	require.Contains(t, string(s.get("/v1/traces/half%20told/boundary").body), `"ids":[5,null,7,8]`)
	tail := s.inspect("tail only", "")
	require.Contains(t, tail.check(t, "body.ids").Detail, "only the last 2")
}
