package ingest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"syscall"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"

	"icecore/httpbody"
	"icecore/problem"
	"icecore/store"
	"icecore/trace"
	"icecore/wire"
)

// Store is what ingest needs of the store.
type Store interface {
	PutTraces(ctx context.Context, ts []*trace.Trace) ([]store.Outcome, int64, error)
	PutIntents(ctx context.Context, is []*trace.Intent) ([]store.Outcome, int64, error)
	PutRewards(ctx context.Context, ws []*trace.Reward) ([]store.Outcome, int64, error)
	PatchRollout(ctx context.Context, id string, p *trace.RolloutPatch) (store.Rollout, int64, error)
	FinishRollout(ctx context.Context, id string, f *trace.Finish) (store.Rollout, store.Outcome, int64, error)
	ResolvePrefix(ctx context.Context, rolloutID, traceID string, n int) (trace.Tokens, error)
	WaitDrained(ctx context.Context, batch int64) error
	NewestBatch() int64
	MintKey(ctx context.Context, rolloutID, label string, seconds *int64) (string, store.GatewayKey, error)
	Keys(ctx context.Context, rolloutID string) ([]store.GatewayKey, error)
	RevokeKey(ctx context.Context, rolloutID, keyID string) (store.GatewayKey, error)
	AnnounceVersion(ctx context.Context, model string, version int64, at *int64) (store.AnnouncedVersion, error)
	Versions(ctx context.Context) ([]store.AnnouncedVersion, error)
	FindTrajectories(ctx context.Context, ids []string) (map[string][]*store.FoundTrajectory, error)
	PutLearnerLogprobs(ctx context.Context, posts []*store.LearnerPost) ([]store.Outcome, int64, error)
}

// API serves the ingest half of the HTTP contract.
type API struct {
	s     Store
	gate  *gate
	opts  Options
	items *prometheus.CounterVec
}

// New makes the handlers over s.
func New(s Store, opts Options) *API {
	opts = opts.WithDefaults()
	return &API{s: s, opts: opts, gate: &gate{opts: opts}, items: prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "icecore", Name: "items_total", Help: "Items answered, by path, by what became of them, and why they were refused.",
	}, []string{"path", "status", "code"})}
}

// Collectors are the metrics of ingest, for a Prometheus registry.
func (a *API) Collectors() []prometheus.Collector { return []prometheus.Collector{a.items} }

// Register adds the routes.
func (a *API) Register(e *echo.Echo) {
	e.POST("/v1/traces", a.traces)
	e.POST("/v1/traces/begin", a.begin)
	e.POST("/v1/rewards", a.rewards)
	e.POST("/v1/trajectories/logprobs", a.learnerLogprobs)
	e.PUT("/v1/rollouts/:rollout_id", a.putRollout)
	e.POST("/v1/rollouts/:rollout_id/finish", a.finish)
	e.POST("/v1/rollouts/:rollout_id/keys", a.mintKey)
	e.GET("/v1/rollouts/:rollout_id/keys", a.keys)
	e.DELETE("/v1/rollouts/:rollout_id/keys/:key_id", a.revokeKey)
	e.PUT("/v1/policy_version", a.putVersion)
	e.GET("/v1/policy_version", a.policyVersions)
}

// Open counts the requests being served, and Held the bytes of their bodies.
func (a *API) Open() int64 { return a.gate.open.Load() }

// Held counts the request bytes held.
func (a *API) Held() int64 { return a.gate.held.Load() }

const (
	typeJSON   = "application/json"
	typeNDJSON = "application/x-ndjson"
	typeArrow  = "application/vnd.apache.arrow.stream"
)

// decodable are the content types of POST /v1/traces.
var decodable = map[string]func([]byte, wire.Limits) ([]wire.Item[trace.Trace], error){
	typeJSON:   wire.TracesJSON,
	typeNDJSON: wire.TracesNDJSON,
	typeArrow:  wire.TracesArrow,
}

// contentType gives the request's media type; absent counts as JSON.
func contentType(c echo.Context) string {
	header := c.Request().Header.Get(echo.HeaderContentType)
	if header == "" {
		return typeJSON
	}
	media, _, err := mime.ParseMediaType(header)
	if err != nil {
		return header
	}
	return media
}

func unsupported(have string, want ...string) error {
	hint := ""
	if have == echo.MIMEApplicationForm {
		hint = " (with curl: --json, or -H 'Content-Type: application/json')"
	}
	return problem.New(problem.UnsupportedMediaType,
		"the content type "+have+" is not supported here: send "+strings.Join(want, ", ")+hint)
}

func (a *API) traces(c echo.Context) error {
	media := contentType(c)
	decode := decodable[media]
	if decode == nil {
		return unsupported(media, typeJSON, typeNDJSON, typeArrow)
	}
	return serve(a, c, decode, a.putTraces)
}

func (a *API) begin(c echo.Context) error {
	return serveJSON(c, func() error { return serve(a, c, wire.IntentsJSON, a.s.PutIntents) })
}

func (a *API) rewards(c echo.Context) error {
	return serveJSON(c, func() error { return serve(a, c, wire.RewardsJSON, a.s.PutRewards) })
}

// serveJSON goes on only with JSON.
func serveJSON(c echo.Context, serve func() error) error {
	if media := contentType(c); media != typeJSON {
		return unsupported(media, typeJSON)
	}
	return serve()
}

// admit checks what can be checked before the body, and reads it. Its release
// ends the request for the gate.
func (a *API) admit(c echo.Context) (ack string, b *body, err error) {
	if ack, err = ackOf(c); err != nil {
		return "", nil, err
	}
	b, err = a.gate.read(c)
	return ack, b, err
}

// serve decodes a request of items, has put store the valid ones, and answers
// for each.
func serve[T any](a *API, c echo.Context, decode func([]byte, wire.Limits) ([]wire.Item[T], error),
	put func(context.Context, []*T) ([]store.Outcome, int64, error)) error {
	ack, b, err := a.admit(c)
	if err != nil {
		return err
	}
	// The bytes count until the items are stored: decoded they are as large.
	defer b.release()
	items, err := decode(b.bytes, a.opts.Limits)
	if err != nil {
		return decodeProblem(err)
	}
	valid := make([]*T, 0, len(items))
	for i := range items {
		if items[i].Err == nil {
			valid = append(valid, items[i].Value)
		}
	}
	// A request that was decoded is stored whether or not its client waits.
	ctx := context.WithoutCancel(c.Request().Context())
	var outcomes []store.Outcome
	var batch int64
	if len(valid) > 0 {
		if outcomes, batch, err = put(ctx, valid); err != nil {
			return storeProblem(err)
		}
	}
	return answer(a, c, items, outcomes, a.hold(c.Request().Context(), ack, batch))
}

// The three levels of acknowledgement. "received" allows an earlier answer;
// ours is durable all the same.
const (
	ackReceived  = "received"
	ackDurable   = "durable"
	ackQueryable = "queryable"
)

func ackOf(c echo.Context) (string, error) {
	if err := problem.Parameters(c, []string{"ack"}, nil); err != nil {
		return "", err
	}
	switch ack := c.QueryParam("ack"); ack {
	case "", ackDurable, ackReceived:
		return ackDurable, nil
	case ackQueryable:
		return ack, nil
	default:
		return "", problem.BadParameter("ack", "is not one of received, durable, queryable")
	}
}

// hold waits for what ack asks beyond durability. When that cannot be had, the
// answer says durable: the items are stored.
func (a *API) hold(ctx context.Context, ack string, batch int64) string {
	if ack != ackQueryable {
		return ackDurable
	}
	if err := a.s.WaitDrained(ctx, batch); err != nil {
		a.opts.Log.Warn("answered durable instead of queryable", "err", err)
		return ackDurable
	}
	return ackQueryable
}

func decodeProblem(err error) error {
	var e *wire.EnvelopeError
	if errors.As(err, &e) {
		return httpbody.Problem(e)
	}
	return problem.Internal(err)
}

// storeProblem says that nothing of the request was stored, and whether to send
// it again.
func storeProblem(err error) error {
	var p *problem.Problem
	switch {
	case errors.Is(err, store.ErrDiskFull), errors.Is(err, syscall.ENOSPC), strings.Contains(err.Error(), "No space left on device"): // as DuckDB says it
		p = problem.New(problem.DiskFull, "too little disk space is left; nothing of this request was stored")
	case errors.Is(err, store.ErrClosed):
		p = problem.New(problem.ShuttingDown, "the server is shutting down; nothing of this request was stored")
	case errors.Is(err, store.ErrWarehouse):
		p = problem.New(problem.WarehouseBehind, "the warehouse, in which trajectories are looked up, does not answer; nothing of this request was stored")
	default:
		p = problem.New(problem.StorageFailed, "the store failed; this request was not acknowledged")
	}
	return p.Because(err)
}

// answerItem is the answer to one item.
type answerItem struct {
	Index    int              `json:"index"`
	ID       string           `json:"id,omitempty"`
	Status   store.ItemStatus `json:"status"`
	Code     trace.Code       `json:"code,omitempty"`
	Message  string           `json:"message,omitempty"`
	Warnings []string         `json:"warnings,omitempty"`
}

// answer writes one entry per item in the order sent. outcomes has one entry
// per valid item.
func answer[T any](a *API, c echo.Context, items []wire.Item[T], outcomes []store.Outcome, ack string) error {
	out := make([]answerItem, len(items))
	refused := 0
	for i := range items {
		o := store.Outcome{Status: store.Refused, Err: items[i].Err}
		if items[i].Err == nil {
			o, outcomes = outcomes[0], outcomes[1:]
		}
		out[i] = answerItem{Index: i, ID: items[i].ID, Status: o.Status, Warnings: append(items[i].Warnings, o.Warnings...)}
		if o.Err != nil {
			refused++
			out[i].Code, out[i].Message = o.Err.Code, o.Err.Error()
		}
		a.items.WithLabelValues(c.Path(), string(o.Status), string(out[i].Code)).Inc()
	}
	status := http.StatusOK
	switch {
	case refused == len(items) && refused > 0:
		status = http.StatusUnprocessableEntity
	case refused > 0:
		status = http.StatusMultiStatus
	}
	return writeJSON(c, status, map[string]any{"items": out, "ack": ack})
}

func writeJSON(c echo.Context, status int, v any) error {
	c.Response().Header().Set(echo.HeaderContentType, typeJSON)
	c.Response().WriteHeader(status)
	if err := json.NewEncoder(c.Response()).Encode(v); err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	return nil
}

// asFault finds the fault of one item in err.
func asFault(err error) *trace.Error {
	var fault *trace.Error
	if errors.As(err, &fault) {
		return fault
	}
	return nil
}
