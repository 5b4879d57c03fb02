package continuity

import (
	"context"
	"strings"

	"icecore/ingest/gateway/turn"
)

// The tokeniser of these tests: a byte is an id, and there are some marks and merges,
// so that most texts have several tokenisations.
var (
	marks  = []string{"<|im_start|>", "<|im_end|>", "<|endoftext|>"}
	merges = []string{"th", "in", "the", "\":", "\n\n", "user", "assistant", " a", "ab", "abc", "é", "hello"}
	pieces = func() map[int32]string {
		out := map[int32]string{}
		for i := range int32(256) {
			out[i] = string([]byte{byte(i)})
		}
		for i, m := range marks {
			out[256+int32(i)] = m
		}
		for i, m := range merges {
			out[512+int32(i)] = m
		}
		return out
	}()
)

const imEnd, endOfText = int32(257), int32(258)

// options are the ids that text may begin with, the longest last.
func options(text string) []int32 {
	for i, m := range marks {
		if strings.HasPrefix(text, m) {
			return []int32{256 + int32(i)}
		}
	}
	out := []int32{int32(text[0])}
	for i, m := range merges {
		if strings.HasPrefix(text, m) {
			at := len(out)
			for at > 1 && len(pieces[out[at-1]]) > len(m) {
				at--
			}
			out = append(out[:at], append([]int32{512 + int32(i)}, out[at:]...)...)
		}
	}
	return out
}

// encode is how the tokeniser does it: always the longest. With pick, a sampler that
// takes any.
func encode(text string, pick func(n int) int) []int32 {
	ids := []int32{}
	for text != "" {
		all := options(text)
		id := all[len(all)-1]
		if pick != nil {
			id = all[pick(len(all))]
		}
		ids = append(ids, id)
		text = text[len(pieces[id]):]
	}
	return ids
}

func decodeBytes(ids []int32) string {
	var out strings.Builder
	for _, id := range ids {
		out.WriteString(pieces[id])
	}
	return out.String()
}

// template is a ChatML with switches.
type template struct {
	dropThinking bool   // of all turns but the last
	end          string // empty: <|im_end|>\n
}

func (p template) render(messages []turn.Message, generate bool) string {
	var out strings.Builder
	end := p.end
	if end == "" {
		end = "<|im_end|>\n"
	}
	for i, m := range messages {
		out.WriteString("<|im_start|>" + m.Role + "\n")
		if m.Reasoning != nil && (!p.dropThinking || i == len(messages)-1) {
			out.WriteString("<think>" + *m.Reasoning + "</think>")
		}
		out.WriteString(m.Text())
		for _, c := range m.Calls {
			out.WriteString("<tool_call>" + c.Name + c.Arguments + "</tool_call>")
		}
		out.WriteString(end)
	}
	if generate {
		out.WriteString("<|im_start|>assistant\n")
	}
	return out.String()
}

// engine has the token tools, and counts how they are used.
type engine struct {
	template template
	messages []turn.Message
	err      map[string]error
	asked    []string
	decoded  int // ids
}

func (e *engine) use(tool string) error {
	e.asked = append(e.asked, tool)
	return e.err[tool]
}

func (e *engine) Render(context.Context) ([]int32, error) {
	return encode(e.template.render(e.messages, true), nil), e.use("render")
}

func (e *engine) Detokenize(_ context.Context, ids []int32) (string, error) {
	e.decoded += len(ids)
	return string([]rune(decodeBytes(ids))), e.use("detokenize") // a byte that is no rune becomes U+FFFD
}

func (e *engine) Tokenize(_ context.Context, text string) ([]int32, error) {
	return encode(text, nil), e.use("tokenize")
}

func said(role, text string) turn.Message {
	return turn.Message{Role: role, Content: turn.TextOf(text)}
}

// thought is an answer as a model gives it, in full.
func thought(thinking, text, arguments string) turn.Message {
	m := said(turn.RoleAssistant, text)
	if thinking != "" {
		m.Reasoning = &thinking
	}
	if arguments != "" {
		m.Calls = []turn.Call{{ID: "call_1", Name: "f", Arguments: arguments}}
	}
	return m
}

// called is what is held of a call: the prompt as the engine renders it, the answer
// sampled by pick.
func called(id string, p template, history []turn.Message, answer turn.Message, end string, pick func(int) int) *Held {
	prompt := encode(p.render(history, true), nil)
	wrote := strings.TrimPrefix(template{end: "\x00"}.render([]turn.Message{answer}, false), "<|im_start|>assistant\n")
	wrote = strings.TrimSuffix(wrote, "\x00") + end
	return &Held{
		TraceID: id, Messages: append(append([]turn.Message{}, history...), answer),
		Model: "policy", ToolsHash: "tools", ParamsHash: "params",
		Tokens: append(prompt, encode(wrote, pick)...), PromptLen: len(prompt), Ended: end != "",
	}
}

// smallest is a sampler that never takes a merge.
func smallest(int) int { return 0 }
