package engine

import (
	"bytes"
	"math"
)

// position is one sampled token as a log-probs list tells it.
type position struct {
	id    int32 // -1: not told
	value float64
	known bool
}

var tokenID = []byte("token_id:")

// readLogprobs reads a choice's logprobs: those of chat ({content: [{token, logprob}]}),
// or those of completions ({tokens: […], token_logprobs: […]}).
func (c *choice) readLogprobs(s *scan) {
	if !s.open('{') {
		return // null
	}
	from := s.i - 1
	tokens, values := 0, 0
	for key, ok := s.member(); ok; key, ok = s.member() {
		switch string(key) {
		case "content":
			if !s.open('[') {
				continue
			}
			c.hasLogprobs = true
			for s.item(']') {
				c.logprobs = append(c.logprobs, readPosition(s))
			}
		case "token_logprobs":
			if !s.open('[') {
				continue
			}
			c.hasLogprobs = true
			for ; s.item(']'); values++ {
				p := c.position(values)
				p.value, p.known = s.number()
			}
		case "tokens":
			if !s.open('[') {
				continue
			}
			for ; s.item(']'); tokens++ {
				c.position(tokens).id = idOf(s.text())
			}
		default:
			s.skip()
		}
	}
	if tokens != values && tokens > 0 { // its two lists disagree
		for i := range c.logprobs {
			c.logprobs[i].id = -1
		}
		c.logprobs = c.logprobs[:min(values, len(c.logprobs))]
	}
	c.rawLogprobs = s.b[from:s.i]
}

// position gives entry i of the log-probs, making those up to it.
func (c *choice) position(i int) *position {
	for len(c.logprobs) <= i {
		c.logprobs = append(c.logprobs, position{id: -1})
	}
	return &c.logprobs[i]
}

func readPosition(s *scan) position {
	p := position{id: -1}
	if !s.open('{') {
		return p
	}
	for key, ok := s.member(); ok; key, ok = s.member() {
		switch string(key) {
		case "token":
			p.id = idOf(s.text())
		case "token_id", "id":
			if v, ok := s.id(); ok {
				p.id = v
			}
		case "logprob":
			p.value, p.known = s.number()
		default:
			s.skip()
		}
	}
	return p
}

// idOf reads token_id:N; -1: it is another text.
func idOf(token []byte) int32 {
	digits, ok := bytes.CutPrefix(token, tokenID)
	if !ok || len(digits) == 0 || len(digits) > 10 {
		return -1
	}
	v := int64(0)
	for _, d := range digits {
		if d < '0' || d > '9' {
			return -1
		}
		v = v*10 + int64(d-'0')
	}
	if v > math.MaxInt32 {
		return -1
	}
	return int32(v)
}
