package enginetest

import (
	"net/http"
	"strconv"
)

// completions writes /v1/completions of vLLM and SGLang: text in, or ids; nothing is
// parsed. Ids stand in each choice.
type completions struct {
	generation string // of SGLang; empty: vLLM
	byID       bool
	offset     map[int]int // characters of each choice's text so far
}

func (d *completions) prepare(c *call) error {
	ids, err := c.req.promptIDs()
	if err != nil {
		return refuse(http.StatusBadRequest, "%s", err)
	}
	if c.script.Server.NoTokenIn && c.req.Prompt[0] != '"' {
		return refuse(http.StatusBadRequest, "prompt must be a text")
	}
	c.readPrompt(ids)
	d.byID = d.generation == "" && c.req.ReturnTokensAsTokenIDs && !c.script.Logprobs.NoTokenIDs
	d.offset = map[int]int{}
	return nil
}

func (d *completions) begin(*call) {}

func (d *completions) open(dst []byte, c *call) []byte {
	dst = append(dst, `{"id":`...)
	dst = appendString(dst, "cmpl-"+c.id)
	dst = append(dst, `,"object":"text_completion","created":`...)
	dst = strconv.AppendInt(dst, c.created, 10)
	dst = append(dst, `,"model":`...)
	dst = appendString(dst, c.req.Model)
	return append(dst, `,"choices":[`...)
}

func (d *completions) choice(dst []byte, c *call, a *answer, from, to int, text, finish string) []byte {
	dst = append(dst, `{"index":`...)
	dst = strconv.AppendInt(dst, int64(a.index), 10)
	dst = append(dst, `,"text":`...)
	dst = appendString(dst, text)
	dst = append(dst, `,"logprobs":`...)
	if told := c.toldLogprobs(a, from, to); c.req.wantsLogprobs() && told != nil && to > from {
		dst = d.logprobs(dst, told, a.index)
	} else {
		dst = append(dst, "null"...)
	}
	dst = (&chat{vllm: d.generation == "", generation: d.generation}).finish(dst, c, a, finish)
	if !c.req.ReturnTokenIDs {
		return append(dst, '}')
	}
	if prompt := c.toldPrompt(); prompt != nil && from == 0 {
		dst = append(dst, `,"prompt_token_ids":`...)
		dst = appendIDs(dst, prompt)
	}
	if ids := c.toldIDs(a, from, to); ids != nil {
		dst = append(dst, `,"token_ids":`...)
		dst = appendIDs(dst, ids)
	}
	return append(dst, '}')
}

// logprobs writes the lists that completions have.
func (d *completions) logprobs(dst []byte, told []toldLogprob, index int) []byte {
	list := func(name string, each func(dst []byte, t toldLogprob) []byte) {
		dst = append(append(append(dst, '"'), name...), `":[`...)
		for i, t := range told {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = each(dst, t)
		}
		dst = append(dst, ']')
	}
	dst = append(dst, '{')
	list("text_offset", func(dst []byte, t toldLogprob) []byte {
		at := d.offset[index]
		d.offset[index] += len([]rune(lossy([]byte(Token(t.id)))))
		return strconv.AppendInt(dst, int64(at), 10)
	})
	dst = append(dst, ',')
	list("token_logprobs", func(dst []byte, t toldLogprob) []byte { return t.append(dst) })
	dst = append(dst, ',')
	list("tokens", func(dst []byte, t toldLogprob) []byte { return appendToken(dst, t.id, d.byID) })
	dst = append(dst, ',')
	list("top_logprobs", func(dst []byte, t toldLogprob) []byte {
		dst = appendToken(append(dst, '{'), t.id, d.byID)
		return append(t.append(append(dst, ':')), '}')
	})
	return append(dst, '}')
}

func (d *completions) head(dst []byte, _ *call) []byte { return dst }

func (d *completions) piece(dst []byte, c *call, p *piece) []byte {
	dst = d.open(append(dst, "data: "...), c)
	text := p.text
	if p.apart { // what a parser held: here there is none
		text = ""
	}
	return append(d.choice(dst, c, p.answer, p.from, p.to, text, p.finish), "]}\n\n"...)
}

func (d *completions) tail(dst []byte, c *call) []byte {
	if c.req.StreamOptions.IncludeUsage && c.script.Chunks.Usage != "absent" {
		dst = append(d.open(append(dst, "data: "...), c), `],"usage":`...)
		dst = append(c.appendUsage(dst), "}\n\n"...)
	}
	return dst
}

func (d *completions) whole(dst []byte, c *call) []byte {
	dst = d.open(dst, c)
	for i, a := range c.answers {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = d.choice(dst, c, a, 0, len(a.drawn()), string(a.plain), a.finish)
	}
	dst = append(dst, ']')
	if c.script.Chunks.Usage != "absent" {
		dst = append(dst, `,"usage":`...)
		dst = c.appendUsage(dst)
	}
	return append(dst, '}')
}

func (d *completions) event(dst []byte, c *call, status int, message string) []byte {
	return (&chat{}).event(dst, c, status, message)
}

// generate writes vLLM's /inference/v1/generate: ids in and out, no text, no prompt.
type generate struct{}

func (d *generate) prepare(c *call) error {
	if len(c.req.TokenIDs) == 0 {
		return refuse(http.StatusBadRequest, "token_ids is missing")
	}
	c.readPrompt(c.req.TokenIDs)
	return nil
}

func (d *generate) begin(*call) {}

func (d *generate) open(dst []byte, c *call) []byte {
	dst = append(dst, `{"request_id":`...)
	return append(appendString(dst, c.id), `,"choices":[`...)
}

func (d *generate) choice(dst []byte, c *call, a *answer, from, to int, finish string) []byte {
	dst = append(dst, `{"index":`...)
	dst = strconv.AppendInt(dst, int64(a.index), 10)
	dst = append(dst, `,"logprobs":`...)
	if told := c.toldLogprobs(a, from, to); c.req.wantsLogprobs() && told != nil && to > from {
		dst = appendContent(dst, told, true, 0)
	} else {
		dst = append(dst, "null"...)
	}
	dst = (&chat{}).finish(dst, c, a, finish)
	dst = append(dst, `,"token_ids":`...)
	return append(appendIDs(dst, c.toldIDs(a, from, to)), '}')
}

func (d *generate) head(dst []byte, _ *call) []byte { return dst }

func (d *generate) piece(dst []byte, c *call, p *piece) []byte {
	if p.apart {
		return dst // an abort's last chunk is lost
	}
	dst = d.open(append(dst, "data: "...), c)
	return append(d.choice(dst, c, p.answer, p.from, p.to, p.finish), "]}\n\n"...)
}

func (d *generate) tail(dst []byte, _ *call) []byte { return dst }

func (d *generate) whole(dst []byte, c *call) []byte {
	dst = d.open(dst, c)
	for i, a := range c.answers {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = d.choice(dst, c, a, 0, len(a.drawn()), a.finish)
	}
	return append(dst, `],"prompt_logprobs":null,"kv_transfer_params":null}`...)
}

func (d *generate) event(dst []byte, c *call, status int, message string) []byte {
	return (&chat{}).event(dst, c, status, message)
}
