package responses

import (
	"strconv"

	"icecore/ingest/gateway/body"
	"icecore/ingest/gateway/openai"
	"icecore/ingest/gateway/turn"
)

// response writes the response object. Whole: with instructions and tools, which may be
// long, and with the items.
func (s *stream) response(status, why string, u turn.Usage, whole bool) []byte {
	b := append([]byte(nil), `{"id":`...)
	b = body.AppendString(b, "resp_"+openai.Short(s.head.ID))
	b = append(b, `,"object":"response","created_at":`...)
	b = strconv.AppendInt(b, s.head.Created, 10)
	b = append(append(append(b, `,"status":"`...), status...), `","background":false,"error":null,"incomplete_details":`...)
	if why == "" {
		b = append(b, "null"...)
	} else {
		b = append(append(append(b, `{"reason":"`...), why...), `"}`...)
	}
	b = append(b, `,"model":`...)
	b = body.AppendString(b, s.head.Model)
	b = append(b, `,"output":[`...)
	if status != inProgress {
		for i, o := range s.items {
			if i > 0 {
				b = append(b, ',')
			}
			b = o.append(b, false)
		}
	}
	b = append(b, `],"previous_response_id":null,"store":false`...)
	for _, m := range repeated {
		raw, said := s.r.Echo[m.name]
		if !said || m.long && !whole {
			raw = []byte(m.otherwise)
		}
		b = appendMember(append(b, ','), object(m.name, raw))
	}
	b = append(b, `,"usage":`...)
	if status == inProgress {
		return append(b, "null}"...)
	}
	return append(appendUsage(b, u), '}')
}

// repeated are the members that an answer repeats, and what it says where the request
// said nothing.
var repeated = []struct {
	name, otherwise string
	long            bool
}{
	{"instructions", "null", true},
	{"max_output_tokens", "null", false},
	{"max_tool_calls", "null", false},
	{"metadata", "{}", false},
	{"parallel_tool_calls", "true", false},
	{"prompt_cache_key", "null", false},
	{"reasoning", `{"effort":null,"summary":null}`, false},
	{"safety_identifier", "null", false},
	{"service_tier", `"default"`, false},
	{"temperature", "null", false},
	{"text", `{"format":{"type":"text"}}`, false},
	{"tool_choice", `"auto"`, false},
	{"tools", "[]", true},
	{"top_p", "null", false},
	{"truncation", `"disabled"`, false},
	{"user", "null", false},
}

func appendUsage(b []byte, u turn.Usage) []byte {
	b = append(b, `{"input_tokens":`...)
	b = strconv.AppendInt(b, turn.Count(u.Prompt), 10)
	b = append(b, `,"input_tokens_details":{"cached_tokens":`...)
	b = strconv.AppendInt(b, turn.Count(u.Cached), 10)
	b = append(b, `,"cache_write_tokens":0},"output_tokens":`...)
	b = strconv.AppendInt(b, turn.Count(u.Completion), 10)
	b = append(b, `,"output_tokens_details":{"reasoning_tokens":`...)
	b = strconv.AppendInt(b, turn.Count(u.Reasoning), 10)
	b = append(b, `},"total_tokens":`...)
	b = strconv.AppendInt(b, openai.Total(u), 10)
	return append(b, '}')
}
