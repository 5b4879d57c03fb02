package parser

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"icecore/ingest/gateway/turn"
)

// scraps are what texts with marks are made of: whole and broken pieces.
var scraps = []string{
	"<think>", "</think>", "<tool_call>", "</tool_call>", weather, "<tool_c", "</th", "\n", " ", "<", "text", "é", "€", "\U0001F600", "\xff",
	`{"name": "f", "arguments": {"a": "}"}}`, `{"name": "f", "arguments": {`, `"`, `\`, "{", "}", "<function=f>", "<parameter=x>", "</parameter>",
	"</function>", "<tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n</function>\n</tool_call>", "value",
}

func drawOptions(t *rapid.T) Options {
	return Options{
		Reasoning: rapid.SampledFrom([]string{None, Think}).Draw(t, "reasoning"),
		Tools:     rapid.SampledFrom([]string{None, Hermes, Qwen3Coder}).Draw(t, "tools"),
		Inside:    rapid.Bool().Draw(t, "inside"),
	}
}

// cut parts a text at random bytes.
func cut(t *rapid.T, text string) []string {
	var pieces []string
	for len(text) > 0 {
		n := rapid.IntRange(0, min(len(text), 9)).Draw(t, "n")
		pieces = append(pieces, text[:n])
		text = text[n:]
	}
	return pieces
}

func TestAnyChunkingSaysTheSame(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		o := drawOptions(t)
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(scraps), 0, 12).Draw(t, "scraps"), "")
		require.Equal(t, read(t, o, "stop", text), read(t, o, "stop", cut(t, text)...))
	})
}

func TestTextWithoutMarksIsUnchanged(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		o := drawOptions(t)
		text := strings.ReplaceAll(rapid.String().Draw(t, "text"), "<", "")
		got := read(t, o, "stop", cut(t, text)...)
		require.Equal(t, "stop", got.Finish)
		want := []string{"t:" + text}
		if o.Reasoning == Think && o.Inside {
			want = []string{"r:" + text}
		}
		if text == "" {
			want = nil
		}
		require.Equal(t, want, got.Parts)
	})
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		plain := rapid.StringMatching(`[a-z ]{0,12}`)
		thinking, text := plain.Draw(t, "thinking"), plain.Draw(t, "text")
		whole := "<think>" + thinking + "</think>" + text
		var calls []turn.Call
		for i := range rapid.IntRange(0, 3).Draw(t, "calls") {
			arguments, err := turn.AppendJSON(nil, map[string]string{rapid.String().Draw(t, "key"): rapid.String().Draw(t, "value")})
			require.NoError(t, err)
			calls = append(calls, turn.Call{ID: CallID("", i), Name: "f", Arguments: string(arguments)})
			whole += "\n<tool_call>\n{\"name\": \"f\", \"arguments\": " + string(arguments) + "}\n</tool_call>"
			if i == 0 {
				text += "\n"
			}
		}
		got := read(t, Options{Reasoning: Think, Tools: Hermes}, "stop", cut(t, whole)...).Msg
		require.Equal(t, calls, got.Calls)
		require.Equal(t, text, got.Text())
		if thinking != "" {
			require.Equal(t, thinking, *got.Reasoning)
		}
	})
}

// A model that repeats itself writes the opening mark thousands of times; a call may
// be as long as the answer. Both come in small pieces. In quadratic time the bound
// would be missed by far.
func TestLongTextsTakeLinearTime(t *testing.T) {
	t.Parallel()
	call := `<tool_call>{"name":"f","arguments":{"a":"` + strings.Repeat("x", 1<<20) + `"}}</tool_call>`
	parameter := "<tool_call><function=f><parameter=x>" + strings.Repeat("x</y", 1<<18) + "</parameter></function></tool_call>"
	marks, broken := strings.Repeat("<tool_call>\n", 1<<15), strings.Repeat(`<tool_call>{"`, 1<<15)
	for text, tools := range map[string]string{call: Hermes, parameter: Qwen3Coder, marks: Hermes, broken: Hermes} {
		began := time.Now()
		p, err := New(Options{Tools: tools})
		require.NoError(t, err)
		out := 0
		for i := 0; i < len(text); i += 8 {
			for _, d := range p.Add(text[i:min(i+8, len(text))]) {
				out += len(d.Text)
			}
		}
		last, _ := p.End("stop")
		for _, d := range last {
			out += len(d.Text)
		}
		if p.Calls() == 0 {
			require.Equal(t, len(text), out)
		}
		require.Less(t, time.Since(began), 20*time.Second)
	}
}

func FuzzParser(f *testing.F) {
	f.Add("<think>a</think>"+weather, uint8(3), uint8(1))
	f.Add("<tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n</function>\n</tool_call>", uint8(7), uint8(2))
	f.Add("a<tool_call>{\"name\": \"\xff", uint8(1), uint8(5))
	f.Fuzz(func(t *testing.T, text string, size, mode uint8) {
		o := Options{
			Tools:     []string{Hermes, Qwen3Coder, None}[mode%3],
			Reasoning: []string{Think, None}[mode/3%2],
			Inside:    mode/6%2 == 0,
		}
		var pieces []string
		step := int(size)%16 + 1
		for i := 0; i < len(text); i += step {
			pieces = append(pieces, text[i:min(i+step, len(text))])
		}
		require.Equal(t, read(t, o, "stop", text), read(t, o, "stop", pieces...))
	})
}
