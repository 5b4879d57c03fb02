package engine

import "strconv"

func readCount(s *scan) *int64 {
	if v, ok := s.count(); ok {
		return &v
	}
	return nil
}

func (u *usage) read(s *scan) {
	raw := s.raw()
	if len(raw) == 0 || raw[0] != '{' {
		return
	}
	u.has = true
	u.raw = append(u.raw[:0], raw...)
}

// parse reads the counts: only the last usage of a stream matters, and some servers
// send one with every token.
func (u *usage) parse() {
	s := scan{b: u.raw}
	u.usage.Prompt, u.usage.Completion, u.usage.Cached, u.usage.Reasoning = nil, nil, nil, nil
	s.open('{')
	for key, ok := s.member(); ok; key, ok = s.member() {
		switch string(key) {
		case "prompt_tokens":
			u.usage.Prompt = readCount(&s)
		case "completion_tokens":
			u.usage.Completion = readCount(&s)
		case "reasoning_tokens":
			u.usage.Reasoning = readCount(&s)
		case "prompt_tokens_details", "completion_tokens_details":
			if !s.open('{') {
				continue
			}
			for key, ok := s.member(); ok; key, ok = s.member() {
				switch string(key) {
				case "cached_tokens":
					u.usage.Cached = readCount(&s)
				case "reasoning_tokens":
					u.usage.Reasoning = readCount(&s)
				default:
					s.skip()
				}
			}
		default:
			s.skip()
		}
	}
	if u.usage.Raw = nil; len(u.raw) <= maxUsage {
		u.usage.Raw = repair(u.raw)
	}
}

// maxUsage is how large an engine's usage may be to be kept as it is, in bytes; of a
// larger one the counts are.
const maxUsage = 4 << 10

func finishWord(t []byte) string {
	switch string(t) {
	case "":
		return ""
	case "stop", "length", "tool_calls", "content_filter", "abort", "error":
		return finishWords[string(t)]
	case "eos", "eos_token", "end_turn", "stop_sequence":
		return "stop"
	case "max_tokens":
		return "length"
	case "tool_use", "function_call":
		return "tool_calls"
	}
	return strconv.Quote(string(t)) // no word of ours: told apart by its quotes
}

// finishWords spares an allocation per answer's end.
var finishWords = map[string]string{"stop": "stop", "length": "length", "tool_calls": "tool_calls",
	"content_filter": "content_filter", "abort": "abort", "error": "error"}
