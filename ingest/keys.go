package ingest

import (
	"context"
	"errors"
	"net/http"

	"github.com/labstack/echo/v4"

	"icecore/problem"
	"icecore/store"
	"icecore/trace"
	"icecore/wire"
)

// keyAnswer is a key as it is shown; Key itself only where it was made.
type keyAnswer struct {
	Key       string  `json:"key,omitempty"`
	KeyID     string  `json:"key_id"`
	RolloutID string  `json:"rollout_id"`
	Label     *string `json:"label"`
	CreatedAt string  `json:"created_at"`
	ExpiresAt *string `json:"expires_at"`
	RevokedAt *string `json:"revoked_at"`
}

func answerKey(k *store.GatewayKey) keyAnswer {
	a := keyAnswer{KeyID: k.KeyID, RolloutID: k.RolloutID, CreatedAt: store.FormatTime(k.CreatedAt),
		ExpiresAt: optionalTime(k.ExpiresAt), RevokedAt: optionalTime(k.RevokedAt)}
	if k.Label != "" {
		a.Label = &k.Label
	}
	return a
}

func optionalTime(micros *int64) *string {
	if micros == nil {
		return nil
	}
	s := store.FormatTime(*micros)
	return &s
}

func (a *API) mintKey(c echo.Context) error {
	id, err := rolloutID(c)
	if err != nil {
		return err
	}
	return serveJSON(c, func() error {
		return serveOne(a, c, wire.NewKeyJSON, func(ctx context.Context, n *trace.NewKey) error {
			key, kept, err := a.s.MintKey(ctx, id, n.Label, n.ExpiresInSeconds)
			if err != nil {
				return storeProblem(err)
			}
			answer := answerKey(&kept)
			answer.Key = key
			// No cache between here and who asked may keep it.
			c.Response().Header().Set(echo.HeaderCacheControl, "no-store")
			return writeJSON(c, http.StatusCreated, answer)
		})
	})
}

func (a *API) keys(c echo.Context) error {
	id, err := rolloutID(c)
	if err == nil {
		err = problem.Parameters(c, nil, nil)
	}
	if err != nil {
		return err
	}
	list, err := a.s.Keys(c.Request().Context(), id)
	if err != nil {
		return keyProblem(err)
	}
	out := make([]keyAnswer, len(list))
	for i := range list {
		out[i] = answerKey(&list[i])
	}
	return writeJSON(c, http.StatusOK, map[string]any{"keys": out})
}

func (a *API) revokeKey(c echo.Context) error {
	id, err := rolloutID(c)
	if err == nil {
		err = problem.Parameters(c, nil, nil)
	}
	if err != nil {
		return err
	}
	keyID, err := problem.PathParam(c, "key_id")
	if err != nil {
		return err
	}
	k, err := a.s.RevokeKey(context.WithoutCancel(c.Request().Context()), id, keyID)
	if err != nil {
		return keyProblem(err)
	}
	return writeJSON(c, http.StatusOK, answerKey(&k))
}

func keyProblem(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return problem.New(problem.NotFound, "there is no such rollout, or it has no such key")
	}
	return storeProblem(err)
}

// serveOne reads a request that is one object, and does what it asks.
func serveOne[T any](a *API, c echo.Context, decode func([]byte, wire.Limits) (*T, error), do func(context.Context, *T) error) error {
	if err := problem.Parameters(c, nil, nil); err != nil {
		return err
	}
	b, err := a.gate.read(c)
	if err != nil {
		return err
	}
	defer b.release()
	v, err := decode(b.bytes, a.opts.Limits)
	if err != nil {
		return fieldProblem(err)
	}
	return do(context.WithoutCancel(c.Request().Context()), v)
}
