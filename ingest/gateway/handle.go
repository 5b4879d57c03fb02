package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"icecore/ingest/gateway/settings"
	"icecore/ingest/gateway/turn"
)

// visit is one HTTP request below /gateway.
type visit struct {
	w        http.ResponseWriter
	r        *http.Request
	route    route
	provider turn.Provider
	caller   caller
	// incoming has everything of the request but its secrets.
	incoming turn.Incoming
}

// handle answers every path below /gateway/{rollout_id}. It answers faults itself, in
// the provider's shape, and gives Echo no error.
func (g *Gateway) handle(c echo.Context) error {
	v := &visit{w: c.Response(), r: c.Request()}
	// Not by Echo's parameters: it has none where it does not know the method.
	id, rest, _ := strings.Cut(strings.TrimPrefix(v.r.URL.EscapedPath(), "/gateway/"), "/")
	rollout, wrong := url.PathUnescape(id)
	path, err := url.PathUnescape(rest)
	astray := !isRollout(rollout)
	if astray && strings.Trim(rollout, ".") != "" {
		path = rollout + "/" + path
	}
	v.route = match(v.r.Method, path, v.r.Header)
	v.provider = g.providers[v.route.api]
	switch {
	case errors.Join(err, wrong) != nil:
		err = turn.Invalid("path", "the path is not well encoded")
	case astray:
		err = noRollout(v.route.api)
	default:
		err = g.answer(v, rollout)
	}
	if err != nil {
		g.fail(v, err)
	}
	return nil
}

func (g *Gateway) answer(v *visit, inPath string) error {
	if wantsWebSocket(v.r.Header) {
		v.w.Header().Set("Upgrade", "HTTP/1.1")
		v.w.Header().Set("Connection", "Upgrade")
		return refuse(http.StatusUpgradeRequired, turn.CodeUnsupported, "there are no WebSockets here: use HTTP and server-sent events")
	}
	if err := v.route.checkMethod(v.r.Method); err != nil {
		if allow := v.route.methods(); allow != nil {
			v.w.Header().Set("Allow", strings.Join(allow, ", "))
		}
		return err
	}
	if v.route.act == actBase {
		v.w.WriteHeader(http.StatusOK)
		return nil
	}
	// Admission comes before everything that costs something.
	if err := g.enter(); err != nil {
		return err
	}
	slot := &slot{g: g}
	defer slot.leave()
	header, query, key := credentials(v.r.Header, v.r.URL.Query())
	v.incoming = turn.Incoming{Header: header, Query: query, Path: v.route.path}
	if inPath == nobody && v.r.Header.Get("Icecore-Rollout-Id") != header.Get("Icecore-Rollout-Id") {
		// Without it the call would go into another rollout.
		return turn.Invalid("Icecore-Rollout-Id", "the header Icecore-Rollout-Id looks like a credential: a rollout's id must not")
	}
	var err error
	models := v.route.act == actModels || v.route.act == actModel
	if !models || g.settings.Callers == settings.CallersKey { // a list of models is of no rollout
		if v.caller, err = g.callerOf(v.r.Context(), v.route.api, inPath, header, key); err != nil {
			return err
		}
	}
	if models {
		return g.listModels(v)
	}
	if err := g.gate.enterRollout(v.caller.rollout); err != nil {
		return err
	}
	slot.rollout = v.caller.rollout
	limits := g.settings.Limits
	held := g.budget.share()
	defer held.drop()
	if v.incoming.Body, err = receive(v.w, v.r, limits.Patience, limits.MaxRequest, held); err != nil {
		return err
	}
	if v.route.act == actCount {
		return g.countTokens(v, held)
	}
	return g.serve(v, slot, held)
}

// fail answers a fault where nothing was answered yet.
func (g *Gateway) fail(v *visit, err error) {
	f := faultOf(nil, err)
	g.refused(v.route.api, v.caller.rollout, clip(v.incoming.Header.Get("X-Client-Request-Id"), maxKeptHeader), f)
	status, header, body := g.faultBody(v.provider, f)
	o := newOut(v.w, g.settings.Limits.Patience, "", false)
	if err := o.whole(status, header, body); err != nil {
		g.log.Debug("gateway: refusal not delivered", "err", err)
	}
	o.to.Done()
}

// refused counts and logs a call that leaves no trace. request is the id that the harness
// gave it, if it gave one.
func (g *Gateway) refused(api, rollout, request string, f *turn.Fault) {
	level := slog.LevelInfo
	if f.Status >= http.StatusInternalServerError && f.RetryAfter == 0 {
		level = slog.LevelError
	}
	g.log.Log(context.Background(), level, "gateway: call refused", "api", api, "rollout", rollout, "request", request, "status", f.Status, "code", f.Code, "err", f)
	g.metrics.refused(api, f.Code)
}

// faultBody is a fault in the provider's shape. A provider that cannot even do that
// gets a plain one.
func (g *Gateway) faultBody(p turn.Provider, f *turn.Fault) (status int, header http.Header, body []byte) {
	if g.safely("fault", func() { status, header, body = p.Fault(f) }) != nil {
		body, _ = encode(map[string]any{"error": map[string]any{"type": f.Code, "message": f.Message}}) // text always is JSON
		status, header = f.Status, http.Header{}
	}
	if header == nil {
		header = http.Header{}
	}
	if f.RetryAfter > 0 && header.Get("Retry-After") == "" {
		header.Set("Retry-After", strconv.Itoa(int((f.RetryAfter+999999999)/1000000000)))
	}
	return status, header, body
}

// slot is a place among the open calls. It is given back once.
type slot struct {
	g       *Gateway
	rollout string
	kept    bool // somebody else gives it back
	gone    bool
}

func (s *slot) leave() {
	if !s.kept {
		s.free()
	}
}

func (s *slot) free() {
	if s.gone {
		return
	}
	s.gone = true
	if s.rollout != "" {
		s.g.gate.leaveRollout(s.rollout)
	}
	s.g.gate.leave()
	s.g.open.Done()
}

var errStopped = &turn.Fault{Status: http.StatusServiceUnavailable, Code: turn.CodeOverloaded, RetryAfter: storeAgain,
	Message: "overloaded: the gateway is stopping; send this call again later"}

// enter admits a request, unless too many are open or the gateway stops.
func (g *Gateway) enter() error {
	g.stopMu.RLock()
	defer g.stopMu.RUnlock()
	if g.stopping {
		return errStopped
	}
	if err := g.gate.enter(); err != nil {
		return err
	}
	g.open.Add(1)
	return nil
}
