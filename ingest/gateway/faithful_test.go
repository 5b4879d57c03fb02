package gateway

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/ingest/gateway/chat"
	"icecore/ingest/gateway/generate"
	"icecore/ingest/gateway/messages"
	"icecore/ingest/gateway/responses"
	"icecore/ingest/gateway/turn"
)

// rich are bodies that use much of each API.
var rich = []struct {
	provider   turn.Provider
	path, text string
}{
	{chat.Provider{}, "chat/completions", `{"model":"m","stream":true,"stream_options":{"include_usage":true,"include_obfuscation":false},
		"reasoning":{"effort":"low","summary":"auto"},"thinking":{"type":"enabled","budget_tokens":9},
		"response_format":{"type":"json_schema","json_schema":{"name":"o","schema":{"type":"object"}}},
		"tools":[{"type":"function","function":{"name":"f","description":"","parameters":{"type":"object"}}}],
		"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"f"}}]}},
		"messages":[{"role":"system","content":[{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}]},
			{"role":"user","content":[{"type":"text","text":"u"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA"}}]},
			{"role":"assistant","content":[{"type":"refusal","refusal":"no"}],"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},
			{"role":"tool","tool_call_id":"c","content":"r"}]}`},
	{chat.Provider{}, "chat/completions", `{"model":"m","messages":[{"role":"user","content":"u"}],"tools":[{"type":"function","function":{"name":"f"}}],
		"tool_choice":{"type":"function","function":{"name":"f"}}}`},
	{responses.Provider{}, "responses", `{"model":"m","stream":true,"stream_options":{"include_obfuscation":false},"reasoning":{"effort":"low","summary":"auto"},
		"text":{"verbosity":"low","format":{"type":"json_schema","name":"o","schema":{"type":"object"}}},"include":["reasoning.encrypted_content"],
		"tools":[{"type":"function","name":"f","description":"","parameters":{"type":"object"},"strict":false},
			{"type":"custom","name":"p","description":"d","format":{"type":"grammar","syntax":"lark","definition":"start: x"}},
			{"type":"namespace","name":"ns","description":"d","tools":[{"type":"function","name":"g","parameters":{"type":"object"}}]}],
		"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"f"},{"type":"custom","name":"p"},{"type":"function","name":"g","namespace":"ns"}]},
		"input":[{"type":"message","role":"developer","content":[{"type":"input_text","text":"s"}]},
			{"type":"message","role":"user","content":[{"type":"input_text","text":"u"},{"type":"input_image","image_url":"data:image/png;base64,AA","detail":"low"},
				{"type":"input_file","filename":"f","file_data":"AA"},{"type":"input_audio","input_audio":{"data":"AA","format":"wav"}}]},
			{"type":"reasoning","id":"rs","summary":[{"type":"summary_text","text":"t"}],"content":[{"type":"reasoning_text","text":""}],"status":"completed"},
			{"type":"message","id":"msg","role":"assistant","status":"completed","content":[{"type":"output_text","text":"a","annotations":[],"logprobs":[]}]},
			{"type":"function_call","id":"fc","status":"completed","call_id":"c","name":"f","arguments":"{}"},
			{"type":"custom_tool_call","id":"ctc","call_id":"d","name":"p","input":"x"},
			{"type":"function_call_output","call_id":"c","output":"r"},
			{"type":"custom_tool_call_output","call_id":"d","output":[{"type":"input_text","text":"r"}]}]}`},
	{responses.Provider{}, "responses", `{"model":"m","input":"u","text":{"format":{"type":"text"}},"tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"function","name":"f"}}`},
	{messages.Provider{}, "messages", `{"model":"m","max_tokens":9,"thinking":{"type":"enabled","budget_tokens":9,"display":"omitted"},
		"output_config":{"effort":"low","format":{"type":"json_schema","schema":{"type":"object"}}},
		"context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]},
		"system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral","ttl":"1h"}}],
		"tools":[{"type":"custom","name":"f","description":"","input_schema":{"type":"object"},"cache_control":{"type":"ephemeral"},"eager_input_streaming":true}],
		"tool_choice":{"type":"tool","name":"f","disable_parallel_tool_use":true},
		"messages":[{"role":"user","content":[{"type":"text","text":"u"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA"}},
				{"type":"image","source":{"type":"url","url":"http://x/y.png"}},
				{"type":"document","title":"t","source":{"type":"text","media_type":"text/plain","data":"d"}},
				{"type":"document","source":{"type":"content","content":[{"type":"text","text":"d"}]}}]},
			{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},{"type":"redacted_thinking","data":"s"},{"type":"text","text":"a"},
				{"type":"tool_use","id":"c","name":"f","input":{"a":1}}]},
			{"role":"system","content":"mid"},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","is_error":true,"content":[{"type":"text","text":"r"},{"type":"tool_reference","tool_name":"f"}]}]}]}`},
	{generate.Provider{}, "v1beta/models/m:generateContent", `{"systemInstruction":{"role":"user","parts":[{"text":"s"}]},
		"generationConfig":{"temperature":1,"responseMimeType":"application/json","responseSchema":{"type":"OBJECT","properties":{"a":{"type":"STRING"}}},
			"thinkingConfig":{"includeThoughts":true,"thinkingBudget":9,"thinkingLevel":"LOW"}},
		"tools":[{"functionDeclarations":[{"name":"f","description":"","parameters":{"type":"OBJECT","properties":{"a":{"type":"STRING"}}}},{"name":"g","parametersJsonSchema":{"type":"object"}}]}],
		"toolConfig":{"functionCallingConfig":{"mode":"ANY","allowedFunctionNames":["f"]}},
		"contents":[{"role":"user","parts":[{"text":"u"},{"inlineData":{"mimeType":"image/png","data":"AA"}},{"file_data":{"mime_type":"image/png","file_uri":"http://x/y.png"}}]},
			{"role":"model","parts":[{"text":"t","thought":true},{"text":"a","thoughtSignature":"s"},{"functionCall":{"id":"c","name":"f","args":{"a":1}}}]},
			{"role":"user","parts":[{"functionResponse":{"id":"c","name":"f","response":{"a":1},"parts":[{"inlineData":{"mimeType":"image/png","data":"AA"}}]}}]}]}`},
}

// seen is all that an engine is told of a request.
func seen(t *testing.T, r *turn.Request) string {
	t.Helper()
	var all []string
	add := func(raw []byte, err error) {
		require.NoError(t, err)
		all = append(all, string(raw))
	}
	for i := range r.Messages {
		add(r.Messages[i].JSON(turn.ReasoningContent))
	}
	for i := range r.Tools {
		add(r.Tools[i].JSON())
	}
	add(r.Choice.JSON())
	add(json.Marshal(r.Sampling))
	return strings.Join(all, "\n")
}

// objects gives each object within v, with its place.
func objects(v any, at string, each func(at string, o map[string]any)) {
	switch v := v.(type) {
	case map[string]any:
		each(at, v)
		for name, inner := range v {
			objects(inner, strings.TrimPrefix(at+"."+name, "."), each)
		}
	case []any:
		for i, inner := range v {
			objects(inner, fmt.Sprintf("%s[%d]", at, i), each)
		}
	}
}

// A member that nobody knows, in whatever object of a request, reaches the engine or is
// listed with its place, or the request is refused. Hints are the exception.
func TestNothingIsDroppedInSilence(t *testing.T) {
	t.Parallel()
	const canary = "x_canary"
	places := 0
	for _, one := range rich {
		decode := func(body []byte) (*turn.Request, error) {
			return one.provider.Decode(turn.Incoming{Path: one.path, Body: body})
		}
		var whole any
		require.NoError(t, json.Unmarshal([]byte(one.text), &whole))
		plain, err := decode([]byte(one.text))
		require.NoError(t, err, one.path)
		for _, w := range plain.Rewrites {
			require.NotRegexp(t, `^engines have no place for it( \(|$)`, w.Detail, "a documented member is read: %v", w)
		}
		objects(whole, "", func(at string, o map[string]any) {
			if strings.HasSuffix(at, "cache_control") {
				return
			}
			places++
			o[canary] = 1
			defer delete(o, canary)
			body, err := json.Marshal(whole)
			require.NoError(t, err)
			r, err := decode(body)
			if err != nil {
				require.ErrorContains(t, err, canary, "%s at %q", one.path, at)
				return
			}
			where := strings.TrimPrefix(at+"."+canary, ".")
			listed := slices.ContainsFunc(r.Rewrites, func(w turn.Rewrite) bool { return strings.HasPrefix(w.What, "dropped_") && w.Where == where })
			require.NotEqual(t, listed, strings.Contains(seen(t, r), canary), "%s at %q: %v", one.path, at, r.Rewrites)
		})
	}
	require.Greater(t, places, 90)
}

// A hint for a provider's cache, in whatever object is not handed on as it came, reaches
// no engine and is listed nowhere: templates print what they are given. Google's API has
// none.
func TestHintsReachNoEngine(t *testing.T) {
	t.Parallel()
	carried := regexp.MustCompile(`(?i)parameters|schema|format|input$|args|response$|image_url$|input_audio$`)
	for _, one := range rich {
		if _, google := one.provider.(generate.Provider); google {
			continue
		}
		decode := func(body []byte) *turn.Request {
			r, err := one.provider.Decode(turn.Incoming{Path: one.path, Body: body})
			require.NoError(t, err, one.path)
			return r
		}
		var whole any
		require.NoError(t, json.Unmarshal([]byte(one.text), &whole))
		plain := decode([]byte(one.text))
		objects(whole, "", func(at string, o map[string]any) {
			if carried.MatchString(at) || o["cache_control"] != nil {
				return
			}
			o["cache_control"] = map[string]any{"type": "ephemeral"}
			defer delete(o, "cache_control")
			body, err := json.Marshal(whole)
			require.NoError(t, err)
			r := decode(body)
			require.NotContains(t, seen(t, r), "cache_control", "%s at %q", one.path, at)
			require.Equal(t, plain.Rewrites, r.Rewrites, "%s at %q", one.path, at)
		})
	}
}

// A description that is empty is none that was left out: templates print it.
func TestEmptyDescriptions(t *testing.T) {
	t.Parallel()
	for _, one := range rich {
		r, err := one.provider.Decode(turn.Incoming{Path: one.path, Body: []byte(one.text)})
		require.NoError(t, err)
		tool, err := r.Tools[0].JSON()
		require.NoError(t, err)
		require.Equal(t, strings.Contains(one.text, `"description":""`), strings.Contains(string(tool), `"description":""`), one.path)
	}
}

// What a hundred messages have in common is listed once, and counted.
func TestDroppedOfManyPlaces(t *testing.T) {
	t.Parallel()
	many := strings.TrimSuffix(strings.Repeat(`{"role":"user","content":[{"type":"text","text":"u","x":1,"y":1}]},`, 100), ",")
	r, err := messages.Provider{}.Decode(turn.Incoming{Path: "messages", Body: []byte(`{"model":"m","max_tokens":9,"messages":[` + many + `]}`)})
	require.NoError(t, err)
	why := "engines have no place for it (100 places)"
	require.Equal(t, []turn.Rewrite{{What: "dropped_field", Where: "messages[0].content[0].x", Detail: why},
		{What: "dropped_field", Where: "messages[0].content[0].y", Detail: why}}, r.Rewrites)
	var names strings.Builder
	for i := range 50_000 {
		fmt.Fprintf(&names, `,"x%d":1`, i)
	}
	r, err = messages.Provider{}.Decode(turn.Incoming{Path: "messages", Body: []byte(`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"u"` + names.String() + `}]}`)})
	require.NoError(t, err)
	require.Len(t, r.Rewrites, 1001)
}
