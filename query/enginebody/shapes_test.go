package enginebody

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"icecore/trace"
)

// sampled is an answer before an engine writes it down.
type sampled struct {
	prompt, response []int32
	logprobs         []float32 // NaN and infinities among them
}

func (s *sampled) len() int { return len(s.response) }

// part is tokens [from, to) of the answer.
func (s *sampled) part(from, to int) *sampled {
	return &sampled{s.prompt, s.response[from:to], s.logprobs[from:to]}
}

// number writes a log-prob as Python's json does.
func number(v float32) string {
	switch {
	case math.IsNaN(float64(v)):
		return "NaN"
	case math.IsInf(float64(v), 0):
		return map[bool]string{true: "Infinity", false: "-Infinity"}[v > 0]
	}
	return strconv.FormatFloat(float64(v), 'g', -1, 64)
}

func list[T any](values []T, form func(T) string) string {
	parts := make([]string, len(values))
	for i, v := range values {
		parts[i] = form(v)
	}
	return "[" + strings.Join(parts, ",") + "]"
}

func idText(id int32) string { return strconv.Itoa(int(id)) }

func ids(v []int32) string { return list(v, idText) }

// each writes one entry per sampled token.
func (s *sampled) each(form func(id int32, logprob string) string) string {
	at := -1
	return list(s.response, func(id int32) string { at++; return form(id, number(s.logprobs[at])) })
}

func (s *sampled) content(token func(int32) string) string {
	return s.each(func(id int32, p string) string {
		return fmt.Sprintf(`{"token":%q,"logprob":%s,"bytes":null,"top_logprobs":[]}`, token(id), p)
	})
}

func (s *sampled) tuples() string {
	return s.each(func(id int32, p string) string { return fmt.Sprintf(`[%s,%d,"x"]`, p, id) })
}

func (s *sampled) usage() string {
	return fmt.Sprintf(`"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}`, len(s.prompt), s.len(), len(s.prompt)+s.len())
}

func asTokenID(id int32) string { return "token_id:" + idText(id) }

func asText(int32) string { return "a \"data: {\" \nNaN" }

// shape is one way in which an engine writes an answer.
type shape struct {
	name string
	// write gives the answer as one object.
	write func(s *sampled) string
	// chunks gives it as the events of a stream, cut where cuts says.
	chunks func(s *sampled, cuts [][2]int) []string
	// What can be read back.
	prompt, response, logprobs, usage bool
}

// deltas writes one event per cut.
func deltas(form func(first bool, part *sampled) string) func(*sampled, [][2]int) []string {
	return func(s *sampled, cuts [][2]int) (out []string) {
		for i, c := range cuts {
			out = append(out, form(i == 0, s.part(c[0], c[1])))
		}
		return out
	}
}

var shapes = []shape{
	{name: "vllm chat", prompt: true, response: true, logprobs: true, usage: true,
		write: func(s *sampled) string {
			return fmt.Sprintf(`{"id":"chatcmpl-1","object":"chat.completion","prompt_token_ids":%s,"choices":[{"index":0,
				"message":{"role":"assistant","content":"NaN \"x\""},"token_ids":%s,"logprobs":{"content":%s},"finish_reason":"stop"}],%s}`,
				ids(s.prompt), ids(s.response), s.content(asTokenID), s.usage())
		},
		chunks: func(s *sampled, cuts [][2]int) []string {
			out := []string{fmt.Sprintf(`{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}],"prompt_token_ids":%s}`, ids(s.prompt))}
			for _, c := range cuts {
				p := s.part(c[0], c[1])
				out = append(out, fmt.Sprintf(`{"choices":[{"index":0,"delta":{"content":"x"},"token_ids":%s,"logprobs":{"content":%s}}]}`,
					ids(p.response), p.content(asText)))
			}
			return append(out, `{"choices":[],`+s.usage()+`}`)
		}},
	{name: "token_id only", response: true, logprobs: true, usage: true,
		write: func(s *sampled) string {
			return fmt.Sprintf(`{"choices":[{"index":0,"message":{},"logprobs":{"content":%s}}],%s}`, s.content(asTokenID), s.usage())
		},
		chunks: deltas(func(_ bool, p *sampled) string {
			return fmt.Sprintf(`{"choices":[{"index":0,"delta":{},"logprobs":{"content":%s}}]}`, p.content(asTokenID))
		})},
	{name: "vllm completions", prompt: true, response: true, logprobs: true, usage: true,
		write: func(s *sampled) string {
			return fmt.Sprintf(`{"choices":[{"index":0,"text":"x","prompt_token_ids":%s,"token_ids":%s,
				"logprobs":{"tokens":%s,"token_logprobs":%s,"text_offset":[]}}],%s}`, ids(s.prompt), ids(s.response),
				list(s.response, func(id int32) string { return strconv.Quote(asTokenID(id)) }), list(s.logprobs, number), s.usage())
		},
		chunks: deltas(func(first bool, p *sampled) string {
			prompt := "null"
			if first {
				prompt = ids(p.prompt)
			}
			return fmt.Sprintf(`{"choices":[{"index":0,"text":"x","prompt_token_ids":%s,"token_ids":%s,"logprobs":{"token_logprobs":%s}}]}`,
				prompt, ids(p.response), list(p.logprobs, number))
		})},
	{name: "openai chat", logprobs: true, usage: true,
		write: func(s *sampled) string {
			return fmt.Sprintf(`{"choices":[{"index":0,"message":{},"logprobs":{"content":%s,"refusal":null}}],%s}`, s.content(asText), s.usage())
		},
		chunks: deltas(func(_ bool, p *sampled) string {
			return fmt.Sprintf(`{"choices":[{"index":0,"delta":{},"logprobs":{"content":%s}}]}`, p.content(asText))
		})},
	{name: "sglang chat", prompt: true, response: true, logprobs: true, usage: true,
		write: func(s *sampled) string {
			return fmt.Sprintf(`{"choices":[{"index":0,"message":{},"prompt_token_ids":%s,"meta_info":{"output_token_logprobs":%s,
				"completion_tokens":%d}}],%s}`, ids(s.prompt), s.tuples(), s.len(), s.usage())
		},
		chunks: func(s *sampled, cuts [][2]int) []string {
			out := deltas(func(_ bool, p *sampled) string {
				return fmt.Sprintf(`{"choices":[{"index":0,"delta":{},"logprobs":{"content":%s}}]}`, p.content(asText))
			})(s, cuts)
			return append(out, fmt.Sprintf(`{"choices":[],"sglext":{"input_ids":%s,"output_ids":[%s]}}`, ids(s.prompt), ids(s.response)),
				`{"choices":[],`+s.usage()+`}`)
		}},
	{name: "sglang generate, cumulative", prompt: true, response: true, logprobs: true, usage: true, write: sglang,
		chunks: func(s *sampled, cuts [][2]int) (out []string) {
			for _, c := range cuts {
				out = append(out, sglang(s.part(0, c[1])))
			}
			return out
		}},
	{name: "sglang generate, incremental", response: true, logprobs: true, usage: true, write: sglang,
		chunks: func(s *sampled, cuts [][2]int) (out []string) {
			for _, c := range cuts {
				p := s.part(c[0], c[1])
				out = append(out, fmt.Sprintf(`{"text":"x","output_ids":%s,"meta_info":{"id":"a","prompt_tokens":%d,"completion_tokens":%d,
					"output_token_logprobs":%s}}`, ids(p.response), len(s.prompt), c[1], p.tuples()))
			}
			return out
		}},
	{name: "llama.cpp", response: true, logprobs: true, usage: true,
		write: func(s *sampled) string {
			return fmt.Sprintf(`{"content":"x","tokens":%s,"completion_probabilities":%s,"tokens_evaluated":%d,"tokens_predicted":%d}`,
				ids(s.response), s.each(func(id int32, p string) string { return fmt.Sprintf(`{"id":%d,"token":"x","logprob":%s}`, id, p) }), len(s.prompt), s.len())
		},
		chunks: deltas(func(_ bool, p *sampled) string {
			return fmt.Sprintf(`{"content":"x","tokens":%s,"stop":false,"completion_probabilities":%s}`, ids(p.response),
				p.each(func(id int32, p string) string { return fmt.Sprintf(`{"id":%d,"logprob":%s}`, id, p) }))
		})},
	{name: "tgi", response: true, logprobs: true, usage: true,
		write: func(s *sampled) string {
			return fmt.Sprintf(`[{"generated_text":"x","details":{"generated_tokens":%d,"tokens":%s}}]`, s.len(),
				s.each(func(id int32, p string) string {
					return fmt.Sprintf(`{"id":%d,"text":"x","logprob":%s,"special":false}`, id, p)
				}))
		},
		chunks: func(s *sampled, _ [][2]int) (out []string) {
			for i, id := range s.response {
				out = append(out, fmt.Sprintf(`{"index":%d,"token":{"id":%d,"text":"x","logprob":%s},"generated_text":null}`, i+1, id, number(s.logprobs[i])))
			}
			return out
		}},
}

func sglang(s *sampled) string {
	in := list(s.prompt, func(id int32) string { return fmt.Sprintf(`[null,%d,null]`, id) })
	return fmt.Sprintf(`{"text":"x","output_ids":%s,"meta_info":{"id":"a","prompt_tokens":%d,"completion_tokens":%d,
		"input_token_logprobs":%s,"output_token_logprobs":%s}}`, ids(s.response), len(s.prompt), s.len(), in, s.tuples())
}

// TestShapesReadBack: what an engine writes is read as it was sampled, whichever
// engine, streamed or not, however the stream was kept.
func TestShapesReadBack(t *testing.T) {
	t.Parallel()
	for _, sh := range shapes {
		t.Run(sh.name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				s := drawSampled(t)
				sh.check(t, s, ParseResponse([]byte(sh.write(s)), nil), true)
				b := ParseResponse([]byte(keep(t, sh.chunks(s, drawCuts(t, s.len())))), nil)
				sh.check(t, s, b, false)
			})
		})
	}
}

func drawSampled(t *rapid.T) *sampled {
	id := rapid.Int32Range(0, math.MaxInt32)
	s := &sampled{prompt: rapid.SliceOfN(id, 1, 8).Draw(t, "prompt"), response: rapid.SliceOfN(id, 1, 12).Draw(t, "response")}
	odd := []float32{float32(math.NaN()), float32(math.Inf(-1)), float32(math.Inf(1)), -9999, 0}
	s.logprobs = rapid.SliceOfN(rapid.OneOf(rapid.Float32Range(-30, 0), rapid.SampledFrom(odd)), s.len(), s.len()).Draw(t, "logprobs")
	return s
}

// drawCuts cuts an answer into chunks of one token or more.
func drawCuts(t *rapid.T, n int) (cuts [][2]int) {
	for at := 0; at < n; {
		to := rapid.IntRange(at+1, n).Draw(t, "cut")
		cuts = append(cuts, [2]int{at, to})
		at = to
	}
	return cuts
}

// keep draws how a capturer kept the events of a stream.
func keep(t *rapid.T, chunks []string) string {
	flat := make([]string, len(chunks))
	for i, c := range chunks {
		flat[i] = strings.NewReplacer("\n", "", "\t", "").Replace(c)
	}
	sse := "event: message\ndata: " + strings.Join(flat, "\n\ndata: ") + "\n\ndata: [DONE]\n\n"
	quotedSSE, err := json.Marshal(sse)
	require.NoError(t, err)
	switch rapid.SampledFrom([]string{"array", "texts", "sse", "quoted", "tight", "wrapped", "lines"}).Draw(t, "kept") {
	case "texts":
		return list(flat, func(c string) string { return strconv.Quote("data: " + c) })
	case "sse":
		return strings.ReplaceAll(sse, "\n", "\r\n")
	case "quoted":
		return string(quotedSSE)
	case "tight":
		return "data: " + strings.Join(flat, "\ndata: ") + "\n"
	case "wrapped":
		return `{"status":200,"chunks":[` + strings.Join(flat, ",") + `]}`
	case "lines":
		return strings.Join(flat, "\n")
	}
	return "[" + strings.Join(chunks, ",") + "]"
}

func (sh *shape) check(t *rapid.T, s *sampled, b *Body, whole bool) {
	if whole && sh.prompt {
		require.NotEmpty(t, b.Prompt)
	}
	if whole && sh.usage {
		require.Equal(t, int64(s.len()), *b.Usage.Response)
	}
	foundIDs, foundLogprobs := false, false
	for _, r := range b.Prompt {
		require.Equal(t, s.prompt, r.IDs, r.Source)
	}
	for _, r := range b.Response {
		if r.IDs != nil {
			require.Equal(t, s.response, r.IDs, r.Source)
			foundIDs = true
		}
		if r.Logprobs != nil {
			require.Equal(t, bits(&trace.Logprobs{Values: s.logprobs}), bits(r.Logprobs), r.Source)
			foundLogprobs = true
		}
	}
	require.Equal(t, sh.response, foundIDs)
	require.Equal(t, sh.logprobs, foundLogprobs)
}

// bits are comparable: all NaN alike.
func bits(l *trace.Logprobs) (out []uint32) {
	for i := range l.Len() {
		v, known := l.At(i)
		if !known || v != v {
			v = float32(math.NaN())
		}
		out = append(out, math.Float32bits(v))
	}
	return out
}
