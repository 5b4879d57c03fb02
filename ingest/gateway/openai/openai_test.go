package openai_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"icecore/ingest/gateway/body"
	"icecore/ingest/gateway/openai"
	"icecore/ingest/gateway/turn"
)

func TestFault(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault            turn.Fault
		status           int
		after, kind, say string
	}{
		{turn.Fault{Status: 400, Code: "invalid_request", Field: "messages[0].role", Message: "messages[0].role: no"}, 400, "", "invalid_request_error", "no"},
		{turn.Fault{Status: 503, Code: "overloaded", Message: "no engine is free"}, 503, "1", "server_error", "overloaded: no engine is free"},
		{turn.Fault{Status: 503, Code: "engine_unreachable", Message: "down", RetryAfter: 1500 * time.Millisecond}, 503, "2", "server_error", "overloaded"},
		{turn.Fault{Status: 429, Code: "rate_limited", Message: "wait"}, 429, "1", "rate_limit_error", "wait"},
		{turn.Fault{Status: 404, Code: "unknown_model", Message: "m"}, 404, "", "invalid_request_error", "m"},
		{turn.Fault{Status: 401, Code: "unauthorized", Message: "k"}, 401, "", "authentication_error", "k"},
		{turn.Fault{Status: 403, Code: "forbidden", Message: "k"}, 403, "", "permission_error", "k"},
		{turn.Fault{Code: "storage_failed", Message: "s"}, 500, "", "server_error", "s"},
	} {
		status, header, text := openai.Fault(&c.fault)
		require.Equal(t, c.status, status)
		require.Equal(t, c.after, header.Get("Retry-After"))
		require.Equal(t, "application/json", header.Get("Content-Type"))
		var got struct {
			Error struct {
				Message, Type, Code string
				Param               *string
			}
		}
		require.NoError(t, json.Unmarshal(text, &got))
		require.Equal(t, c.kind, got.Error.Type)
		require.Contains(t, got.Error.Message, c.say)
		require.NotEmpty(t, got.Error.Code)
		require.Equal(t, c.fault.Field != "", got.Error.Param != nil)
	}
	_, _, text := openai.Fault(&turn.Fault{Status: http.StatusBadGateway, Code: "engine_error", Message: "broke", Cause: http.ErrHandlerTimeout})
	require.NotContains(t, string(text), http.ErrHandlerTimeout.Error(), "a cause is not told")
}

func TestInput(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		arguments, want string
		invalid         bool
	}{
		"plain":                    {`{"input":"*** Begin Patch\n+a \"b\"\n"}`, "*** Begin Patch\n+a \"b\"\n", false},
		"space":                    {" {\n \"input\" : \"a\" } \n", "a", false},
		"empty":                    {`{"input":""}`, "", false},
		"escapes":                  {`{"input":"\\\/\b\f\n\r\t\u00e9\ud83d\ude00"}`, "\\/\b\f\n\r\té😀", false},
		"a line's end as it is":    {"{\"input\":\"a\nb\"}", "a\nb", true},
		"no JSON":                  {"*** Begin Patch\n", "*** Begin Patch\n", true},
		"another member":           {`{"patch":"x"}`, `{"patch":"x"}`, true},
		"no string":                {`{"input":5}`, `{"input":5}`, true},
		"a second member":          {`{"input":"a","b":1}`, "a", true},
		"cut in its head":          {`{"inp`, `{"inp`, true},
		"cut in the text":          {`{"input":"a`, "a", true},
		"cut in an escape":         {`{"input":"a\u00`, `a\u00`, true},
		"cut behind a high half":   {`{"input":"a\ud83d`, "a\ufffd", true},
		"not closed":               {`{"input":"a"`, "a", true},
		"an escape that is none":   {`{"input":"\d\u12\n"}`, "\\d\\u12\n", true},
		"lone halves":              {`{"input":"\ud83dx\ude00\ud83d\ud83d\ude00"}`, "\ufffdx\ufffd\ufffd😀", false},
		"goes on behind":           {`{"input":"a"} x`, "a", true},
		"nothing":                  {"", "", true},
		"a space within its name":  {`{"in put":"a"}`, `{"in put":"a"}`, true},
		"much space at the bounds": {strings.Repeat(" ", 1<<16) + `{"input":"a"}`, "a", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var in openai.Input
			got := in.Add(c.arguments)
			got += in.End()
			require.Equal(t, c.want, got)
			require.Equal(t, c.invalid, in.Invalid())
		})
	}
}

// Wherever arguments are cut, the pieces give the text.
func TestInput_CutAnywhere(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		plain, err := json.Marshal(map[string]string{"input": text})
		require.NoError(t, err)
		arguments := rapid.SampledFrom([]string{string(plain), openai.CustomArguments(text), text}).Draw(t, "arguments")
		var whole, cut openai.Input
		want := whole.Add(arguments)
		want += whole.End()
		if arguments != text {
			require.Equal(t, text, want)
			require.False(t, whole.Invalid())
		}
		got := ""
		for at := 0; at < len(arguments); {
			n := rapid.IntRange(1, len(arguments)-at).Draw(t, "n")
			got += cut.Add(arguments[at : at+n])
			at += n
		}
		got += cut.End()
		require.Equal(t, want, got)
		require.Equal(t, whole.Invalid(), cut.Invalid())
	})
}

func FuzzInput(f *testing.F) {
	f.Add(`{"input":"a\ud83d\ude00\q"}`, 5)
	f.Add(`{ "input" : "`+"\n", 3)
	f.Fuzz(func(t *testing.T, arguments string, at int) {
		var whole, cut openai.Input
		want := whole.Add(arguments)
		want += whole.End()
		at = min(max(at, 0), len(arguments))
		got := cut.Add(arguments[:at]) + cut.Add(arguments[at:])
		got += cut.End()
		require.Equal(t, want, got)
		var strict struct {
			Input *string `json:"input"`
		}
		if !whole.Invalid() {
			require.NoError(t, json.Unmarshal([]byte(strings.ToValidUTF8(arguments, "\ufffd")), &strict))
		}
	})
}

func TestSampling(t *testing.T) {
	t.Parallel()
	f, err := body.Read([]byte(`{"temperature":0.70,"top_k":20,"seed":9007199254740993,"stop":"x","min_p":null,
		"chat_template_kwargs":{"enable_thinking":false},"store":true,"user":"u","metadata":{},
		"return_token_ids":false,"echo":true,"verbosity":"low","mine":1}`))
	require.NoError(t, err)
	var r turn.Request
	require.NoError(t, openai.Sampling(&r, f, "mine"))
	require.Equal(t, map[string]json.RawMessage{
		"temperature": json.RawMessage("0.70"), "top_k": json.RawMessage("20"), "seed": json.RawMessage("9007199254740993"),
		"stop": json.RawMessage(`["x"]`), "chat_template_kwargs": json.RawMessage(`{"enable_thinking":false}`),
	}, r.Sampling)
	var dropped []string
	for _, w := range r.Rewrites {
		require.Equal(t, "dropped_field", w.What)
		dropped = append(dropped, w.Where)
	}
	require.Equal(t, []string{"return_token_ids", "echo", "verbosity"}, dropped)

	for _, wrong := range []string{`{"temperature":"hot"}`, `{"stop":[1]}`, `{"stop":{}}`, `{"logit_bias":[]}`, `{"stop":[""]}`} {
		f, err := body.Read([]byte(wrong))
		require.NoError(t, err)
		var fault *turn.Fault
		require.ErrorAs(t, openai.Sampling(&turn.Request{}, f), &fault, wrong)
		require.NotEmpty(t, fault.Field)
	}
}

func TestCalls(t *testing.T) {
	t.Parallel()
	c := openai.Calls{TraceID: "0190-aa"}
	call, begins, arguments := c.Add(turn.CallDelta{Index: 3, Arguments: `{"a`})
	require.Nil(t, call, "nothing can be told without a name")
	require.False(t, begins)
	require.Empty(t, arguments)
	call, begins, arguments = c.Add(turn.CallDelta{Index: 5, ID: "x", Name: "g"})
	require.True(t, begins)
	require.Equal(t, 1, call.At)
	require.Empty(t, arguments)
	call, begins, arguments = c.Add(turn.CallDelta{Index: 3, Name: "f", Arguments: `":1}`})
	require.True(t, begins)
	require.Equal(t, 0, call.At)
	require.Equal(t, "call_0190aa_0", call.ID)
	require.Equal(t, `{"a":1}`, arguments)
	_, begins, arguments = c.Add(turn.CallDelta{Index: 5, ID: "x", Name: "g", Arguments: "{}"})
	require.False(t, begins, "a name that comes again says nothing new")
	require.Equal(t, "{}", arguments)
	c.Add(turn.CallDelta{Index: 9, Arguments: "z"})
	var rest []string
	c.Rest(func(call *openai.Call, arguments string) { rest = append(rest, call.ID+arguments) })
	require.Equal(t, []string{"call_0190aa_2z"}, rest)
}
