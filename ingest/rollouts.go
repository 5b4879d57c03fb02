package ingest

import (
	"context"
	"net/http"

	"github.com/labstack/echo/v4"

	"icecore/problem"
	"icecore/store"
	"icecore/trace"
	"icecore/wire"
)

// rolloutAnswer is the rollout as it stands, and how firmly.
type rolloutAnswer struct {
	Rollout *store.Rollout   `json:"rollout"`
	Status  store.ItemStatus `json:"status"`
	Ack     string           `json:"ack"`
}

func (a *API) putRollout(c echo.Context) error {
	patch := func(ctx context.Context, id string, p *trace.RolloutPatch) (store.Rollout, store.Outcome, int64, error) {
		r, batch, err := a.s.PatchRollout(ctx, id, p)
		return r, store.Outcome{Status: store.Stored}, batch, err
	}
	return serveJSON(c, func() error { return serveRollout(a, c, wire.RolloutPatchJSON, patch) })
}

func (a *API) finish(c echo.Context) error {
	return serveJSON(c, func() error { return serveRollout(a, c, wire.FinishJSON, a.s.FinishRollout) })
}

// serveRollout decodes a request about one rollout and applies it.
func serveRollout[T any](a *API, c echo.Context, decode func([]byte, wire.Limits) (*T, error),
	apply func(context.Context, string, *T) (store.Rollout, store.Outcome, int64, error)) error {
	id, err := rolloutID(c)
	if err != nil {
		return err
	}
	ack, b, err := a.admit(c)
	if err != nil {
		return err
	}
	defer b.release()
	v, err := decode(b.bytes, a.opts.Limits)
	if err != nil {
		return fieldProblem(err)
	}
	r, o, batch, err := apply(context.WithoutCancel(c.Request().Context()), id, v)
	if err != nil {
		return storeProblem(err)
	}
	if o.Err != nil {
		return problem.New(problem.Code(o.Err.Code), o.Err.Error()).At(o.Err.Field)
	}
	return writeJSON(c, http.StatusOK, rolloutAnswer{&r, o.Status, a.hold(c.Request().Context(), ack, batch)})
}

// fieldProblem answers a fault in the one item of a request.
func fieldProblem(err error) error {
	if fault := asFault(err); fault != nil {
		return problem.New(problem.Code(fault.Code), fault.Error()).At(fault.Field)
	}
	return decodeProblem(err)
}

// rolloutID reads the path's rollout id, which may be percent-encoded.
func rolloutID(c echo.Context) (string, error) {
	id, err := problem.PathParam(c, "rollout_id")
	if err != nil {
		return "", err
	}
	if fault := trace.ValidateID("rollout_id", id); fault != nil {
		return "", problem.BadParameter("rollout_id", fault.Message)
	}
	return id, nil
}
