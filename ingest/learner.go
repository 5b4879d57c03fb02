package ingest

import (
	"context"
	"fmt"
	"slices"

	"github.com/labstack/echo/v4"

	"icecore/store"
	"icecore/trace"
	"icecore/wire"
)

// learnable are the content types of POST /v1/trajectories/logprobs.
var learnable = map[string]func([]byte, wire.Limits) ([]wire.Item[trace.LearnerLogprobs], error){
	typeJSON:  wire.LearnerLogprobsJSON,
	typeArrow: wire.LearnerLogprobsArrow,
}

func (a *API) learnerLogprobs(c echo.Context) error {
	media := contentType(c)
	decode := learnable[media]
	if decode == nil {
		return unsupported(media, typeJSON, typeArrow)
	}
	return serve(a, c, decode, a.putLearnerLogprobs)
}

// putLearnerLogprobs finds the trajectory of each item, and stores what fits.
func (a *API) putLearnerLogprobs(ctx context.Context, ls []*trace.LearnerLogprobs) ([]store.Outcome, int64, error) {
	found, err := a.findTrajectories(ctx, ls)
	if err != nil {
		return nil, 0, err
	}
	out := make([]store.Outcome, len(ls))
	var posts []*store.LearnerPost
	var where []int
	for i, l := range ls {
		post, wrong := placeLogprobs(l, found[l.TrajectoryID])
		if wrong != nil {
			out[i] = store.Outcome{Status: store.Refused, Err: wrong}
			continue
		}
		posts, where = append(posts, post), append(where, i)
	}
	if len(posts) == 0 {
		return out, 0, nil
	}
	stored, batch, err := a.s.PutLearnerLogprobs(ctx, posts)
	if err != nil {
		return nil, 0, err
	}
	for i, o := range stored {
		out[where[i]] = o
	}
	return out, batch, nil
}

// findTrajectories looks up the rows of a request, all at once. A row may have
// been seen by its learner before it was published; so where one is missing, what
// is stored is merged first.
func (a *API) findTrajectories(ctx context.Context, ls []*trace.LearnerLogprobs) (map[string][]*store.FoundTrajectory, error) {
	var ids []string
	for _, l := range ls {
		ids = append(ids, l.TrajectoryID)
	}
	found, err := a.s.FindTrajectories(ctx, ids)
	if err != nil {
		return nil, err
	}
	ids = slices.DeleteFunc(ids, func(id string) bool { return found[id] != nil })
	if len(ids) == 0 || a.opts.Merge == nil {
		return found, nil
	}
	if err := a.s.WaitDrained(ctx, a.s.NewestBatch()); err != nil {
		return nil, err
	}
	if err := a.opts.Merge(ctx); err != nil {
		return nil, fmt.Errorf("merge: %w", err)
	}
	more, err := a.s.FindTrajectories(ctx, ids)
	for id, rows := range more {
		found[id] = rows
	}
	return found, err
}

// placeLogprobs finds the row that the log-probs are aligned with, and which of
// its spans they speak of.
func placeLogprobs(l *trace.LearnerLogprobs, rows []*store.FoundTrajectory) (*store.LearnerPost, *trace.Error) {
	if len(rows) == 0 {
		return nil, &trace.Error{Code: trace.CodeUnknownTrajectory, Field: "trajectory_id", Message: "no trajectory of this id is known"}
	}
	for _, row := range rows {
		if n := l.Logprobs.Len(); n == row.Length || slices.Contains(leasedLengths(row), n) {
			return &store.LearnerPost{LearnerLogprobs: l, Row: row, Trained: spokenOf(l.Logprobs, row.Trained)}, nil
		}
	}
	return nil, &trace.Error{Code: trace.CodeLengthMismatch, Field: "logprobs", Message: mismatch(l.Logprobs.Len(), rows[0])}
}

// leasedLengths are those that a row has in a lease, which ends it behind the last
// token that it trains: of agents' calls, of auxiliary ones, or of both.
func leasedLengths(row *store.FoundTrajectory) (ends []int) {
	for _, kinds := range [][]trace.Kind{trace.Kinds, {trace.KindAgent}, {trace.KindAuxiliary}} {
		end := 0
		for _, s := range row.Trained {
			if slices.Contains(kinds, s.Kind) {
				end = s.End
			}
		}
		if end > 0 && end != row.Length && !slices.Contains(ends, end) {
			ends = append(ends, end)
		}
	}
	return ends
}

// spokenOf gives the spans that the log-probs reach to, without those of a kind
// of which they say nothing while they say something of the other: a lease trains
// only the kinds that it was asked for, and elsewhere a learner has fillers.
func spokenOf(l *trace.Logprobs, spans []store.TrainedSpan) (out []store.TrainedSpan) {
	spoken := map[trace.Kind]bool{}
	for _, s := range spans {
		if s.End <= l.Len() {
			out = append(out, s)
			spoken[s.Kind] = spoken[s.Kind] || !blank(l, s.Start, s.End)
		}
	}
	if spoken[trace.KindAgent] == spoken[trace.KindAuxiliary] {
		return out
	}
	return slices.DeleteFunc(out, func(s store.TrainedSpan) bool { return !spoken[s.Kind] })
}

// blank says that there is nothing but "not known" and the filler 0.
func blank(l *trace.Logprobs, from, to int) bool {
	for i := from; i < to; i++ {
		if v, known := l.At(i); known && v != 0 {
			return false
		}
	}
	return true
}

func mismatch(n int, row *store.FoundTrajectory) string {
	text := fmt.Sprintf("has %d entries, and the trajectory %d tokens", n, row.Length)
	ends := leasedLengths(row)
	for _, end := range ends {
		text += fmt.Sprintf(" (%d as far as a lease delivers it)", end)
	}
	if n+1 == row.Length || slices.Contains(ends, n+1) {
		text += "; one is missing: entry t belongs to token t (T alignment), so put a null before log-probs that begin with those of the second token"
	}
	return text
}
