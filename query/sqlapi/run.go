package sqlapi

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/labstack/echo/v4"

	"icecore/httpbody"
	"icecore/problem"
	"icecore/query/table"
	"icecore/store/warehouse"
)

// sql serves POST /v1/sql.
func (a *API) sql(c echo.Context) error {
	format, ok := table.Negotiate(c.Request().Header.Values(echo.HeaderAccept))
	if !ok {
		return problem.New(problem.NotAcceptable, "results are "+table.JSON+", "+table.Arrow+", "+table.NDJSON+", "+table.CSV+" or "+table.Parquet)
	}
	// The place comes before the body: as many bodies are held as there are places.
	leave, err := a.gate.enter()
	if err != nil {
		a.metrics.ended(outcome(err), 0, warehouse.Reply{})
		return err
	}
	defer leave()
	s, err := a.read(c)
	if err != nil {
		return err
	}
	kept := newSpool(a.opts.TempDir, spoolMemory)
	defer kept.close()
	started := time.Now()
	reply, err := a.ask(c.Request().Context(), s, kept)
	took := time.Since(started)
	a.metrics.ended(outcome(err), took, reply)
	a.opts.Log.Debug("statement", "sql", s.sql, "params", len(s.params)+len(s.named), "outcome", outcome(err),
		"rows", reply.Rows, "truncated", reply.Truncated, "took", took, "err", err)
	if err != nil {
		if c.Request().Context().Err() != nil {
			panic(http.ErrAbortHandler) // nobody is there to be answered
		}
		return err
	}
	return a.send(c, format, kept, table.Info{Rows: reply.Rows, Truncated: reply.Truncated})
}

// ask waits for its turn, runs the statement, and keeps its result. The error is
// the answer.
func (a *API) ask(client context.Context, s *statement, kept *spool) (warehouse.Reply, error) {
	ctx, cancel := context.WithTimeout(client, s.timeout)
	defer cancel()
	over, err := a.gate.turn(ctx)
	if err != nil {
		return warehouse.Reply{}, neverRan(client, s, err)
	}
	defer over()
	rows := int64(0)
	reply, err := a.w.Ask(ctx, warehouse.Ask{SQL: s.sql, Params: s.params, Named: s.named, MaxRows: s.limit, MaxBytes: a.opts.MaxBytes},
		func(rec arrow.RecordBatch) error {
			rows += rec.NumRows()
			return kept.add(rec)
		})
	if err == nil {
		err = kept.finish()
	}
	if err != nil {
		return warehouse.Reply{}, fault(ctx, client, s, err)
	}
	// What is said about the rows is what is sent.
	reply.Rows = rows
	return reply, nil
}

// Query runs one of icecore's own statements as if a user had sent it: in its
// turn, and within the time limit of a statement that names none. The error is
// the answer.
func (a *API) Query(ctx context.Context, each func(arrow.RecordBatch) error, text string, args ...any) error {
	leave, err := a.gate.enter()
	if err != nil {
		return err
	}
	defer leave()
	s := &statement{sql: text, params: args, timeout: a.opts.Timeout}
	limited, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	over, err := a.gate.turn(limited)
	if err != nil {
		return neverRan(ctx, s, err)
	}
	defer over()
	started := time.Now()
	reply, err := a.w.Ask(limited, warehouse.Ask{SQL: text, Params: args}, each)
	if err != nil {
		err = fault(limited, ctx, s, err)
	}
	a.metrics.ended(outcome(err), time.Since(started), reply)
	if errors.Is(err, errGone) {
		return ctx.Err()
	}
	return err
}

// send writes a kept result.
func (a *API) send(c echo.Context, format table.Format, kept *spool, info table.Info) error {
	h := c.Response().Header()
	h.Set(echo.HeaderContentType, format.ContentType())
	h.Set("Icecore-Row-Count", strconv.FormatInt(info.Rows, 10))
	h.Set("Icecore-Truncated", strconv.FormatBool(info.Truncated))
	h.Set("Trailer", "Icecore-Complete")
	client := httpbody.NewWriter(c.Response(), a.opts.Patience)
	// Nothing is sent before the buffer is full: what goes wrong until then is
	// still answered with its problem.
	out := bufio.NewWriterSize(client, 64<<10)
	w, err := table.New(out, format, kept.schema, info)
	if err != nil {
		return problem.Internal(err)
	}
	err = kept.each(w.Write)
	if err == nil {
		err = w.Close()
	}
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		if !c.Response().Committed {
			return problem.Internal(err)
		}
		w.Break()
		_ = out.Flush()
		c.Response().Flush()
		return err //nolint:wrapcheck // the error handler breaks the connection, and logs it
	}
	client.Done()
	if !c.Response().Committed {
		c.Response().WriteHeader(http.StatusOK) // no byte was written: NDJSON of no rows
	}
	h.Set("Icecore-Complete", "true")
	return nil
}
