package messages_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"icecore/ingest/gateway/messages"
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

var arguments = rapid.OneOf(
	rapid.SampledFrom([]string{"", "{}", ` {"a": "}\"{" } `, `{"a":[{"b":[]}],"c":"\\"}`, `{"é":"\u00e9"}`}),
	rapid.Custom(func(t *rapid.T) string {
		raw, err := json.Marshal(map[string]string{rapid.String().Draw(t, "key"): rapid.String().Draw(t, "value")})
		require.NoError(t, err)
		return string(raw)
	}),
)

// However an answer is parted, it is the same: as a stream and in one piece.
func TestAnyParting(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		reasoning, text := rapid.String().Draw(t, "reasoning"), rapid.String().Draw(t, "text")
		var a answer
		for _, p := range pieces(t, reasoning) {
			a.deltas = append(a.deltas, turn.Delta{Reasoning: p})
		}
		for _, p := range pieces(t, text) {
			a.deltas = append(a.deltas, turn.Delta{Text: p})
		}
		a.deltas = append(a.deltas, calls(t, rapid.SliceOfN(arguments, 0, 3).Draw(t, "calls"))...)
		if rapid.Bool().Draw(t, "at once") && len(a.deltas) > 1 { // two deltas as one
			if first, second := a.deltas[0], a.deltas[1]; first.Text == "" && second.Reasoning == "" && len(first.Calls) == 0 {
				first.Text, first.Calls = second.Text, second.Calls
				a.deltas = append([]turn.Delta{first}, a.deltas[2:]...)
			}
		}
		a.end = turn.End{Finish: turn.FinishStop}

		got, flags := play(t, &turn.Request{}, a)
		full, wholeFlags := whole(t, &turn.Request{}, a)
		require.Equal(t, flags, wholeFlags)
		require.Empty(t, flags)
		for i := range got.message.Content {
			b := &got.message.Content[i]
			b.partial, b.closed = "", false
			if b.Input != nil {
				input, _ := (&turn.Call{Arguments: string(b.Input)}).Input()
				b.Input = input
			}
		}
		require.Equal(t, full.Content, append([]content{}, got.message.Content...))

		// What a harness sends back is what was sampled.
		back, err := turn.AppendJSON(nil, full.Content)
		require.NoError(t, err)
		history := decode(t, `{`+head+`"messages":[{"role":"assistant","content":`+string(back)+`},{"role":"user","content":"q"}]}`)
		require.Equal(t, text, history.Messages[0].Text())
		if reasoning != "" {
			require.Equal(t, reasoning, *history.Messages[0].Reasoning)
			require.Equal(t, answerHead.ID, history.Anchors[0])
		}
	})
}

// calls makes deltas of several calls, one after the other or interleaved.
func calls(t *rapid.T, all []string) []turn.Delta {
	var waiting [][]turn.Delta
	for i, arguments := range all {
		parts := []turn.Delta{call(i, "id"+string(rune('a'+i)), "f", "")}
		for _, p := range pieces(t, arguments) {
			parts = append(parts, call(i, "", "", p))
		}
		waiting = append(waiting, parts)
	}
	interleave := rapid.Bool().Draw(t, "interleave")
	var out []turn.Delta
	started := 0 // calls begin in order
	for {
		var open []int
		for i := range waiting {
			if len(waiting[i]) > 0 && i <= started {
				open = append(open, i)
			}
		}
		if len(open) == 0 {
			return out
		}
		at := open[0]
		if interleave {
			at = rapid.SampledFrom(open).Draw(t, "next")
		}
		out = append(out, waiting[at][0])
		waiting[at] = waiting[at][1:]
		started = max(started, at+1)
	}
}

// Whatever an engine says, the stream keeps to the grammar.
func TestAnyDeltas(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var a answer
		for range rapid.IntRange(0, 12).Draw(t, "deltas") {
			d := turn.Delta{Reasoning: rapid.SampledFrom([]string{"", "r"}).Draw(t, "r"), Text: rapid.SampledFrom([]string{"", "t", "\n\n\u2028"}).Draw(t, "t")}
			for range rapid.IntRange(0, 2).Draw(t, "calls") {
				d.Calls = append(d.Calls, turn.CallDelta{
					Index:     rapid.IntRange(0, 3).Draw(t, "index"),
					Name:      rapid.SampledFrom([]string{"", "f"}).Draw(t, "name"),
					Arguments: rapid.SampledFrom([]string{"", " ", "{", "}", `"`, `\`, `{"a":1}`, "x", "["}).Draw(t, "arguments"),
				})
			}
			a.deltas = append(a.deltas, d)
		}
		a.end = turn.End{Finish: turn.FinishStop}
		got, flags := play(t, &turn.Request{}, a)
		var text, want strings.Builder
		for _, d := range a.deltas {
			want.WriteString(d.Text)
		}
		for _, b := range got.message.Content {
			text.WriteString(b.Text)
		}
		require.Equal(t, want.String(), text.String())
		full, wholeFlags := whole(t, &turn.Request{}, a)
		require.Equal(t, wholeFlags, flags)
		require.Equal(t, *full.StopReason, *got.message.StopReason)
	})
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"model":"m","max_tokens":1,"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"A"}}]}]}]}`))
	f.Add([]byte(`{"model":"m","max_tokens":1,"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"b","input":{"a":[1]}},{"type":"thinking","thinking":"","signature":"icecore1.AAAA"}]}],"tools":[{"name":"b","input_schema":{}}],"tool_choice":{"type":"any"}}`))
	f.Add([]byte(`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"type":"document","source":{"type":"content","content":"x"}}]}],"thinking":{"type":"adaptive"},"output_config":{"effort":"low"}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := messages.Provider{}.Decode(turn.Incoming{Body: raw, Path: "messages"})
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
			require.True(t, json.Valid(tool))
		}
		for name, value := range r.Sampling {
			require.True(t, json.Valid(value), name)
		}
	})
}
