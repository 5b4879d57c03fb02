package query

import (
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"icecore/problem"
	"icecore/query/table"
	"icecore/query/trajectory"
	"icecore/trace"
)

const (
	typeArrow  = "application/vnd.apache.arrow.stream"
	typeNDJSON = "application/x-ndjson"
)

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
	counts := p.counts()
	for name, value := range counts {
		h.Set("Icecore-"+strings.ReplaceAll(name, "_", "-"), value)
	}
	h.Set(echo.HeaderContentType, format)
	h.Set("Trailer", "Icecore-Complete")
	c.Response().WriteHeader(http.StatusOK)
	var out trajectory.Sink
	if format == typeArrow {
		out = trajectory.NewArrow(c.Response(), trace.TrajectorySchema, counts, codec)
	} else {
		out = trajectory.NewNDJSON(c.Response())
	}
	if err := trajectory.Send(ctx, a.s, &p.Plan, out); err != nil {
		out.Poison()
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
	for _, w := range p.Wants {
		rollouts[w.Rollout] = true
	}
	m := map[string]string{
		"schema_version": trace.SchemaVersion,
		"merge_policy":   p.Policy.String(),
		"rows":           n(int64(len(p.Wants))),
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
