package enginetest

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
)

// sglangAsks is what a request asked of SGLang.
type sglangAsks struct {
	promptIDs, meta, responseIDs bool // inside the choices of an answer that is not streamed
	extIn, extOut, extFramed     bool
}

// openAIMembers are those that a server which refuses others takes.
var openAIMembers = []string{"model", "messages", "tools", "tool_choice", "stream", "stream_options", "n", "max_tokens",
	"max_completion_tokens", "temperature", "top_p", "stop", "seed", "presence_penalty", "frequency_penalty", "logit_bias",
	"logprobs", "top_logprobs", "response_format", "parallel_tool_calls", "user", "reasoning_effort", "store", "metadata"}

func (d *chat) prepareSGLang(c *call) error {
	q, s := c.req, &c.script.Server
	if d.generation == "" {
		if s.RefuseUnknown {
			var members map[string]json.RawMessage
			_ = json.Unmarshal(c.entry.Body, &members) // it was read before
			for name := range members {
				if !slices.Contains(openAIMembers, name) {
					return refuse(http.StatusBadRequest, "Unrecognized request argument supplied: %s", name)
				}
			}
		}
		return nil
	}
	if len(q.InputIDs) > 0 && !s.NoTokenIn {
		c.prompt = q.InputIDs
	}
	if q.ReturnTokenIDs && d.generation != gen0513 {
		switch {
		case q.Stream && s.StreamIDs:
			d.ids = true
		case q.Stream:
			return refuse(http.StatusBadRequest, "return_token_ids is not supported with stream=true for chat completions")
		default:
			d.responseIDs, d.promptIDs = true, true
		}
	}
	if !q.Stream {
		d.meta = q.ReturnMetaInfo
		d.promptIDs = d.promptIDs || q.ReturnPromptTokenIDs
	}
	if d.generation == genSglext {
		d.extIn = s.SglextAlways || q.SglextInput || c.header.Get("X-Sglext-Return-Input-Ids") == "1"
		d.extOut = s.SglextAlways || q.SglextOutput || c.header.Get("X-Sglext-Return-Output-Ids") == "1"
		d.extFramed = c.header.Get("X-Sglext-Ids-Framed") == "1"
	}
	return nil
}

// ext writes the sglext object; false: there is nothing in it.
func (d *chat) ext(dst []byte, c *call) ([]byte, bool) {
	dst = append(dst, `"sglext":{`...)
	n := len(dst)
	if prompt := c.toldPrompt(); d.extIn && prompt != nil {
		dst = append(dst, `"input_ids":`...)
		dst = append(appendIDs(dst, prompt), ',')
	}
	if d.extOut && c.script.IDs.Answer != "none" && c.script.IDs.Answer != "in_logprobs" {
		dst = append(dst, `"output_ids":[`...)
		for i, a := range c.answers {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendIDs(dst, c.toldIDs(a, 0, len(a.drawn())))
		}
		dst = append(dst, "],"...)
	}
	if len(dst) == n {
		return dst, false
	}
	dst[len(dst)-1] = '}'
	return dst, true
}

// sglext writes the chunk between a stream's finish and its usage.
func (d *chat) sglext(dst []byte, c *call) []byte {
	ext, there := d.ext(nil, c)
	if !there {
		return dst
	}
	if d.extFramed {
		dst = append(dst, "event: sglext_ids\n"...)
	}
	dst = append(d.open(dst, c), "],"...)
	return append(append(dst, ext...), "}\n\n"...)
}

// sglangWhole writes what stands beside the choices.
func (d *chat) sglangWhole(dst []byte, c *call) []byte {
	if d.generation == "" {
		return dst
	}
	versions := c.answers[0].versions
	last := c.opened
	if n := len(versions); n > 0 {
		last = versions[n-1].Version
	}
	dst = append(dst, `,"metadata":{"weight_version":`...)
	dst = appendString(dst, last)
	if c.script.Weights.Spans {
		dst = append(dst, `,"weight_versions":[`...)
		for i, v := range versions {
			end := len(c.answers[0].drawn())
			if i+1 < len(versions) {
				end = versions[i+1].Start
			}
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(dst, `{"version":`...)
			dst = appendString(dst, v.Version)
			dst = append(dst, `,"start":`...)
			dst = strconv.AppendInt(dst, int64(v.Start), 10)
			dst = append(dst, `,"end":`...)
			dst = append(strconv.AppendInt(dst, int64(end), 10), '}')
		}
		dst = append(dst, ']')
	}
	dst = append(dst, '}')
	if ext, there := d.ext(nil, c); there {
		dst = append(append(dst, ','), ext...)
	}
	return dst
}

// sglangChoice writes what stands in a whole answer's choice.
func (d *chat) sglangChoice(dst []byte, c *call, a *answer) []byte {
	if prompt := c.toldPrompt(); d.promptIDs && prompt != nil {
		dst = append(dst, `,"prompt_token_ids":`...)
		dst = appendIDs(dst, prompt)
	}
	if ids := c.toldIDs(a, 0, len(a.drawn())); d.responseIDs && ids != nil {
		name := `,"token_ids":`
		if c.script.IDs.Answer == "misplaced" {
			name = `,"response_token_ids":`
		}
		dst = appendIDs(append(dst, name...), ids)
	}
	if d.meta {
		dst = append(dst, `,"meta_info":`...)
		dst = c.appendMeta(dst, a, 0, d.logprobs, a.finish)
	}
	return dst
}

// appendMeta writes SGLang's meta_info, with the log-probs of ids from the given one on.
func (c *call) appendMeta(dst []byte, a *answer, from int, logprobs bool, finish string) []byte {
	n := len(a.drawn())
	dst = append(dst, `{"id":`...)
	dst = appendString(dst, c.id)
	dst = append(dst, `,"finish_reason":`...)
	dst = c.appendReason(dst, a, finish)
	dst = append(dst, `,"prompt_tokens":`...)
	dst = strconv.AppendInt(dst, int64(len(c.prompt)), 10)
	dst = append(dst, `,"completion_tokens":`...)
	dst = strconv.AppendInt(dst, int64(n), 10)
	dst = append(dst, `,"cached_tokens":0,"weight_version":`...)
	version := c.opened
	if k := len(a.versions); k > 0 {
		version = a.versions[k-1].Version
	}
	dst = appendString(dst, version)
	ids := c.toldIDs(a, from, n)
	if told := c.toldLogprobs(a, from, n); logprobs && told != nil && ids != nil {
		if c.script.IDs.Answer != "" { // only those whose ids are told
			told = told[max(0, len(told)-len(ids)):]
		}
		dst = append(dst, `,"output_token_logprobs":[`...)
		for i, t := range told {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(t.append(append(dst, '[')), ',')
			dst = append(strconv.AppendInt(dst, int64(t.id), 10), ',')
			dst = append(appendToken(dst, t.id, false), ']')
		}
		dst = append(dst, ']')
	}
	return append(dst, '}')
}

func (c *call) appendReason(dst []byte, a *answer, finish string) []byte {
	switch finish {
	case "":
		return append(dst, "null"...)
	case "length":
		dst = append(dst, `{"type":"length","length":`...)
		return append(strconv.AppendInt(dst, int64(len(a.ids)), 10), '}')
	case "abort":
		return append(dst, `{"type":"abort","message":"Aborted"}`...)
	}
	stop := a.stop
	if stop == nil && c.script.Sampling.End == "" {
		stop = ImEnd
	}
	return append(appendStop(append(dst, `{"type":"stop","matched":`...), stop), '}')
}
