package query

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"icecore/merge"
	"icecore/merge/pass"
	"icecore/query/trajectory"
	"icecore/store"
	"icecore/trace"
)

// merge is what the policy's published result says of the trace, set beside what
// the policy makes of the same calls now.
func (i *inspection) merge(ctx context.Context) error {
	s := &i.answer.Stations.Merge
	if i.place == nil {
		s.Note = "where the trace lies cannot be read"
		return nil
	}
	p, err := i.publish(ctx)
	if err != nil {
		return err
	}
	i.published = p
	s.Present, s.Disposition = true, p.Disposition
	if p.Row >= 0 {
		row, start, end := p.Row, p.SpanStart, p.SpanStart
		if n := i.place.ResponseLength; n != nil {
			end += *n
		}
		s.Row, s.Start, s.End = &row, &start, &end
	}
	if p.Into != nil {
		s.TrajectoryID = p.Into.ID
	}
	s.Boundary = publishedBoundary(p)
	return nil
}

// anew is the merge made again of the calls that the published one saw, if
// making the row did not do that already.
func (i *inspection) anew(ctx context.Context) error {
	if i.published == nil || i.remade != nil {
		return nil
	}
	calls, err := i.a.s.LoadCalls(ctx, []int64{i.place.RolloutKey}, i.published.Through)
	if err != nil {
		return err
	}
	i.remade = pass.Run(calls[0], i.policy)
	return nil
}

// keeper is a sink that remembers the merge which a row was made of.
type keeper struct {
	trajectory.Sink
	made *pass.Merged
}

// Row implements trajectory.Sink.
func (k *keeper) Row(r *trajectory.Row, w *trajectory.Want, of *trajectory.Rollout) error {
	k.made = r.Merged()
	return k.Sink.Row(r, w, of)
}

// publish has the rollout merged and reads what that made of the trace. Between
// the two the policy may have had to make room for others: once more, then.
func (i *inspection) publish(ctx context.Context) (*store.PublishedTrace, error) {
	for range 2 {
		if err := i.a.m.Ensure(ctx, []int64{i.place.RolloutKey}, i.policy); err != nil {
			return nil, err
		}
		p, err := i.a.s.Published(ctx, i.place.RolloutKey, i.place.TraceKey, i.policy.String())
		if p != nil || err != nil {
			return p, err
		}
	}
	return nil, errors.New("nothing of this trace is published, although its rollout was merged")
}

func publishedBoundary(p *store.PublishedTrace) *mergeBoundary {
	if p.Boundary == "" {
		return nil
	}
	b := &mergeBoundary{Kind: p.Boundary, Shared: p.Shared}
	if p.NearestID != "" {
		b.Nearest = &p.NearestID
	}
	return b
}

func (b *mergeBoundary) String() string {
	if b == nil {
		return "none"
	}
	nearest := "no call"
	if b.Nearest != nil {
		nearest = *b.Nearest
	}
	return fmt.Sprintf("%s with %s, %d shared", b.Kind, nearest, b.Shared)
}

// compareMerge compares the published result with the one made anew.
func (i *inspection) compareMerge() {
	s, m := &i.answer.Stations.Merge, i.remade
	if m == nil {
		return
	}
	call := merge.None
	for c := range m.Calls.Calls {
		if m.Calls.Calls[c].TraceID == i.answer.TraceID {
			call = c
		}
	}
	if call == merge.None {
		i.note(check{Name: "merge.disposition", Kind: mergeDiffers, Detail: "the merge made anew does not see this trace"})
		return
	}
	n := &m.Result.Nodes[call]
	if n.Disposition == merge.Duplicate && n.Standing != merge.None {
		s.StandsFor = m.Calls.Calls[n.Standing].TraceID
	}
	i.agree("merge.disposition", mergeDiffers, string(n.Disposition) == s.Disposition, n.Disposition, s.Disposition,
		fmt.Sprintf("published is %s, made anew %s", s.Disposition, n.Disposition))
	want, have := spanText(n.Row, n.SpanStart, n.ResponseLen), "no span"
	if s.Row != nil {
		have = spanText(*s.Row, *s.Start, *s.End-*s.Start)
	}
	c := check{Name: "merge.span", OK: want == have, Detail: fmt.Sprintf("published is %s, made anew %s", have, want)}
	if !c.OK {
		c.Kind, c.Sequence, c.Expected, c.Got = spanDiffers, "row", want, have
		if n.Row != merge.None {
			c.Position = &n.SpanStart
		}
	}
	i.note(c)
	anew := i.remadeBoundary(call)
	i.agree("merge.boundary", mergeDiffers, anew.String() == s.Boundary.String(), anew.String(), s.Boundary.String(),
		fmt.Sprintf("published is %s, made anew %s", s.Boundary, anew))
}

func spanText(row, start, length int) string {
	if row == merge.None {
		return "no span"
	}
	return fmt.Sprintf("[%d, %d) of row %d", start, start+length, row)
}

func (i *inspection) remadeBoundary(call int) *mergeBoundary {
	for _, b := range i.remade.Result.Boundaries {
		if b.Call != call {
			continue
		}
		out := &mergeBoundary{Kind: string(b.Kind), Shared: b.Shared}
		if b.Nearest != merge.None {
			out.Nearest = &i.remade.Calls.Calls[b.Nearest].TraceID
		}
		return out
	}
	return nil
}

// row makes the row that trains the trace by the export's own way, as an Arrow
// stream, and reads it as a learner does.
func (i *inspection) row(ctx context.Context) error {
	s := &i.answer.Stations.Row
	if i.published == nil || i.published.Row < 0 {
		s.Note = "no row trains this trace"
		if i.published != nil {
			s.Note += ": it is " + i.published.Disposition
		}
		return nil
	}
	into := i.published.Into
	if into == nil {
		return fmt.Errorf("row %d, in which the trace is said to be trained, is not published", i.published.Row)
	}
	var out bytes.Buffer
	key := i.place.RolloutKey
	p := &trajectory.Plan{Policy: i.policy,
		Wants:    []trajectory.Want{{Rollout: key, Through: into.Through, Row: into.Row, Length: into.Length}},
		Rollouts: map[int64]*trajectory.Rollout{key: {Rollout: store.Rollout{Key: key, ID: i.answer.RolloutID}, Rows: 1}}}
	k := &keeper{Sink: trajectory.NewArrow(&out, trace.TrajectorySchema, nil, "")}
	if err := trajectory.Send(ctx, i.a.s, p, k); err != nil {
		return err
	}
	i.remade = k.made
	r, err := ipc.NewReader(&out)
	if err != nil {
		return fmt.Errorf("read the row back: %w", err)
	}
	defer r.Release()
	if !r.Next() {
		return errors.Join(errors.New("the delivered stream holds no row"), r.Err())
	}
	return s.read(r.RecordBatch(), i.answer.TraceID)
}

// read takes what is delivered from a batch of one row.
func (s *rowStation) read(rec arrow.RecordBatch, traceID string) error {
	column := func(name string) arrow.Array { return rec.Column(rec.Schema().FieldIndices(name)[0]) }
	list := func(name string) (values arrow.Array, from, to int64) {
		l := column(name).(*array.List)
		from, to = l.ValueOffsets(0)
		return l.ListValues(), from, to
	}
	values, from, to := list("token_ids")
	tokens := append([]int32{}, values.(*array.Int32).Int32Values()[from:to]...)
	length := len(tokens)
	s.Present, s.Length, s.TrajectoryID = true, &length, column("trajectory_id").ValueStr(0)
	s.Rewritten = column("history_rewritten").(*array.Boolean).Value(0)
	spans, first, last := list("spans")
	field := func(n int) arrow.Array { return spans.(*array.Struct).Field(n) }
	for n := int(first); n < int(last); n++ {
		if field(0).ValueStr(n) != traceID {
			continue
		}
		start, end := int(field(1).(*array.Int32).Value(n)), int(field(2).(*array.Int32).Value(n))
		s.Start, s.End, s.Trainable = &start, &end, field(3).(*array.Boolean).Value(n)
		values, from, _ := list("loss_mask")
		s.mask = append([]int8{}, values.(*array.Int8).Int8Values()[int(from)+start:int(from)+end]...)
		values, from, _ = list("logprobs")
		logprobs := &trace.Logprobs{}
		for at := int(from) + start; at < int(from)+end; at++ {
			if values.IsNull(at) {
				logprobs.AppendUnknown()
			} else {
				logprobs.Append(values.(*array.Float32).Value(at))
			}
		}
		s.hold(tokens[:start:start], tokens[start:end], logprobs)
		return nil
	}
	s.Note = "the row has no span of this trace"
	return nil
}
