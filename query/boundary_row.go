package query

import (
	"fmt"

	"icecore/trace"
)

// compareRow compares what is delivered with what is published of the span, and
// with the trace.
func (i *inspection) compareRow() {
	row, m := &i.answer.Stations.Row, &i.answer.Stations.Merge
	if !row.Present {
		return
	}
	want := spanText(*m.Row, *m.Start, *m.End-*m.Start)
	have := "no span"
	if row.Start != nil {
		have = spanText(*m.Row, *row.Start, *row.End-*row.Start)
	}
	c := check{Name: "row.span", OK: want == have && row.TrajectoryID == m.TrajectoryID, Sequence: "row", Position: row.Start,
		Detail: fmt.Sprintf("published is %s (%s), delivered %s (%s)", want, m.TrajectoryID, have, row.TrajectoryID)}
	if !c.OK {
		c.Kind, c.Expected, c.Got = spanDiffers, want, have
	}
	i.note(c)
	t := &i.answer.Stations.Trace
	if row.Start == nil || !t.Present {
		return
	}
	i.note(idPair("response", "the trace", "the row", t.response, row.response).compare("row.ids", i.around))
	i.note(i.maskCheck())
	logprobs := t.logprobs
	if logprobs == nil {
		logprobs = unknownLogprobs(len(t.response))
	}
	i.note(logprobPair("the trace", "the row", logprobs, row.logprobs).compare("row.logprobs", i.around))
	i.note(i.contextCheck())
}

func unknownLogprobs(n int) *trace.Logprobs {
	l := &trace.Logprobs{}
	for range n {
		l.AppendUnknown()
	}
	return l
}

// maskCheck: every sampled token is trained, all over the span.
func (i *inspection) maskCheck() check {
	row := &i.answer.Stations.Row
	p := &pair{sequence: "response", what: "mask bits", wantName: "the span", gotName: "the row", wantLen: len(row.response), gotLen: len(row.mask),
		same: func(_, j int) bool { return row.mask[j] == 1 }, kind: func(int) string { return maskDiffers },
		want: func(int) any { return 1 }, got: func(j int) any { return row.mask[j] }}
	c := p.compare("row.mask", i.around)
	if !row.Trainable {
		c.OK, c.Kind, c.Detail = false, maskDiffers, "the row says that the span is not trainable"
	}
	return c
}

// contextCheck: what stands before the span is what the engine had read. Only a
// row that says that its history is rewritten may have it otherwise.
func (i *inspection) contextCheck() check {
	row := &i.answer.Stations.Row
	c := idPair("prompt", "the trace", "the row", i.answer.Stations.Trace.prompt, row.prompt).compare("row.context", i.around)
	switch {
	case c.OK:
		c.Detail = fmt.Sprintf("all %d ids before the span are the prompt", len(row.prompt))
	case row.Rewritten:
		c.OK, c.Detail = true, c.Detail+"; the row says so: history_rewritten"
	default:
		c.Kind = contextDiffers
	}
	return c
}
