package sqlapi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"unicode/utf8"

	"icecore/problem"
	"icecore/store"
	"icecore/store/warehouse"
)

// errGone says that the client has left. It is answered to nobody.
var errGone = errors.New("the client has left")

// neverRan is the answer to a statement that did not get its turn. It may be sent
// again, unlike one that ran into its time limit.
func neverRan(client context.Context, s *statement, err error) error {
	if client.Err() != nil {
		return errGone
	}
	return problem.New(problem.TooManyQueries, fmt.Sprintf("other statements ran for all of its %s", s.timeout)).Because(err)
}

// fault is the answer to a statement that gave no result. What the statement
// itself did wrong counts first: it would do it again.
//
// All faults of a statement are 422, sql_refused too: a 403 would say that
// somebody else may run it, and nobody may.
func fault(ctx, client context.Context, s *statement, err error) error {
	f, ok := errors.AsType[*warehouse.Fault](err)
	switch {
	case ok && f.Code != warehouse.FaultInterrupted:
		return faultProblem(f, s.sql).Because(err)
	case client.Err() != nil:
		return errGone
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return problem.New(problem.SQLTimeout, fmt.Sprintf("the statement did not end within %s", s.timeout)).Because(err)
	case ok:
		return faultProblem(f, s.sql).Because(err)
	case errors.Is(err, store.ErrClosed), errors.Is(err, warehouse.ErrClosed):
		return problem.New(problem.ShuttingDown, "the server is shutting down").Because(err)
	case errors.Is(err, store.ErrWarehouse), errors.Is(err, warehouse.ErrOutOfOrder):
		return problem.New(problem.WarehouseBehind, "the warehouse does not answer for now; it is tried again").Because(err)
	}
	if _, ok := errors.AsType[*spoolError](err); ok && errors.Is(err, syscall.ENOSPC) {
		return problem.New(problem.DiskFull, "the disk is full: the result could not be kept until it is sent").Because(err)
	}
	return problem.Internal(err)
}

func faultProblem(f *warehouse.Fault, sql string) *problem.Problem {
	p := problem.New(problem.Code(f.Code), f.Message)
	if f.Position >= 0 && f.Position <= len(sql) {
		at := f.Position
		p.Position = &at
		p.Line, p.Column = place(sql, at)
	}
	return p
}

// place gives line and column, in characters, of a byte of a text; both count
// from 1.
func place(text string, at int) (line, column int) {
	before := text[:at]
	start := strings.LastIndexByte(before, '\n') + 1
	return 1 + strings.Count(before, "\n"), 1 + utf8.RuneCountInString(before[start:])
}

// outcome names how a statement ended, for metrics and log: ok, client_gone, or
// the code of its problem.
func outcome(err error) string {
	if err == nil {
		return "ok"
	}
	if p, ok := errors.AsType[*problem.Problem](err); ok {
		return string(p.Code)
	}
	return "client_gone"
}
