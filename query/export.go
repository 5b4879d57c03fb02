package query

import (
	"context"
	"fmt"
	"mime"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"icecore/merge/pass"
	"icecore/problem"
	"icecore/query/table"
	"icecore/trace"
)

const (
	typeArrow  = "application/vnd.apache.arrow.stream"
	typeNDJSON = "application/x-ndjson"
)

// sink takes the rows of an export in one format.
type sink interface {
	// row adds one row; it may keep it until flush.
	row(r *row, k *planRollout) error
	// flush sends what was added.
	flush() error
	// end closes the stream so that readers see a whole one.
	end() error
	// poison leaves bytes that no reader takes for an end.
	poison()
}

// trajectories streams the rows of many rollouts. How many rows and tokens come
// is said before the first byte; a stream that cannot keep that is broken on
// purpose.
func (a *API) trajectories(c echo.Context) error {
	sel, err := selectionOf(c)
	if err != nil {
		return err
	}
	format, codec, err := formatOf(c)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	p, err := a.plan(ctx, sel)
	if err != nil {
		return fault(err)
	}
	h := c.Response().Header()
	for name, value := range p.counts() {
		h.Set("Icecore-"+strings.ReplaceAll(name, "_", "-"), value)
	}
	h.Set(echo.HeaderContentType, format)
	h.Set("Trailer", "Icecore-Complete")
	c.Response().WriteHeader(http.StatusOK)
	var out sink
	if format == typeArrow {
		out = newArrowSink(c.Response(), p, codec)
	} else {
		out = &ndjsonSink{w: c.Response()}
	}
	if err := a.send(ctx, p, out); err != nil {
		out.poison()
		c.Response().Flush()
		return err // the error handler breaks the connection
	}
	h.Set("Icecore-Complete", "true")
	return nil
}

// counts is what is known before the first byte, by name.
func (p *plan) counts() map[string]string {
	n := func(v int64) string { return strconv.FormatInt(v, 10) }
	rollouts := map[int64]bool{}
	for _, r := range p.rows {
		rollouts[r.rollout] = true
	}
	m := map[string]string{
		"schema_version": trace.SchemaVersion,
		"merge_policy":   p.policy.String(),
		"rows":           n(int64(len(p.rows))),
		"rollouts":       n(int64(len(rollouts))),
		"tokens":         n(p.tokens),
		"trained_tokens": n(p.trained),
	}
	if p.next != "" {
		m["next_cursor"] = p.next
	}
	return m
}

// formatOf chooses by format= or Accept; Arrow is the default.
func formatOf(c echo.Context) (format, codec string, err error) {
	switch f := c.QueryParam("format"); f {
	case "":
	case "arrow":
		return typeArrow, "", nil
	case "ndjson":
		return typeNDJSON, "", nil
	default:
		return "", "", problem.BadParameter("format", "is not arrow or ndjson")
	}
	accept := c.Request().Header.Get(echo.HeaderAccept)
	if accept == "" {
		return typeArrow, "", nil
	}
	for part := range strings.SplitSeq(splitQuoted(accept), "\x00") {
		media, params, err := mime.ParseMediaType(strings.TrimSpace(part))
		if err != nil {
			continue
		}
		switch media {
		case typeArrow:
			return typeArrow, table.FirstCodec(params["codecs"]), nil
		case "*/*", "application/*":
			return typeArrow, "", nil
		case typeNDJSON:
			return typeNDJSON, "", nil
		}
	}
	return "", "", problem.New(problem.NotAcceptable, "answers are "+typeArrow+" or "+typeNDJSON)
}

// splitQuoted replaces the commas between media ranges, not those in quotes.
func splitQuoted(s string) string {
	in := false
	return strings.Map(func(r rune) rune {
		if r == '"' {
			in = !in
		}
		if r == ',' && !in {
			return 0
		}
		return r
	}, s)
}

// Bounds of one batch of rows: what is held, and how far a list's 32-bit
// offsets may go.
const (
	batchRows    = 1024
	batchTokens  = 1 << 20
	loadRollouts = 64
	loadTokens   = 4 << 20
)

// send makes the planned rows and hands them to out. While one load is sent the
// next is read.
func (a *API) send(ctx context.Context, p *plan, out sink) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	loads := make(chan loaded, 1)
	go func() {
		defer close(loads)
		for at := 0; at < len(p.rows); {
			to := p.loadEnd(at)
			l := a.safeLoad(ctx, p, p.rows[at:to])
			select {
			case loads <- l:
			case <-ctx.Done():
				return
			}
			if l.err != nil {
				return
			}
			at = to
		}
	}()
	sent, rows, tokens := 0, 0, 0
	for l := range loads {
		if l.err != nil {
			return l.err
		}
		for _, r := range l.rows {
			if rows > 0 && (rows >= batchRows || tokens+r.length > batchTokens) {
				if err := out.flush(); err != nil {
					return err
				}
				rows, tokens = 0, 0
			}
			if err := out.row(r, p.rollouts[r.m.Calls.Key]); err != nil {
				return err
			}
			rows++
			tokens += r.length
			sent++
		}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("send trajectories: %w", err)
	}
	if sent != len(p.rows) {
		return fmt.Errorf("send trajectories: %d rows made of %d promised", sent, len(p.rows))
	}
	if err := out.flush(); err != nil {
		return err
	}
	return out.end()
}

// loadEnd is where the load that begins at row at ends: whole rollouts, few
// enough.
func (p *plan) loadEnd(at int) int {
	rollouts, tokens := 0, 0
	for i := at; i < len(p.rows); i++ {
		if i == at || p.rows[i].rollout != p.rows[i-1].rollout {
			if rollouts++; i > at && (rollouts > loadRollouts || tokens > loadTokens) {
				return i
			}
		}
		tokens += p.rows[i].length
	}
	return len(p.rows)
}

type loaded struct {
	rows []*row
	err  error
}

// safeLoad turns a panic over damaged rows into the end of this stream: it runs in
// a goroutine of its own, where a panic would end the server.
func (a *API) safeLoad(ctx context.Context, p *plan, rows []planned) (l loaded) {
	defer func() {
		if p := recover(); p != nil {
			l = loaded{err: fmt.Errorf("make trajectories: %v\n%s", p, debug.Stack())}
		}
	}()
	return a.load(ctx, p, rows)
}

// load reads the calls of some rollouts and merges them again as they were
// merged for the plan. A policy is a pure function, so that gives the same rows;
// it costs less than reading them back.
func (a *API) load(ctx context.Context, p *plan, rows []planned) loaded {
	var keys []int64
	through := int64(0)
	for i, r := range rows {
		if i == 0 || r.rollout != rows[i-1].rollout {
			keys = append(keys, r.rollout)
			through = max(through, r.through)
		}
	}
	calls, err := a.s.LoadCalls(ctx, keys, through)
	if err != nil {
		return loaded{err: err}
	}
	logprobs, err := a.s.LoadLogprobs(ctx, calls)
	if err != nil {
		return loaded{err: err}
	}
	out := make([]*row, 0, len(rows))
	for len(rows) > 0 {
		c := calls[0]
		calls = calls[1:]
		c.Until(rows[0].through)
		m := pass.Run(c, p.policy)
		for len(rows) > 0 && rows[0].rollout == c.Key {
			r, err := makeRow(p, m, rows[0], logprobs)
			if err != nil {
				return loaded{err: err}
			}
			out = append(out, r)
			rows = rows[1:]
		}
	}
	return loaded{rows: out}
}

func makeRow(p *plan, m *merged, want planned, logprobs map[int64]*trace.Logprobs) (*row, error) {
	if want.row >= len(m.Result.Trajectories) || m.Result.Trajectories[want.row].Length != want.length {
		return nil, fmt.Errorf("make trajectory %d of rollout %d: merging gave another row than the one published", want.row, want.rollout)
	}
	return newRow(m, p.rollouts[want.rollout].ID, p.policy, want.row, logprobs), nil
}
