package ingest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"icecore/problem"
	"icecore/store"
	"icecore/trace"
	"icecore/wire"
)

type versionAnswer struct {
	// Model is null where it stands for all models that have no entry.
	Model         *string `json:"model"`
	PolicyVersion int64   `json:"policy_version"`
	At            string  `json:"at"`
	ToldAt        string  `json:"told_at"`
}

func answerVersion(v *store.AnnouncedVersion) versionAnswer {
	a := versionAnswer{PolicyVersion: v.PolicyVersion, At: store.FormatTime(v.At), ToldAt: store.FormatTime(v.ToldAt)}
	if v.Model != "" {
		a.Model = &v.Model
	}
	return a
}

// clockDrift is how far a trainer's clock may be ahead. A time beyond that would
// silence everything that is said until then.
const clockDrift = time.Minute

func (a *API) putVersion(c echo.Context) error {
	return serveJSON(c, func() error {
		return serveOne(a, c, wire.VersionNoticeJSON, func(ctx context.Context, n *trace.VersionNotice) error {
			if n.At != nil && *n.At > time.Now().Add(clockDrift).UnixMicro() {
				return problem.New(problem.InvalidField, "at: lies in the future").At("at")
			}
			v, err := a.s.AnnounceVersion(ctx, n.Model, *n.PolicyVersion, n.At)
			switch {
			case errors.Is(err, store.ErrOutdated):
				return problem.New(problem.Conflict, fmt.Sprintf("at: policy version %d, which is served since %s, was told already",
					v.PolicyVersion, store.FormatTime(v.At))).At("at")
			case err != nil:
				return storeProblem(err)
			}
			return writeJSON(c, http.StatusOK, answerVersion(&v))
		})
	})
}

func (a *API) policyVersions(c echo.Context) error {
	if err := problem.Parameters(c, nil, nil); err != nil {
		return err
	}
	list, err := a.s.Versions(c.Request().Context())
	if err != nil {
		return storeProblem(err)
	}
	out := make([]versionAnswer, len(list))
	for i := range list {
		out[i] = answerVersion(&list[i])
	}
	return writeJSON(c, http.StatusOK, map[string]any{"policy_versions": out})
}
