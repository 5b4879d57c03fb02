package generate_test

import (
	"encoding/json"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"icecore/ingest/gateway/body"
	"icecore/ingest/gateway/generate"
	"icecore/ingest/gateway/turn"
)

// pieces parts a text anywhere between its runes.
func pieces(t *rapid.T, text string) []string {
	var all []string
	runes := []rune(text)
	for len(runes) > 0 {
		n := rapid.IntRange(1, len(runes)).Draw(t, "piece")
		all = append(all, string(runes[:n]))
		runes = runes[n:]
	}
	return all
}

// However an answer is parted, it is the same: as events, as an array, in one piece.
func TestAnyParting(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		reasoning, text := rapid.String().Draw(t, "reasoning"), rapid.String().Draw(t, "text")
		a := answer{ends: stop}
		for _, p := range pieces(t, reasoning) {
			a.deltas = append(a.deltas, turn.Delta{Reasoning: p})
		}
		for _, p := range pieces(t, text) {
			a.deltas = append(a.deltas, turn.Delta{Text: p})
		}
		for i := range rapid.IntRange(0, 3).Draw(t, "calls") {
			a.deltas = append(a.deltas, call(i, rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "id"), "f", ""))
		}
		for i := range rapid.IntRange(0, 3).Draw(t, "arguments") {
			arguments := rapid.SampledFrom([]string{`{"a": "\u00e9}"}`, "{}", "", "{\n}", "x", `{"a"`}).Draw(t, "of")
			for _, p := range pieces(t, arguments) {
				a.deltas = append(a.deltas, call(i, "", "f", p))
			}
		}
		r := &turn.Request{Reasoning: turn.Reasoning{Hidden: rapid.Bool().Draw(t, "hidden")}}
		full, wholeFlags := whole(t, r, a)
		for _, array := range []bool{false, true} {
			r.Array = array
			got, flags := play(t, r, a)
			require.Equal(t, wholeFlags, flags)
			require.Equal(t, full.parts, got.parts)
			require.Equal(t, full.finish, got.finish)
		}

		back, err := turn.AppendJSON(nil, full.parts[0])
		require.NoError(t, err)
		if len(full.parts[0]) > 0 {
			history := decode(t, `{"contents":[{"role":"model","parts":`+string(back)+`},{"role":"user","parts":[{"text":"q"}]}]}`)
			require.Equal(t, text, history.Messages[0].Text())
			if reasoning != "" {
				require.Equal(t, reasoning, *history.Messages[0].Reasoning)
			}
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"contents":[{"role":"model","parts":[{"functionCall":{"name":"f","args":{"a":[1]}},"thoughtSignature":"icecore1.AAAA"}]},{"role":"user","parts":[{"functionResponse":{"name":"f","response":{},"parts":[{"inlineData":{"mimeType":"image/png","data":"A"}}]}}]}],"systemInstruction":"s"}`))
	f.Add([]byte(`{"contents":{"parts":{"text":"q"}},"tools":{"function_declarations":{"name":"f","parameters":{"type":"OBJECT","nullable":true,"any_of":[{}],"properties":{"a":{"items":{}}},"minItems":"1"}}},"tool_config":{"function_calling_config":{"mode":"ANY","allowed_function_names":["f"]}}}`))
	f.Add([]byte(`{"contents":[{"parts":[{"text":"q"}]}],"generation_config":{"response_mime_type":"application/json","response_schema":{"type":"ARRAY"},"candidate_count":2,"topK":1e1,"thinkingConfig":{"thinkingBudget":-1}}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := generate.Provider{}.Decode(turn.Incoming{Body: raw, Path: path, Query: url.Values{}})
		if err != nil {
			var fault *turn.Fault
			require.ErrorAs(t, err, &fault)
			require.Equal(t, 400, fault.Status)
			return
		}
		require.NotEmpty(t, r.Messages)
		wire(t, r)
		for i := range r.Tools {
			tool, err := r.Tools[i].JSON()
			require.NoError(t, err)
			require.NoError(t, body.Check(tool, ""), "%s", tool)
		}
		for name, value := range r.Sampling {
			require.True(t, json.Valid(value), name)
		}
	})
}
