package engine

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// token is one event of vLLM's with all that we ask for.
const token = `{"id":"chatcmpl-018f","object":"chat.completion.chunk","created":1764470000,"model":"policy","choices":[{"index":0,` +
	`"delta":{"content":" hello \u00e9\n"},"logprobs":{"content":[{"token":"token_id:14990","logprob":-0.48721271753311157,` +
	`"bytes":[116,111,107,101,110,95,105,100,58,49,52,57,57,48],"top_logprobs":[]}]},"finish_reason":null,"token_ids":[14990]}]}`

func TestDecodeOneToken(t *testing.T) {
	t.Parallel()
	var c chunk
	for range 2 { // it is used again
		require.NoError(t, c.decode([]byte(token)))
		require.Len(t, c.choices, 1)
		at := c.choices[0]
		require.Equal(t, " hello é\n", at.text)
		require.Equal(t, []int32{14990}, at.ids)
		require.Equal(t, []position{{id: 14990, value: -0.48721271753311157, known: true}}, at.logprobs)
		require.True(t, at.hasIDs)
		require.False(t, at.hasPrompt)
		require.Empty(t, at.finish)
		require.Equal(t, "chatcmpl-018f", c.id)
	}
}

func TestDecodeOddPlaces(t *testing.T) {
	t.Parallel()
	var c chunk
	require.NoError(t, c.decode([]byte(`{"choices":[
	  {"index":1,"message":{"content":[{"type":"text","text":"a"},{"type":"x"},{"text":"b"}],"reasoning":"r","reasoning_content":"r",
	    "tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":{"x":[1, "]"]}}},{"id":"c2","function":{"name":"g","arguments":""}}]},
	   "finish_reason":"eos_token","stop_reason":151645,"response_token_ids":[],"prompt_token_ids":null,
	   "meta_info":{"output_token_logprobs":[[NaN,1,"x"],[-Infinity,2,null],["-0.5",3],[null,4,"y"]],"weight_version":7,"completion_tokens":4,"finish_reason":{"type":"stop","matched":151645}}}],
	  "usage":{"prompt_tokens":10,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":8},"completion_tokens_details":{"reasoning_tokens":2},"x":NaN},
	  "sglext":{"input_ids":[5,6],"output_ids":[[1],null]},"metadata":{"weight_version":"7","weight_versions":[{"version":"7","start":0,"end":4}]}}`)))
	at := c.choices[0]
	require.Equal(t, 1, at.index)
	require.Equal(t, "ab", at.text)
	require.Equal(t, "r", at.reasoning)
	require.Equal(t, `{"x":[1, "]"]}`, at.calls[0].Arguments)
	require.Equal(t, 1, at.calls[1].Index)
	require.Equal(t, "stop", at.finish)
	require.Equal(t, "151645", at.stop)
	require.True(t, at.hasIDs)
	require.False(t, at.hasPrompt)
	require.Len(t, at.meta, 4)
	require.True(t, math.IsNaN(at.meta[0].value))
	require.True(t, math.IsInf(at.meta[1].value, -1))
	require.InDelta(t, -0.5, at.meta[2].value, 0)
	require.False(t, at.meta[3].known)
	require.Equal(t, "7", at.weight)
	require.EqualValues(t, 4, *at.completionN)
	require.Equal(t, []int32{5, 6}, c.input)
	require.Equal(t, [][]int32{{1}, nil}, c.output)
	require.Equal(t, []versionSpan{{"7", 0, 4}}, c.spans)
	c.usage.parse()
	require.EqualValues(t, 8, *c.usage.usage.Cached)
	require.EqualValues(t, 2, *c.usage.usage.Reasoning)
	require.True(t, json.Valid(c.usage.usage.Raw))
}

func TestDecodeErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]engineFault{
		`{"error":{"message":"m","type":"T","code":503}}`: {message: "m", kind: "T", status: 503},
		`{"error":"m"}`: {message: "m"},
		`{"object":"error","message":"m","code":400,"type":"T"}`: {message: "m", kind: "T", status: 400},
		`{"error":{"message":"m","code":"context_length"}}`:      {message: "m"},
	} {
		var c chunk
		require.NoError(t, c.decode([]byte(text)))
		require.Equal(t, &want, c.fault, text)
	}
	var c chunk
	require.NoError(t, c.decode([]byte(`{"error":null,"choices":[]}`)))
	require.Nil(t, c.fault)
	for _, text := range []string{``, `[]`, `{`, `{"choices":[{"token_ids":[1}]}`,
		`{"choices":[{"delta":{"content":"x}]}`, `{"a" 1}`, `{"choices":[}`, `{} {}`, `{"a":"\ud83"}`[:9]} {
		var c chunk
		require.ErrorIs(t, c.decode([]byte(text)), errJSON, text)
	}
}

func TestTextsAsJSONHasThem(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		raw, err := json.Marshal(text)
		require.NoError(t, err)
		s := scan{b: raw}
		require.Equal(t, text, s.str())
	})
	for raw, want := range map[string]string{`"\ud83d\ude00\/"`: "😀/", `"\ud83d x"`: "\uFFFD x", `"\ud83d\u0041"`: "\uFFFDA", "\"a\xffb\"": "a\uFFFDb", `"\ude00\n"`: "\uFFFD\n"} {
		s := scan{b: []byte(raw)}
		require.Equal(t, want, s.str(), raw)
		require.NoError(t, s.err)
	}
}

func TestRepair(t *testing.T) {
	t.Parallel()
	require.Equal(t, `{"a":null,"b":[null,null,-1],"NaN":"NaN \"Infinity"}`, string(repair([]byte(`{"a":NaN,"b":[Infinity,-Infinity,-1],"NaN":"NaN \"Infinity"}`))))
}

// What encoding/json takes is read as it reads it, and nothing makes it panic.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{token, `{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"a\":1}"}}]}}]}`,
		`{"error":{"message":"x","code":400}}`, `{"choices":[],"usage":{"prompt_tokens":1},"sglext":{"output_ids":[[1]]}}`,
		`{"choices":[{"text":"a","logprobs":{"tokens":["token_id:1"],"token_logprobs":[NaN]}}]}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var c, again chunk
		err := c.decode(data)
		if utf8.Valid(data) && json.Valid(data) && strings.HasPrefix(strings.TrimSpace(string(data)), "{") {
			var plain struct {
				Choices []struct {
					Delta struct{ Content *string }
				}
			}
			// Keys that come twice, or in another case, are read otherwise.
			if json.Unmarshal(data, &plain) == nil && err == nil && strings.Count(strings.ToLower(string(data)), `"content"`) == 1 && !strings.Contains(string(data), `\u`) {
				for i, p := range plain.Choices {
					if p.Delta.Content != nil && strings.Contains(string(data), `"content"`) && len(c.choices) == len(plain.Choices) && c.choices[i].text != "" {
						require.Equal(t, *p.Delta.Content, c.choices[i].text)
					}
				}
			}
		}
		for _, at := range c.choices {
			require.True(t, utf8.ValidString(at.text+at.reasoning))
			for _, id := range at.ids {
				require.GreaterOrEqual(t, id, int32(0))
			}
		}
		require.Equal(t, err, again.decode(data))
		require.True(t, utf8.Valid(repair(data)))
		if json.Valid(data) {
			require.True(t, json.Valid(repair(data)))
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	data := []byte(token)
	b.Run("chunk", func(b *testing.B) {
		var c chunk
		b.SetBytes(int64(len(data)))
		b.ReportAllocs()
		for b.Loop() {
			if err := c.decode(data); err != nil {
				b.Fatal(err)
			}
		}
	})
	// For comparison.
	b.Run("encoding/json", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		b.ReportAllocs()
		for b.Loop() {
			var c struct {
				Choices []struct {
					Index    int
					Delta    struct{ Content string }
					TokenIDs []int32 `json:"token_ids"`
					Logprobs struct {
						Content []struct {
							Token   string
							Logprob float64
						}
					}
				}
			}
			if err := json.Unmarshal(data, &c); err != nil {
				b.Fatal(err)
			}
		}
	})
}
