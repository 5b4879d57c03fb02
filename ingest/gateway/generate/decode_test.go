package generate_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/ingest/gateway/generate"
	"icecore/ingest/gateway/turn"
	"icecore/trace"
)

const path = "v1beta/models/gemini-x:streamGenerateContent"

func decode(t require.TestingT, body string) *turn.Request {
	r, err := generate.Provider{}.Decode(turn.Incoming{Body: []byte(body), Path: path, Query: url.Values{"alt": {"sse"}}})
	require.NoError(t, err, body)
	return r
}

// wire is the history as an engine gets it, one message per line.
func wire(t require.TestingT, r *turn.Request) string {
	lines := make([]string, len(r.Messages))
	for i := range r.Messages {
		line, err := r.Messages[i].JSON(turn.ReasoningContent)
		require.NoError(t, err)
		require.True(t, json.Valid(line), "%s", line)
		lines[i] = string(line)
	}
	return strings.Join(lines, "\n")
}

func rewrites(r *turn.Request) []string {
	var all []string
	for _, w := range r.Rewrites {
		all = append(all, w.What+" "+w.Where)
	}
	return all
}

func TestTarget(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		path, query, model string
		stream, array      bool
	}{
		{"v1beta/models/gemini-2.5-pro:generateContent", "", "gemini-2.5-pro", false, false},
		{"v1beta/models/gemini-2.5-pro:streamGenerateContent", "alt=sse", "gemini-2.5-pro", true, false},
		{"v1beta/models/gemini-2.5-pro:streamGenerateContent", "", "gemini-2.5-pro", true, true},
		{"models/org/name:tag:generateContent", "", "org/name:tag", false, false},
		{"v1beta/models/m:countTokens", "", "m", false, false},
	} {
		query, err := url.ParseQuery(c.query)
		require.NoError(t, err)
		r, err := generate.Provider{}.Decode(turn.Incoming{Body: []byte(`{"contents":[{"parts":[{"text":"q"}]}]}`), Path: c.path, Query: query})
		require.NoError(t, err)
		require.Equal(t, c.model, r.Model)
		require.Equal(t, c.stream, r.Stream)
		require.Equal(t, c.array, r.Array)
	}
}

func TestAnchors(t *testing.T) {
	t.Parallel()
	one, two := turn.Anchor{TraceID: "t-1", Reasoning: "a"}.Seal(), turn.Anchor{TraceID: "t-2", Reasoning: "b"}.Seal()
	r := decode(t, `{"contents":[{"role":"user","parts":[{"text":"q"}]},{"role":"model","parts":[
		{"functionCall":{"name":"f"},"thoughtSignature":"`+one+`"},{"functionCall":{"name":"g"},"thoughtSignature":"`+one+`"},{"text":"","thoughtSignature":"`+two+`"}]},{"role":"user","parts":[{"text":"r"}]}]}`)
	require.Equal(t, map[int]string{1: "t-1"}, r.Anchors)
	require.Equal(t, "ab", *r.Messages[1].Reasoning)
}

func TestParameters(t *testing.T) {
	t.Parallel()
	r := decode(t, `{"contents":[{"parts":[{"text":"q"}]}],"safetySettings":[],"unheardOf":1,
		"tools":[{"functionDeclarations":[{"name":"f","description":"d","parametersJsonSchema":{"type": "object"}},{"name":"g","parameters":{"type":"OBJECT"}},{"name":"h"}]},{"googleSearch":{}},{"url_context":{},"function_declarations":{"name":"i"}}],
		"toolConfig":{"functionCallingConfig":{"mode":"ANY"}},
		"generationConfig":{"temperature":1,"topP":0.95,"top_k":64.0,"maxOutputTokens":65536,"stopSequences":["x"],"candidateCount":2,"seed":7,"presencePenalty":0.1,"frequencyPenalty":0.2,
			"thinkingConfig":{"includeThoughts":true,"thinkingBudget":8192,"thinkingLevel":"HIGH"},"responseLogprobs":true}}`)
	sampling, err := json.Marshal(r.Sampling)
	require.NoError(t, err)
	require.JSONEq(t, `{"temperature":1,"top_p":0.95,"top_k":64,"seed":7,"stop":["x"],"presence_penalty":0.1,"frequency_penalty":0.2}`, string(sampling))
	require.Equal(t, "64", string(r.Sampling["top_k"]))
	require.EqualValues(t, 65536, *r.MaxTokens)
	require.Equal(t, 2, r.Choices())
	require.True(t, *r.Reasoning.Enabled)
	require.EqualValues(t, 8192, *r.Reasoning.Budget)
	require.Equal(t, "high", r.Reasoning.Effort)
	require.False(t, r.Reasoning.Hidden)
	require.Equal(t, turn.ToolChoice{Mode: "required"}, r.Choice)
	var tools []string
	for i := range r.Tools {
		tools = append(tools, r.Tools[i].Name+" "+string(r.Tools[i].Parameters))
	}
	require.Equal(t, []string{`f {"type": "object"}`, `g {"type":"object"}`, `h `, `i `}, tools)
	require.Equal(t, []string{"dropped_tool tools[1].googleSearch", "dropped_tool tools[2].url_context", "dropped_field generationConfig.responseLogprobs", "dropped_field unheardOf"}, rewrites(r))
	require.Empty(t, r.Kind)
}

func TestThinkingConfig(t *testing.T) {
	t.Parallel()
	off, on := false, true
	for config, want := range map[string]turn.Reasoning{
		`{}`:                        {Hidden: true},
		`{"thinkingBudget":0}`:      {Hidden: true, Enabled: &off},
		`{"thinkingBudget":-1}`:     {Hidden: true, Enabled: &on},
		`{"include_thoughts":true}`: {},
	} {
		r := decode(t, `{"contents":[{"parts":[{"text":"q"}]}],"generationConfig":{"thinkingConfig":`+config+`}}`)
		require.Equal(t, want, r.Reasoning, config)
	}
	require.True(t, decode(t, `{"contents":[{"parts":[{"text":"q"}]}]}`).Reasoning.Hidden)
}

func TestChoice(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		config string
		want   turn.ToolChoice
		tools  int
		what   []string
	}{
		{`{}`, turn.ToolChoice{Mode: "auto"}, 3, nil},
		{`{"mode":"NONE"}`, turn.ToolChoice{Mode: "none"}, 3, nil},
		{`{"mode":"any"}`, turn.ToolChoice{Mode: "required"}, 3, nil},
		{`{"mode":"ANY","allowedFunctionNames":["g"]}`, turn.ToolChoice{Name: "g"}, 3, nil},
		{`{"mode":"ANY","allowedFunctionNames":["g","f"]}`, turn.ToolChoice{Mode: "required"}, 2, []string{"narrowed_tools toolConfig.functionCallingConfig.allowedFunctionNames"}},
		{`{"mode":"VALIDATED"}`, turn.ToolChoice{Mode: "auto"}, 3, []string{"loosened_tool_choice toolConfig.functionCallingConfig.mode"}},
	} {
		r := decode(t, `{"contents":[{"parts":[{"text":"q"}]}],"tools":[{"functionDeclarations":[{"name":"f"},{"name":"g"},{"name":"h"}]}],"toolConfig":{"functionCallingConfig":`+c.config+`}}`)
		require.Equal(t, c.want, r.Choice, c.config)
		require.Len(t, r.Tools, c.tools, c.config)
		require.Equal(t, c.what, rewrites(r), c.config)
	}
	r := decode(t, `{"contents":[{"parts":[{"text":"q"}]}],"tools":[{"googleSearch":{}}],"toolConfig":{"functionCallingConfig":{"mode":"AUTO"}}}`)
	require.Zero(t, r.Choice)
}

func TestJSONAnswers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ config, format string }{
		{`"responseMimeType":"application/json"`, `{"type":"json_object"}`},
		{`"responseMimeType":"application/json","responseSchema":{"type":"ARRAY","items":{"type":"STRING"}}`, `{"type":"json_schema","json_schema":{"name":"output","schema":{"type":"array","items":{"type":"string"}},"strict":true}}`},
		{`"responseMimeType":"application/json","responseJsonSchema":{"type":"array"}`, `{"type":"json_schema","json_schema":{"name":"output","schema":{"type":"array"},"strict":true}}`},
	} {
		r := decode(t, `{"contents":[{"parts":[{"text":"q"}]}],"generationConfig":{`+c.config+`}}`)
		require.Equal(t, c.format, string(r.Sampling["response_format"]))
		require.Equal(t, trace.KindAuxiliary, r.Kind)
	}
	agent := decode(t, `{"contents":[{"parts":[{"text":"q"}]}],"tools":[{"functionDeclarations":[{"name":"f"}]}],"generationConfig":{"responseMimeType":"application/json"}}`)
	require.Empty(t, agent.Kind)
	plain := decode(t, `{"contents":[{"parts":[{"text":"q"}]}],"generationConfig":{"responseMimeType":"text/plain"}}`)
	require.Empty(t, plain.Kind)
	require.Empty(t, plain.Sampling)
}

func TestCountTokens(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		`{"contents":[{"parts":[{"text":"q"}]}]}`,
		`{"generateContentRequest":{"model":"models/m","contents":[{"parts":[{"text":"q"}]}]}}`,
	} {
		r, err := generate.Provider{}.Decode(turn.Incoming{Body: []byte(body), Path: "v1beta/models/m:countTokens"})
		require.NoError(t, err)
		require.Equal(t, `{"role":"user","content":"q"}`, wire(t, r))
	}
	require.Equal(t, `{"totalTokens":17}`, string(generate.CountTokens(17)))
}

func TestDecodeFaults(t *testing.T) {
	t.Parallel()
	with := func(more string) string { return `{"contents":[{"parts":[{"text":"q"}]}],` + more + `}` }
	part := func(role, part string) string {
		return `{"contents":[{"role":"` + role + `","parts":[` + part + `]}]}`
	}
	for _, c := range []struct{ body, field string }{
		{`{"contents":[],"contents":[]}`, "contents"},
		{`{}`, "contents"},
		{`{"contents":"q"}`, "contents"},
		{part("system", `{"text":"q"}`), "contents[0].role"},
		{part("user", `{}`), "contents[0].parts[0]"},
		{part("user", `{"text":5}`), "contents[0].parts[0].text"},
		{part("user", `{"functionCall":{"name":"f"}}`), "contents[0].parts[0].functionCall"},
		{part("user", `{"functionResponse":{"response":{}}}`), "contents[0].parts[0].functionResponse.name"},
		{part("user", `{"inlineData":{"mimeType":"audio/wav","data":"A"}}`), "contents[0].parts[0].inlineData.mimeType"},
		{part("user", `{"inlineData":{"mimeType":"image/png"}}`), "contents[0].parts[0].inlineData.data"},
		{part("user", `{"fileData":{"fileUri":"gs://a/b"}}`), "contents[0].parts[0].fileData"},
		{part("user", `{"fileData":{"fileUri":"https://generativelanguage.googleapis.com/v1beta/files/x"}}`), "contents[0].parts[0].fileData"},
		{part("model", `{"functionResponse":{"name":"f"}}`), "contents[0].parts[0].functionResponse"},
		{part("model", `{"functionCall":{"args":{}}}`), "contents[0].parts[0].functionCall.name"},
		{part("model", `{"functionCall":{"name":"f","args":"x"}}`), "contents[0].parts[0].functionCall.args"},
		{with(`"systemInstruction":{"parts":[{"inlineData":{}}]}`), "systemInstruction.parts[0]"},
		{with(`"cachedContent":"cachedContents/x"`), "cachedContent"},
		{with(`"tools":[{"functionDeclarations":[{"description":"d"}]}]`), "tools[0].functionDeclarations[0].name"},
		{with(`"tools":[{"functionDeclarations":[{"name":"f","parameters":{"type":"OBJECT","properties":[]}}]}]`), "tools[0].functionDeclarations[0].parameters.properties"},
		{with(`"toolConfig":{"functionCallingConfig":{"mode":"ANY"}}`), "toolConfig.functionCallingConfig.mode"},
		{with(`"toolConfig":{"functionCallingConfig":{"mode":"SOME"}}`), "toolConfig.functionCallingConfig.mode"},
		{with(`"toolConfig":{"functionCallingConfig":{"mode":"ANY","allowedFunctionNames":["f"]}}`), "toolConfig.functionCallingConfig.allowedFunctionNames[0]"},
		{with(`"generationConfig":{"topK":1.5}`), "generationConfig.topK"},
		{with(`"generationConfig":{"maxOutputTokens":0}`), "generationConfig.maxOutputTokens"},
		{with(`"generationConfig":{"candidateCount":1000000}`), "generationConfig.candidateCount"},
		{with(`"generationConfig":{"responseMimeType":"text/x.enum"}`), "generationConfig.responseMimeType"},
		{with(`"generationConfig":{"responseModalities":["AUDIO"]}`), "generationConfig.responseModalities"},
	} {
		_, err := generate.Provider{}.Decode(turn.Incoming{Body: []byte(c.body), Path: path})
		var fault *turn.Fault
		require.ErrorAs(t, err, &fault, c.body)
		require.Equal(t, 400, fault.Status, c.body)
		require.Equal(t, c.field, fault.Field, c.body)
		require.Contains(t, fault.Message, c.field, c.body)
	}
	_, err := generate.Provider{}.Decode(turn.Incoming{Body: []byte(`{}`), Path: "v1beta/models/m:embedContent"})
	var fault *turn.Fault
	require.ErrorAs(t, err, &fault)
	require.Equal(t, 404, fault.Status)
}
