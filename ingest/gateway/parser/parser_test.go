package parser

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/ingest/gateway/turn"
)

// said is what a parser made of a text, in order, neighbours of one sort joined.
type said struct {
	Parts  []string // "r:…", "t:…", "c:name arguments"
	Finish string
	Msg    turn.Message
}

func read(t require.TestingT, o Options, finish string, pieces ...string) said {
	p, err := New(o)
	require.NoError(t, err)
	var s said
	var g turn.Gather
	var rawParts, rawAll strings.Builder
	p.raw = func(kind piece, b []byte) {
		rawAll.Write(b)
		if kind == asText || kind == asReasoning {
			rawParts.Write(b)
		}
	}
	add := func(sort, text string) {
		if n := len(s.Parts); n > 0 && sort != "c:" && strings.HasPrefix(s.Parts[n-1], sort) {
			s.Parts[n-1] += text
		} else {
			s.Parts = append(s.Parts, sort+text)
		}
	}
	var shown strings.Builder
	take := func(ds []turn.Delta) {
		for _, d := range ds {
			require.False(t, d.Empty())
			g.Add(d)
			if d.Reasoning != "" {
				add("r:", d.Reasoning)
			}
			if d.Text != "" {
				add("t:", d.Text)
			}
			shown.WriteString(d.Reasoning + d.Text)
			for _, c := range d.Calls {
				add("c:", c.Name+" "+c.Arguments)
			}
		}
	}
	for _, piece := range pieces {
		take(p.Add(piece))
	}
	last, end := p.End(finish)
	take(last)
	s.Finish, s.Msg = end, g.Message(o.Choice)
	require.Equal(t, strings.Join(pieces, ""), rawAll.String(), "every byte once, in order")
	require.Equal(t, rawParts.String(), shown.String(), "text comes out as it went in")
	return s
}

const weather = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\":  \"K\\u00f6ln\", \"n\": 1.50}}\n</tool_call>"

func TestHermes(t *testing.T) {
	t.Parallel()
	call := `c:weather {"city":  "K\u00f6ln", "n": 1.50}`
	for name, c := range map[string]struct {
		text   string
		parts  []string
		finish string
	}{
		"plain":                  {"hello <b>", []string{"t:hello <b>"}, "stop"},
		"one call":               {weather, []string{call}, "tool_calls"},
		"text before":            {"I look.\n" + weather, []string{"t:I look.\n", call}, "tool_calls"},
		"two calls":              {weather + "\n" + weather + "\n", []string{call, call}, "tool_calls"},
		"text between":           {weather + "\n and \n" + weather, []string{call, "t:\n and \n", call}, "tool_calls"},
		"text after":             {weather + "\ndone", []string{call, "t:\ndone"}, "tool_calls"},
		"no closing mark":        {strings.TrimSuffix(weather, "</tool_call>"), []string{call}, "tool_calls"},
		"half a closing mark":    {strings.TrimSuffix(weather, "_call>"), []string{call}, "tool_calls"},
		"mark in the arguments":  {`<tool_call>{"name":"w","arguments":{"a":"</tool_call>"}}</tool_call>`, []string{`c:w {"a":"</tool_call>"}`}, "tool_calls"},
		"arguments first":        {`<tool_call>{"arguments":{},"name":"w"}</tool_call>`, []string{`c:w {}`}, "tool_calls"},
		"arguments as text":      {`<tool_call>{"name":"w","arguments":"{}"}</tool_call>`, []string{`c:w "{}"`}, "tool_calls"},
		"unfinished":             {"a<tool_call>\n{\"name\": \"weather\", \"argum", []string{"t:a<tool_call>\n{\"name\": \"weather\", \"argum"}, "stop"},
		"not JSON":               {"<tool_call>\nweather()\n</tool_call>", []string{"t:<tool_call>\nweather()\n</tool_call>"}, "stop"},
		"no arguments":           {`<tool_call>{"name":"w"}</tool_call>`, []string{`t:<tool_call>{"name":"w"}</tool_call>`}, "stop"},
		"no name":                {`<tool_call>{"arguments":{}}</tool_call>`, []string{`t:<tool_call>{"arguments":{}}</tool_call>`}, "stop"},
		"text after the object":  {`<tool_call>{"name":"w","arguments":{}}}</tool_call>`, []string{`t:<tool_call>{"name":"w","arguments":{}}}</tool_call>`}, "stop"},
		"broken, then well":      {"<tool_call>{\"name\": \"weather\", oops\n" + weather, []string{"t:<tool_call>{\"name\": \"weather\", oops\n", call}, "tool_calls"},
		"a mention of the mark":  {"use <tool_call> for it", []string{"t:use <tool_call> for it"}, "stop"},
		"half an opening mark":   {"so <tool_ca", []string{"t:so <tool_ca"}, "stop"},
		"think is not looked at": {"<think>x</think>" + weather, []string{"t:<think>x</think>", call}, "tool_calls"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := read(t, Options{Tools: Hermes}, "stop", c.text)
			require.Equal(t, c.parts, got.Parts)
			require.Equal(t, c.finish, got.Finish)
		})
	}
}

func TestThink(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		inside bool
		text   string
		parts  []string
	}{
		"both marks":             {false, "<think>\nhm\n</think>\n\nyes", []string{"r:\nhm\n", "t:\n\nyes"}},
		"space before":           {false, "\n<think>hm</think>yes", []string{"r:hm", "t:yes"}},
		"none":                   {false, "yes <think>no</think>", []string{"t:yes <think>no</think>"}},
		"space only":             {false, "\n ", []string{"t:\n "}},
		"half a mark":            {false, "<thin", []string{"t:<thin"}},
		"unclosed":               {false, "<think>hm</thin", []string{"r:hm</thin"}},
		"opened by the template": {true, "hm\n</think>\n\nyes", []string{"r:hm\n", "t:\n\nyes"}},
		"opened twice":           {true, "<think>hm</think>yes", []string{"r:hm", "t:yes"}},
		"inside, empty":          {true, "</think>yes", []string{"t:yes"}},
		"inside, unclosed":       {true, "\nhm", []string{"r:\nhm"}},
		"closed twice":           {true, "a</think>b</think>c", []string{"r:a", "t:b</think>c"}},
		"a call in the thinking": {true, weather + "</think>" + weather, []string{"r:" + weather, `c:weather {"city":  "K\u00f6ln", "n": 1.50}`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.parts, read(t, Options{Reasoning: Think, Tools: Hermes, Inside: c.inside}, "stop", c.text).Parts)
		})
	}
}

func TestCoder(t *testing.T) {
	t.Parallel()
	tools := []turn.Tool{{Name: "edit", Parameters: json.RawMessage(`{"properties": {
		"path": {"type": "string"}, "line": {"type": "integer"}, "ratio": {"type": "number"}, "all": {"type": "boolean"},
		"opts": {"type": "object"}, "maybe": {"anyOf": [{"type": "null"}, {"type": "string"}]}, "list": {"type": ["array", "null"]}}}`)}}
	open, end := "<tool_call>\n<function=edit>\n", "</function>\n</tool_call>"
	parameter := func(name, value string) string { return "<parameter=" + name + ">\n" + value + "\n</parameter>\n" }
	for name, c := range map[string]struct {
		text  string
		parts []string
	}{
		"types": {
			open + parameter("path", "a\nb \"c\" <d>") + parameter("line", "12345678901234567890") + parameter("ratio", "1.50") + parameter("all", "True") +
				parameter("opts", `{"a":  1}`) + parameter("maybe", "None") + parameter("list", "null") + parameter("new", "7") + end,
			[]string{`c:edit {"path": "a\nb \"c\" <d>", "line": 12345678901234567890, "ratio": 1.50, "all": true, "opts": {"a":  1}, "maybe": null, "list": null, "new": "7"}`},
		},
		"not of the type":      {open + parameter("line", "x") + parameter("opts", "{a") + parameter("all", "maybe") + end, []string{`c:edit {"line": "x", "opts": "{a", "all": "maybe"}`}},
		"null is text":         {open + parameter("path", "null") + end, []string{`c:edit {"path": "null"}`}},
		"marks in a value":     {open + parameter("path", "see </parameter> and </function> there") + end, []string{`c:edit {"path": "see </parameter> and </function> there"}`}},
		"no parameters":        {"<tool_call><function=edit></function></tool_call>", []string{"c:edit {}"}},
		"one line":             {"<tool_call><function=edit><parameter=path>x</parameter></function></tool_call>", []string{`c:edit {"path": "x"}`}},
		"blank lines stay":     {open + parameter("path", "\nx\n") + end, []string{`c:edit {"path": "\nx\n"}`}},
		"twice, the last":      {open + parameter("path", "x") + parameter("line", "1") + parameter("path", "y") + end, []string{`c:edit {"path": "y", "line": 1}`}},
		"two calls":            {"a\n" + open + parameter("path", "x") + end + "\n" + open + parameter("path", "y") + end, []string{"t:a\n", `c:edit {"path": "x"}`, `c:edit {"path": "y"}`}},
		"unknown function":     {"<tool_call>\n<function=f>\n" + parameter("x", "1") + end, []string{`c:f {"x": "1"}`}},
		"parameter not closed": {open + "<parameter=path>\nx\n" + end + "\n" + open + parameter("path", "y") + end, []string{`c:edit {"path": "x"}`, `c:edit {"path": "y"}`}},
		"no closing mark":      {open + parameter("path", "x") + "</function>\n", []string{`c:edit {"path": "x"}`}},
		"unfinished":           {"a" + open + parameter("path", "x"), []string{"t:a" + open + parameter("path", "x")}},
		"text within":          {open + "oops " + parameter("path", "x") + end, []string{"t:" + open + "oops " + parameter("path", "x") + end}},
		"name broken":          {"<tool_call><function=a\nb></function></tool_call>", []string{"t:<tool_call><function=a\nb></function></tool_call>"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.parts, read(t, Options{Tools: Qwen3Coder, Defs: tools}, "stop", c.text).Parts)
		})
	}
}

func TestCallEndsThinkingThatWasNotClosed(t *testing.T) {
	t.Parallel()
	o := Options{Reasoning: Think, Tools: Qwen3Coder, Inside: true}
	got := read(t, o, "stop", "I write <tool_call> as told.\n<tool_call>\n<function=f>\n</function>\n</tool_call>")
	require.Equal(t, []string{"r:I write <tool_call> as told.\n", "c:f {}"}, got.Parts)
	got = read(t, o, "length", "hm <tool_call>\n<func")
	require.Equal(t, []string{"r:hm <tool_call>\n<func"}, got.Parts)
	got = read(t, o, "stop", "hm <tool_call>\n</think>\n<tool_call><function=f></function></tool_call>")
	require.Equal(t, []string{"r:hm <tool_call>\n", "t:\n", "c:f {}"}, got.Parts)
}

func TestTextIsHeldOnlyWhileItMayBeAMark(t *testing.T) {
	t.Parallel()
	p, err := New(Options{Reasoning: Think, Tools: Hermes, Choice: 2})
	require.NoError(t, err)
	require.Empty(t, p.Add("<think"))
	require.Equal(t, []turn.Delta{{Choice: 2, Reasoning: "so"}}, p.Add(">so"))
	require.Equal(t, []turn.Delta{{Choice: 2, Reasoning: " it "}}, p.Add(" it </th"))
	require.Equal(t, []turn.Delta{{Choice: 2, Reasoning: "</then"}}, p.Add("en"))
	require.Equal(t, []turn.Delta{{Choice: 2, Reasoning: "!", Text: "yes"}}, p.Add("!</think>yes<tool"))
	require.Equal(t, []turn.Delta{{Choice: 2, Text: "<toolbox> é"}}, p.Add("box> é\xe2\x82"))
	require.Equal(t, []turn.Delta{{Choice: 2, Text: "€"}}, p.Add("\xac"))
	require.Empty(t, p.Add(`<tool_call>{"name":"f",`))
	got := p.Add(`"arguments":{}}</tool_call>`)
	require.Len(t, got, 1)
	require.Equal(t, turn.CallDelta{Index: 0, ID: CallID("", 0), Name: "f", Arguments: "{}"}, got[0].Calls[0])
	require.Equal(t, 1, p.Calls())
}

func TestIDsComeOfTheSeed(t *testing.T) {
	t.Parallel()
	one := read(t, Options{Tools: Hermes, Seed: "t-1"}, "stop", weather, weather)
	again := read(t, Options{Tools: Hermes, Seed: "t-1"}, "stop", weather+weather)
	other := read(t, Options{Tools: Hermes, Seed: "t-2"}, "stop", weather)
	require.Equal(t, one.Msg, again.Msg)
	require.Regexp(t, "^call_[0-9a-f]{24}$", one.Msg.Calls[0].ID)
	require.NotEqual(t, one.Msg.Calls[0].ID, one.Msg.Calls[1].ID)
	require.NotEqual(t, one.Msg.Calls[0].ID, other.Msg.Calls[0].ID)
}

func TestFinishOtherThanStopStays(t *testing.T) {
	t.Parallel()
	require.Equal(t, "length", read(t, Options{Tools: Hermes}, "length", weather+" and then").Finish)
}

func TestUnknownNamesAreRefused(t *testing.T) {
	t.Parallel()
	_, err := New(Options{Reasoning: "thinking"})
	require.ErrorContains(t, err, `"thinking" is not one of none, think`)
	_, err = New(Options{Tools: "kimi"})
	require.ErrorContains(t, err, `"kimi" is not one of`)
	require.NoError(t, Check("", ""))
}
