package enginetest

import (
	"net/http"
	"strconv"
)

// chat writes Chat Completions. The engines differ in where ids stand; the fields say
// how this one does, by face and request.
type chat struct {
	// What the face has: vLLM's ids in answers, SGLang's generation, or neither.
	vllm       bool
	generation string

	parsesThinking, parsesTools bool
	ids, logprobs, byID         bool // told in vLLM's way; log-probs at all; token_id:N
	sglangAsks
	reasoning string // the member's name
	top       int
}

func (d *chat) prepare(c *call) error {
	if err := c.template(); err != nil {
		return err
	}
	q, s := c.req, &c.script.Server
	d.parsesThinking = !s.NoReasoningParser
	d.parsesTools = !s.NoToolParser && len(c.seen.Tools) > 0 && c.seen.ToolChoice != "none"
	d.logprobs = q.wantsLogprobs()
	d.top = q.TopLogprobs
	d.reasoning = "reasoning_content"
	if d.vllm {
		d.ids = q.ReturnTokenIDs
		d.byID = q.ReturnTokensAsTokenIDs && !c.script.Logprobs.NoTokenIDs
		if !c.script.Chunks.OldReasoning {
			d.reasoning = "reasoning"
		}
		if s.NoToolParser && len(c.seen.Tools) > 0 && (c.seen.ToolChoice == "" || c.seen.ToolChoice == "auto") {
			return refuse(http.StatusBadRequest, `"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set`)
		}
		if q.IncludeReasoning != nil && !*q.IncludeReasoning && d.parsesThinking {
			d.ids, d.logprobs = false, false // as vLLM does
		}
		return nil
	}
	return d.prepareSGLang(c)
}

func (d *chat) begin(c *call) {
	for _, a := range c.answers {
		a.parser.thinking, a.parser.tools = d.parsesThinking, d.parsesTools
		a.parser.id = c.id + "_" + strconv.Itoa(a.index)
	}
}

func (d *chat) open(dst []byte, c *call) []byte {
	dst = append(dst, `data: {"id":`...)
	dst = appendString(dst, c.answerID())
	dst = append(dst, `,"object":"chat.completion.chunk","created":`...)
	dst = strconv.AppendInt(dst, c.created, 10)
	dst = append(dst, `,"model":`...)
	dst = appendString(dst, c.req.Model)
	return append(dst, `,"choices":[`...)
}

func (d *chat) shut(dst []byte, c *call) []byte {
	if c.script.Chunks.Usage == "continuous" || c.req.StreamOptions.ContinuousUsage {
		dst = append(dst, `,"usage":`...)
		dst = c.appendUsage(dst)
	}
	return append(dst, "}\n\n"...)
}

func (d *chat) head(dst []byte, c *call) []byte {
	if c.script.Chunks.NoRole {
		return dst
	}
	for _, a := range c.answers {
		dst = d.open(dst, c)
		dst = append(dst, `{"index":`...)
		dst = strconv.AppendInt(dst, int64(a.index), 10)
		dst = append(dst, `,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null`...)
		dst = d.prompt(dst, c, true)
		dst = append(dst, "}]"...)
		dst = d.prompt(dst, c, false)
		if d.vllm && c.req.ReturnPromptText {
			dst = append(dst, `,"prompt_text":`...)
			dst = appendString(dst, Decode(c.prompt))
		}
		dst = d.shut(dst, c)
	}
	return dst
}

// prompt writes vLLM's prompt_token_ids where they belong: in the choice or beside.
func (d *chat) prompt(dst []byte, c *call, inChoice bool) []byte {
	ids := c.toldPrompt()
	if !d.ids || ids == nil || inChoice != (c.script.IDs.Prompt == "in_choice") {
		return dst
	}
	dst = append(dst, `,"prompt_token_ids":`...)
	return appendIDs(dst, ids)
}

func (d *chat) piece(dst []byte, c *call, p *piece) []byte {
	apart := p.finish != "" && (p.apart || c.script.Chunks.FinishApart || !d.vllm)
	// Text that a parser holds back goes as an empty delta where its ids are wanted.
	silent := len(p.deltas) == 0 && p.to > p.from && p.finish == "" &&
		(!d.ids && !d.logprobs || c.script.IDs.Answer == "held_missing")
	if !silent && (!p.apart || p.to > p.from || len(p.deltas) > 0) {
		dst = d.chunk(dst, c, p, apart)
	}
	if apart {
		dst = d.chunk(dst, c, &piece{answer: p.answer, from: p.to, to: p.to, finish: p.finish}, false)
	}
	return dst
}

// chunk writes one event. With held back, the finish comes in the next.
func (d *chat) chunk(dst []byte, c *call, p *piece, heldBack bool) []byte {
	dst = d.open(dst, c)
	dst = append(dst, `{"index":`...)
	dst = strconv.AppendInt(dst, int64(p.index), 10)
	dst = append(dst, `,"delta":`...)
	dst = d.delta(dst, c, p)
	dst = append(dst, `,"logprobs":`...)
	told := []toldLogprob(nil)
	if d.logprobs && p.to > p.from {
		told = c.toldLogprobs(p.answer, p.from, p.to)
	}
	if told != nil {
		dst = appendContent(dst, told, d.byID, d.top)
	} else {
		dst = append(dst, "null"...)
	}
	finish := p.finish
	if heldBack {
		finish = ""
	}
	dst = d.finish(dst, c, p.answer, finish)
	dst = d.chunkIDs(dst, c, p)
	dst = append(dst, "}]"...)
	if c.script.Chunks.NoRole && p.from == 0 && p.to > 0 {
		dst = d.prompt(dst, c, false)
	}
	return d.shut(dst, c)
}

// chunkIDs writes token_ids of a chunk, for engines that have them there.
func (d *chat) chunkIDs(dst []byte, c *call, p *piece) []byte {
	if !d.ids || c.script.IDs.Answer == "misplaced" {
		return dst
	}
	ids := c.toldIDs(p.answer, p.from, p.to)
	if len(ids) == 0 {
		return dst
	}
	dst = append(dst, `,"token_ids":`...)
	return appendIDs(dst, ids)
}

func (d *chat) finish(dst []byte, c *call, a *answer, finish string) []byte {
	dst = append(dst, `,"finish_reason":`...)
	if finish == "" || c.script.fault(c.attempt, c.req.Stream, "no_finish") != nil {
		return append(dst, "null"...)
	}
	dst = appendString(dst, finish)
	name := `,"stop_reason":`
	stop := a.stop
	if !d.vllm {
		if d.generation == "" {
			return dst
		}
		name = `,"matched_stop":`
		if stop == nil && (finish == "stop" || finish == "tool_calls") && c.script.Sampling.End == "" {
			stop = ImEnd
		}
	}
	return appendStop(append(dst, name...), stop)
}

func appendStop(dst []byte, stop any) []byte {
	switch v := stop.(type) {
	case int32:
		return strconv.AppendInt(dst, int64(v), 10)
	case string:
		return appendString(dst, v)
	}
	return append(dst, "null"...)
}

func (d *chat) tail(dst []byte, c *call) []byte {
	dst = d.sglext(dst, c)
	if c.req.StreamOptions.IncludeUsage && c.script.Chunks.Usage != "absent" {
		dst = append(d.open(dst, c), `],"usage":`...)
		dst = c.appendUsage(dst)
		dst = append(dst, "}\n\n"...)
	}
	return dst
}

func (d *chat) event(dst []byte, _ *call, status int, message string) []byte {
	dst = append(dst, `data: {"error":{"message":`...)
	dst = appendString(dst, message)
	dst = append(dst, `,"type":"InternalServerError","param":null,"code":`...)
	dst = strconv.AppendInt(dst, int64(status), 10)
	return append(dst, "}}\n\n"...)
}
