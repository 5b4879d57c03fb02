package delivery

import (
	"context"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"icecore/httpbody"
	"icecore/problem"
	"icecore/query/table"
)

// maxBody bounds a request, in bytes: it may list tasks or groups.
const maxBody = 4 << 20

// jsonBody reads the body of a request, which may be empty. The path takes no
// parameters.
func (a *API) jsonBody(c echo.Context) ([]byte, error) {
	if err := problem.Parameters(c, nil, nil); err != nil {
		return nil, err
	}
	if h := c.Request().Header.Get(echo.HeaderContentType); h != "" {
		media, params, err := mime.ParseMediaType(h)
		charset := strings.ToLower(params["charset"])
		if err != nil || media != echo.MIMEApplicationJSON || charset != "" && charset != "utf-8" && charset != "us-ascii" {
			return nil, problem.New(problem.UnsupportedMediaType, "the body is sent as application/json, in UTF-8 (with curl: --json)")
		}
	}
	return httpbody.Read(c, a.opts.Patience, maxBody)
}

// lease serves POST /v1/consumers/{name}/lease.
func (a *API) lease(c echo.Context) error {
	began := time.Now()
	name, err := pathID(c, "name")
	if err != nil {
		return err
	}
	codec, ok := table.AcceptsArrow(c.Request().Header.Values(echo.HeaderAccept))
	if !ok {
		return problem.New(problem.NotAcceptable, "a lease is answered as "+table.Arrow+" (curl --json asks for JSON: add -H 'Accept: */*')")
	}
	body, err := a.jsonBody(c)
	if err != nil {
		return err
	}
	r, err := parseRequest(body)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	h, i, err := a.wait(ctx, name, r)
	a.metrics.answered(h, err, time.Since(began))
	if err != nil {
		return err
	}
	if h == nil {
		return empty(c, i)
	}
	if err := a.send(c, h, r.Shard, codec); err != nil {
		a.metrics.failures.Inc()
		if h.fresh {
			// Nobody else can ask for it again, since nobody knows its key.
			if _, err := a.s.ReturnLease(context.WithoutCancel(ctx), h.ID, 0, "its stream could not be sent"); err != nil {
				a.opts.Log.Warn("a lease that was not delivered stays until it expires", "lease", h.ID, "err", err)
			}
		}
		return err
	}
	return nil
}

// empty answers that there is nothing, and why.
func empty(c echo.Context, i *idle) error {
	setHeaders(c.Response().Header(), i.waiting.facts())
	setHeaders(c.Response().Header(), i.skipped.facts())
	setHeaders(c.Response().Header(), i.skipped.emptied())
	c.Response().WriteHeader(http.StatusNoContent)
	return nil
}
