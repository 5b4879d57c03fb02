package enginetest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func trimNewlines(s string) string { return strings.Trim(s, "\n") }

// parse gathers what a parser makes of a text that comes in pieces.
func parse(p parser, pieces ...string) gathered {
	var g gathered
	for _, piece := range pieces {
		g.add(p.push(piece))
	}
	g.add(p.end())
	return g
}

func TestParserTakesAnswersApart(t *testing.T) {
	t.Parallel()
	all := parser{thinking: true, tools: true, id: "x"}
	for name, c := range map[string]struct {
		p                    parser
		in, reasoning, text  string
		names, argumentsText []string
	}{
		"text":        {all, "hi", "", "hi", nil, nil},
		"thinking":    {all, "<think>\nhm\n</think>\n\nhi", "\nhm\n", "\n\nhi", nil, nil},
		"cut":         {all, "<think>\nhm", "\nhm", "", nil, nil},
		"call":        {all, "so\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": {\"b\": 1}}}\n</tool_call>", "", "so\n", []string{"f"}, []string{`{"a": {"b": 1}}`}},
		"two calls":   {all, "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n<tool_call>{\"name\":\"g\",\"arguments\":[}</tool_call>", "", "", []string{"f", "g"}, []string{"{}", "["}},
		"invalid":     {all, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": oh}\n</tool_call>", "", "", []string{"f"}, []string{`{"a": oh`}},
		"no call":     {all, "<tool_call>what?</tool_call> so", "", "<tool_call>what?</tool_call> so", nil, nil},
		"cut call":    {all, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}", "", "", []string{"f"}, []string{`{"a": 1}`}},
		"cut frame":   {all, "a<tool_call>\n{\"na", "", "a<tool_call>\n{\"na", nil, nil},
		"cut mark":    {all, "a <tool_ca", "", "a <tool_ca", nil, nil},
		"no parsers":  {parser{}, "<think>a</think><tool_call>{}</tool_call>", "", "<think>a</think><tool_call>{}</tool_call>", nil, nil},
		"quoted name": {all, `<tool_call>{"name": "a\"b", "arguments": {}}</tool_call>`, "", "", []string{`a"b`}, []string{"{}"}},
	} {
		g := parse(c.p, c.in)
		require.Equal(t, c.reasoning, string(g.reasoning), name)
		require.Equal(t, c.text, string(g.text), name)
		var names, arguments []string
		for _, call := range g.calls {
			names, arguments = append(names, call.name), append(arguments, call.arguments)
		}
		require.Equal(t, c.names, names, name)
		require.Equal(t, c.argumentsText, arguments, name)
	}
}

func TestParserHangsNotOnPieces(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := turns().Draw(t, "turn").text() + rapid.SampledFrom([]string{"", "<tool", "<tool_call>x", "</think>", " end"}).Draw(t, "tail")
		p := parser{thinking: true, tools: true, id: "x"}
		var pieces []string
		for rest := text; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "n")
			pieces, rest = append(pieces, rest[:n]), rest[n:]
		}
		require.Equal(t, parse(p, text), parse(p, pieces...))
	})
}

func TestParserStreamsArguments(t *testing.T) {
	t.Parallel()
	p := parser{tools: true}
	p.push("<tool_call>\n{\"name\": \"f\", \"arguments\": ")
	opened := p.push(`{"command": "l`)
	require.Equal(t, "f", opened[0].call.name)
	require.Equal(t, `{"command": "l`, opened[1].call.arguments, "what is certain goes at once")
}
