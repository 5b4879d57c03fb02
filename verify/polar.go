package verify

import "slices"

// chain is a row of polar_compat in the making.
type chain struct {
	calls []*call // all that joined, in order
}

func (h *chain) last() *call { return h.calls[len(h.calls)-1] }

// polar applies polar_compat. Its chains follow prompts alone; what a chain
// keeps depends on where its turns end.
func polar(j *judgement, calls []*call, endOfTurn *int32) {
	var chains []*chain
	for _, c := range calls {
		if !c.tokenized() {
			j.of[c].disposition = "untokenized"
			continue
		}
		var joins *chain
		for _, h := range chains { // older chains first
			l := h.last()
			if l.p > 0 && l.p <= c.p && l.prompt() == c.prefix(l.p) && (joins == nil || l.p > joins.last().p) {
				joins = h
			}
		}
		if joins == nil {
			joins = &chain{}
			chains = append(chains, joins)
		}
		joins.calls = append(joins.calls, c)
	}
	for _, h := range chains {
		h.build(j, endOfTurn)
	}
}

// endOfTurn is the chain's own, where none is set.
func (h *chain) endOfTurn() *int32 {
	c := h.calls[0]
	if c.r == 0 || c.finish != "stop" && c.finish != "tool_calls" {
		return nil
	}
	return &c.tape.ids(c.length()-1, c.length())[0]
}

func (h *chain) build(j *judgement, endOfTurn *int32) {
	if endOfTurn == nil {
		endOfTurn = h.endOfTurn()
	}
	out := row{namer: h.calls[0]}
	var prev *call
	spans := 0
	for i, c := range h.calls {
		cut := 0
		if prev != nil {
			at, rewritten, ok := join(prev, c, endOfTurn)
			if !ok {
				for _, dropped := range h.calls[i:] {
					j.of[dropped].disposition = "dropped_by_policy"
				}
				break
			}
			cut = at
			out.rewritten = out.rewritten || rewritten
		}
		d := j.of[c]
		d.inRow, d.previous, d.cut = true, prev, cut
		out.length += c.length() - cut
		out.last = c
		if c.r == 0 {
			d.disposition = "empty_response"
		} else {
			d.disposition, d.row, d.spanStart = "trained", len(j.rows), out.length-c.r
			spans++
		}
		prev = c
	}
	if spans == 0 {
		for _, c := range h.calls {
			j.of[c].inRow = false
		}
		return
	}
	j.rows = append(j.rows, out)
}

// join says where in the prompt of c that begins which it adds to the row after
// prev.
func join(prev, c *call, endOfTurn *int32) (cut int, rewritten, ok bool) {
	if endOfTurn == nil {
		return 0, false, false
	}
	tail := c.tape.ids(prev.p, c.p)
	k := slices.Index(tail, *endOfTurn)
	if k < 0 {
		return 0, false, false
	}
	response := prev.tape.ids(prev.p, prev.length())
	if len(response) > 0 && response[len(response)-1] == *endOfTurn {
		k++
	}
	return prev.p + k, !slices.Equal(tail[:k], response), true
}
