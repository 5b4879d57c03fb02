package query

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"icecore/merge"
	"icecore/merge/pass"
	"icecore/problem"
	"icecore/query/analytics"
	"icecore/store"
	"icecore/trace"
)

// Store is what query needs of the store.
type Store interface {
	Rollout(ctx context.Context, id string) (*store.Rollout, error)
	Rollouts(ctx context.Context, f store.Filter, after int64, limit int) ([]store.Rollout, error)
	CountRollouts(ctx context.Context, f store.Filter) (int64, error)
	Rewards(ctx context.Context, keys []int64) (map[int64][]trace.Reward, error)
	Traces(ctx context.Context, r *store.Rollout, after int64, limit int) ([]store.StoredTrace, error)
	Trace(ctx context.Context, id string, bodies bool) (*store.StoredTrace, error)
	Announced(ctx context.Context, traceID string) (*store.Announced, error)
	NewestBatch() int64
	WaitDrained(ctx context.Context, batch int64) error
	LoadCalls(ctx context.Context, keys []int64, through int64) ([]*store.RolloutCalls, error)
	LoadLogprobs(ctx context.Context, rs []*store.RolloutCalls) (map[int64]*trace.Logprobs, error)
	MergedRows(ctx context.Context, keys []int64, policy string) ([]store.MergedRow, error)
	CountsByHarness(ctx context.Context, policy string) ([]*store.Counts, error)
	BoundaryStore
}

// Merger is what query needs of the merge pass.
type Merger interface {
	Ensure(ctx context.Context, keys []int64, policy merge.Policy) error
	EnsureAll(ctx context.Context, policy merge.Policy) error
	Merge(ctx context.Context, key int64, policy merge.Policy) (*pass.Merged, error)
}

// API serves the reading half of the HTTP contract.
type API struct {
	s   Store
	m   Merger
	sql analytics.Warehouse
	log *slog.Logger
}

// New makes the handlers. sql runs the statements of analyses.
func New(s Store, m Merger, sql analytics.Warehouse, log *slog.Logger) *API {
	return &API{s: s, m: m, sql: sql, log: log}
}

// Register adds the routes.
func (a *API) Register(e *echo.Echo) {
	e.GET("/v1/rollouts", a.rollouts)
	e.GET("/v1/rollouts/:rollout_id", a.rollout)
	e.GET("/v1/rollouts/:rollout_id/traces", a.rolloutTraces)
	e.GET("/v1/rollouts/:rollout_id/trajectories", a.rolloutTrajectories)
	e.GET("/v1/traces/:trace_id", a.trace)
	e.GET("/v1/traces/:trace_id/boundary", a.boundary)
	e.GET("/v1/trajectories", a.trajectories)
	e.GET("/v1/harnesses", a.harnesses)
	e.GET("/v1/groups", a.groups)
	e.GET("/v1/analytics/summary", a.summary)
	e.GET("/v1/analytics/uplift", a.uplift)
	e.GET("/v1/analytics/splits", a.splits)
	e.GET("/v1/analytics/mismatch", a.mismatch)
}

// Pages of lists.
const (
	defaultPage = 100
	maxPage     = 1000
)

// pathID reads an id from the path, where it may be percent-encoded.
func pathID(c echo.Context, name string) (string, error) {
	id, err := problem.PathParam(c, name)
	if err != nil {
		return "", err
	}
	if fault := trace.ValidateID(name, id); fault != nil {
		return "", problem.BadParameter(name, fault.Message)
	}
	return id, nil
}

// only refuses parameters that the path does not know, see problem.Parameters.
func only(c echo.Context, names ...string) error {
	return problem.Parameters(c, names, filterLists)
}

func intParam(c echo.Context, name string, fallback, lo, hi int64) (int64, error) {
	text := c.QueryParam(name)
	if text == "" {
		return fallback, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < lo || n > hi {
		return 0, problem.BadParameter(name, "is not a whole number from "+strconv.FormatInt(lo, 10)+" to "+strconv.FormatInt(hi, 10))
	}
	return n, nil
}

func optInt(c echo.Context, name string) (*int64, error) {
	if c.QueryParam(name) == "" {
		return nil, nil
	}
	n, err := intParam(c, name, 0, 0, 1<<62)
	return &n, err
}

func optBool(c echo.Context, name string) (*bool, error) {
	text := c.QueryParam(name)
	if text == "" {
		return nil, nil
	}
	if text != "true" && text != "false" {
		return nil, problem.BadParameter(name, "is not true or false")
	}
	v := text == "true"
	return &v, nil
}

// policyOf reads policy= and end_of_turn=.
func policyOf(c echo.Context) (merge.Policy, error) {
	name := c.QueryParam("policy")
	if name == "" {
		name = merge.StrictTree
	}
	p, err := merge.ParsePolicy(name)
	if err != nil {
		return p, problem.BadParameter("policy", err.Error())
	}
	if c.QueryParam("end_of_turn") == "" {
		return p, nil
	}
	if p.Name != merge.PolarCompat || p.EndOfTurn != nil {
		return p, problem.BadParameter("end_of_turn", "goes with policy=polar_compat only, and once")
	}
	n, err := intParam(c, "end_of_turn", 0, 0, 1<<31-1)
	id := int32(n)
	p.EndOfTurn = &id
	return p, err
}

// filterLists are the filters that may be given several times, filterNames all
// that filterOf reads.
var (
	filterLists = []string{"rollout_id", "group_id", "task_id", "harness", "split", "model", "status"}
	filterNames = append([]string{"complete"}, filterLists...)
)

// filterOf reads the filters on rollouts; a parameter given several times means
// "one of".
func filterOf(c echo.Context) (store.Filter, error) {
	q := c.QueryParams()
	for name, known := range map[string][]string{"status": trace.FinishStatuses, "split": trace.Splits} {
		for _, v := range q[name] {
			if !slices.Contains(known, v) {
				return store.Filter{}, problem.BadParameter(name, strconv.Quote(v)+" is not one of "+strings.Join(known, ", "))
			}
		}
	}
	complete, err := optBool(c, "complete")
	return store.Filter{RolloutIDs: q["rollout_id"], GroupIDs: q["group_id"], TaskIDs: q["task_id"], Harnesses: q["harness"],
		Splits: q["split"], Models: q["model"], Statuses: q["status"], Complete: complete}, err
}

// traceFault is fault for what was asked of one trace: one that is not there may be of a
// call that still runs.
func (a *API) traceFault(ctx context.Context, id string, err error) error {
	if !errors.Is(err, store.ErrNotFound) {
		return fault(err)
	}
	switch call, wrong := a.s.Announced(ctx, id); {
	case wrong != nil:
		return fault(wrong)
	case call != nil:
		return problem.New(problem.NotFound, "the call is announced, of rollout "+strconv.Quote(call.RolloutID)+since(call.StartedAt)+
			", and has not ended: its trace is stored when it ends")
	}
	return fault(err)
}

func since(at *int64) string {
	if at == nil {
		return ""
	}
	return ", since " + store.FormatTime(*at)
}

// fault turns errors of store and merge into answers.
func fault(err error) error {
	var p *problem.Problem
	switch {
	case err == nil:
		return nil
	case errors.As(err, &p):
		return err
	case errors.Is(err, store.ErrNotFound):
		return problem.New(problem.NotFound, "nothing is stored under this id")
	case errors.Is(err, store.ErrClosed):
		return problem.New(problem.ShuttingDown, "the server is shutting down")
	case errors.Is(err, store.ErrWarehouse):
		return problem.New(problem.WarehouseBehind, "the warehouse does not take in what was stored; it is tried again").Because(err)
	case errors.Is(err, pass.ErrTooManyPolicies):
		return problem.New(problem.TooManyPolicies, err.Error())
	}
	return problem.Internal(err)
}

func writeJSON(c echo.Context, v any) error {
	c.Response().Header().Set(echo.HeaderContentType, echo.MIMEApplicationJSON)
	c.Response().WriteHeader(http.StatusOK)
	if err := json.NewEncoder(c.Response()).Encode(v); err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	return nil
}
