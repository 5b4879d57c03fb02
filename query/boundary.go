package query

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/labstack/echo/v4"

	"icecore/merge"
	"icecore/merge/pass"
	"icecore/problem"
	"icecore/query/enginebody"
	"icecore/store"
)

// BoundaryStore is what the boundary check needs of the store beyond what
// reading and delivery use.
type BoundaryStore interface {
	Place(ctx context.Context, traceID string) (*store.TracePlace, error)
	HashedPrompts(ctx context.Context, rolloutKey int64) ([]store.HashedPrompt, error)
	Published(ctx context.Context, rolloutKey, traceKey int64, policy string) (*store.PublishedTrace, error)
}

// Bounds of window=.
const (
	defaultWindow = 8
	maxWindow     = 1000
)

// inspection is one boundary check on its way from station to station.
type inspection struct {
	a      *API
	policy merge.Policy
	around int
	answer *boundaryAnswer
	place  *store.TracePlace
	trace  *store.StoredTrace
	// compared are the places of the bodies that carry something.
	compared []placedRun
	finish   enginebody.Finish
	// published is the stored merge of the trace, remade the same made again.
	published *store.PublishedTrace
	remade    *pass.Merged
}

// boundary follows one sampled response from the engine's body to the delivered
// row and compares, station by station, token by token.
func (a *API) boundary(c echo.Context) error {
	if err := only(c, "policy", "end_of_turn", "window", "tokens"); err != nil {
		return err
	}
	id, err := pathID(c, "trace_id")
	if err != nil {
		return err
	}
	p, err := policyOf(c)
	if err != nil {
		return err
	}
	around, err := intParam(c, "window", defaultWindow, 0, maxWindow)
	if err != nil {
		return err
	}
	tokens := c.QueryParam("tokens")
	switch tokens {
	case "":
		tokens = "window"
	case "full", "window", "none":
	default:
		return problem.BadParameter("tokens", "is not full, window or none")
	}
	if tokens == "none" {
		around = -1
	}
	answer, err := a.inspect(c.Request().Context(), id, p, int(around))
	if err != nil {
		return a.traceFault(c.Request().Context(), id, err)
	}
	answer.showTokens(tokens, int(around))
	return writeJSON(c, answer)
}

// inspect visits the stations in order. Damaged rows are findings; only what
// lets nothing be said at all is an error.
func (a *API) inspect(ctx context.Context, id string, p merge.Policy, around int) (*boundaryAnswer, error) {
	i := &inspection{a: a, policy: p, around: around, answer: &boundaryAnswer{TraceID: id, Policy: p.String(), Checks: []check{}}}
	s := &i.answer.Stations
	for _, visit := range []struct {
		name string
		at   *station
		do   func(context.Context) error
	}{
		{"tape", &s.Tape.station, i.tape}, {"trace", &s.Trace.station, i.stored}, {"body", &s.Body.station, i.body},
		{"merge", &s.Merge.station, i.merge}, {"row", &s.Row.station, i.row},
		{"merge", nil, i.anew},
	} {
		if err := safely(ctx, visit.do); err != nil {
			if !damage(ctx, err) {
				return nil, err
			}
			if visit.at != nil {
				visit.at.Present, visit.at.Note = false, err.Error()
			}
			i.note(check{Name: visit.name + ".readable", Kind: unreadable, Detail: err.Error()})
		}
	}
	i.compare(ctx)
	i.answer.OK = true
	for _, c := range i.answer.Checks {
		i.answer.OK = i.answer.OK && c.OK
	}
	return i.answer, nil
}

// safely turns a panic over damaged rows into an error.
func safely(ctx context.Context, do func(context.Context) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v\n%s", p, debug.Stack())
		}
	}()
	return do(ctx)
}

// damage tells errors about what is stored from those about the request and the
// server.
func damage(ctx context.Context, err error) bool {
	var p *problem.Problem
	fleeting := errors.As(fault(err), &p) && p.Code != problem.Internal(err).Code
	return ctx.Err() == nil && !fleeting
}

func (i *inspection) note(c check) { i.answer.Checks = append(i.answer.Checks, c) }

// agree notes a comparison that is no list.
func (i *inspection) agree(name, kind string, ok bool, expected, got any, detail string) {
	c := check{Name: name, OK: ok, Detail: detail}
	if !ok {
		c.Kind, c.Expected, c.Got = kind, expected, got
	}
	i.note(c)
}

// compare makes the checks between stations, in the order of the data's way.
func (i *inspection) compare(ctx context.Context) {
	i.compareBody()
	i.compareUsage()
	i.compareFinish()
	i.compareTape(ctx)
	i.compareContent()
	i.compareMerge()
	i.compareRow()
}

// showTokens has the stations list the tokens that were asked for: all, those
// around the first position of the response that differs, or none.
func (b *boundaryAnswer) showTokens(tokens string, around int) {
	if tokens == "none" {
		return
	}
	r := &shownRange{0, b.Stations.longest()}
	if tokens == "window" {
		at := around
		for _, c := range b.Checks {
			if !c.OK && c.Sequence == "response" && c.Position != nil {
				at = *c.Position
				break
			}
		}
		r.From, r.To = min(max(0, at-around), r.To), min(at+around+1, r.To)
	}
	b.Shown = r
	b.Stations.show(r)
}
