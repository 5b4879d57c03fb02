package enginetest

import (
	"net/http"
	"strconv"
)

// native writes SGLang's /generate.
type native struct {
	sent map[int]int // bytes of each choice's text that have gone, when incremental
}

func (d *native) prepare(c *call) error {
	ids := c.req.InputIDs
	if ids == nil {
		ids = Encode(c.req.Text)
	}
	if len(ids) == 0 {
		return refuse(http.StatusBadRequest, "either text or input_ids should be provided")
	}
	c.readPrompt(ids)
	d.sent = map[int]int{}
	return nil
}

func (d *native) begin(*call) {}

func (d *native) head(dst []byte, _ *call) []byte { return dst }

func (d *native) piece(dst []byte, c *call, p *piece) []byte {
	dst = append(dst, "data: "...)
	from, text := 0, p.plain
	if c.script.Server.Incremental {
		from, text = p.from, p.plain[d.sent[p.index]:]
		d.sent[p.index] = len(p.plain)
	}
	repeated := []int32(nil)
	if p.apart && p.to > p.from { // the last id once more
		repeated = p.ids[p.from:p.to]
	}
	return append(d.object(dst, c, p.answer, from, string(text), p.finish, repeated), "\n\n"...)
}

func (d *native) object(dst []byte, c *call, a *answer, from int, text, finish string, repeated []int32) []byte {
	dst = append(dst, `{"text":`...)
	dst = appendString(dst, text)
	dst = append(dst, `,"output_ids":`...)
	ids := c.toldIDs(a, min(from, len(a.drawn())), len(a.drawn()))
	if repeated != nil {
		ids = append(ids[:len(ids):len(ids)], repeated...)
	}
	dst = appendIDs(dst, ids)
	dst = append(dst, `,"meta_info":`...)
	if c.script.fault(c.attempt, c.req.Stream, "no_finish") != nil {
		finish = ""
	}
	dst = c.appendMeta(dst, a, from, c.req.ReturnLogprob, finish)
	if c.req.N > 1 {
		dst = append(dst, `,"index":`...)
		dst = strconv.AppendInt(dst, int64(a.index), 10)
	}
	return append(dst, '}')
}

func (d *native) tail(dst []byte, _ *call) []byte { return dst }

func (d *native) whole(dst []byte, c *call) []byte {
	if c.req.N > 1 {
		dst = append(dst, '[')
	}
	for i, a := range c.answers {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = d.object(dst, c, a, 0, string(a.plain), a.finish, nil)
	}
	if c.req.N > 1 {
		dst = append(dst, ']')
	}
	return dst
}

func (d *native) event(dst []byte, c *call, status int, message string) []byte {
	return (&chat{}).event(dst, c, status, message)
}
