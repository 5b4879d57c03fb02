package engine_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/ingest/gateway/engine"
	"icecore/ingest/gateway/turn"
)

// Finish reasons and calls that contradict each other are told, and no harness is sent
// to run a call that there is none of.
func TestCallsThatAreOdd(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		message, finish string
		ends, flag      string
		calls           []turn.Call
	}{
		"none":          {`"content":"x"`, "tool_calls", "stop", "calls_missing", nil},
		"an empty list": {`"content":"x","tool_calls":[]`, "tool_calls", "stop", "calls_missing", nil},
		"one of nothing": {`"content":"x","tool_calls":[{"index":0}]`, "tool_calls", "stop", "calls_missing",
			[]turn.Call{{}}},
		"one":                   {`"content":null,"tool_calls":[{"id":"c","function":{"name":"f","arguments":"{}"}}]`, "tool_calls", "tool_calls", "", []turn.Call{{ID: "c", Name: "f", Arguments: "{}"}}},
		"no name":               {`"tool_calls":[{"id":"c","function":{"name":"","arguments":"{}"}}]`, "tool_calls", "tool_calls", "call_unnamed", []turn.Call{{ID: "c", Arguments: "{}"}}},
		"as it was called once": {`"content":null,"function_call":{"name":"f","arguments":"{\"a\":1}"}`, "function_call", "tool_calls", "", []turn.Call{{Name: "f", Arguments: `{"a":1}`}}},
		"both":                  {`"function_call":{"name":"f","arguments":"{}"},"tool_calls":[{"id":"c","function":{"name":"f","arguments":"{}"}}]`, "tool_calls", "tool_calls", "", []turn.Call{{ID: "c", Name: "f", Arguments: "{}"}}},
		"null":                  {`"content":"x","function_call":null`, "stop", "stop", "", nil},
		"an empty one of then":  {`"content":"x","function_call":{}`, "stop", "stop", "", nil},
		"empty texts":           {`"content":"x","function_call":{"name":"","arguments":""}`, "stop", "stop", "", nil},
		"nulls":                 {`"content":"x","function_call":{"name":null,"arguments":null}`, "stop", "stop", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := whole(t, `"message":{`+row.message+`},"finish_reason":"`+row.finish+`"`, "", 1)
			require.Equal(t, []turn.End{{Finish: row.ends}}, r.ends)
			require.Equal(t, row.calls, r.gather.Message(0).Calls)
			s := r.sampled(0)
			if row.flag != "" {
				require.Contains(t, s.Flags, row.flag)
			} else {
				require.NotContains(t, s.Flags, "calls_missing")
				require.NotContains(t, s.Flags, "call_unnamed")
			}
			if row.finish == "tool_calls" {
				require.Equal(t, "tool_calls", s.Finish, "the trace has the engine's word")
			}
		})
	}
}

// The same in pieces, with empty calls beside each.
func TestStreamedFunctionCall(t *testing.T) {
	t.Parallel()
	for _, empty := range []string{`null`, `{}`, `{"name":"","arguments":""}`, `{"name":null,"arguments":null}`} {
		for name, row := range map[string]struct {
			pieces []string
			finish string
			calls  []turn.Call
		}{
			"none": {[]string{empty, empty}, "stop", nil},
			"one":  {[]string{empty, `{"name":"f","arguments":""}`, `{"arguments":"{}"}`, empty}, "function_call", []turn.Call{{Name: "f", Arguments: "{}"}}},
		} {
			p := serve(t, engine.KindVLLM, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				for _, piece := range row.pieces {
					_, _ = fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\",\"function_call\":%s},\"token_ids\":[1]}]}\n\n", piece)
				}
				_, _ = fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":%q}]}\n\ndata: [DONE]\n\n", row.finish)
			})
			r := well(t, call(t, one(t, p), ask("hi")))
			require.Equal(t, strings.Repeat("x", len(row.pieces)), r.text(0), name+" "+empty)
			require.Equal(t, row.calls, r.gather.Message(0).Calls, name+" "+empty)
			require.NotContains(t, r.sampled(0).Flags, "call_unnamed", name+" "+empty)
		}
	}
}
