package gateway

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"icecore/ingest/gateway/settings"
	"icecore/ingest/gateway/turn"
	"icecore/trace"
)

// nobody in the path's place of the rollout says that something else names it.
const nobody = "-"

// caller is the rollout that a call belongs to.
type caller struct {
	rollout string
	// harness is what the rollout itself says; empty: nothing.
	harness string
}

// storeAgain is when a harness may ask again after the store did not answer.
const storeAgain = 2 * time.Second

func refuse(status int, code, message string) *turn.Fault {
	return &turn.Fault{Status: status, Code: code, Message: message}
}

// callerOf finds the rollout of a call, and whether it may be called for. header is
// cleaned; key is the minted one. The error is a *turn.Fault.
func (g *Gateway) callerOf(ctx context.Context, api, inPath string, header http.Header, key string) (caller, error) {
	rollout, err := g.rolloutOf(ctx, api, inPath, header, key)
	if err != nil {
		return caller{}, err
	}
	if strings.HasPrefix(rollout, trace.KeyPrefix) { // it would be stored as one
		return caller{}, turn.Invalid("rollout_id", "a key stands in the place of the rollout's id: send it as the API key, and - in that place")
	}
	if wrong := trace.ValidateID("rollout_id", rollout); wrong != nil {
		return caller{}, turn.Invalid("rollout_id", wrong.Error())
	}
	known, harness, finished, err := g.rollouts.Known(ctx, rollout)
	if err != nil {
		return caller{}, &turn.Fault{Status: http.StatusServiceUnavailable, Code: turn.CodeStorage, RetryAfter: storeAgain,
			Message: "overloaded: the rollout cannot be looked up now; try again", Cause: err}
	}
	if g.settings.Callers == settings.CallersDeclared && !known {
		return caller{}, refuse(http.StatusForbidden, turn.CodeForbidden, "the rollout is not declared: PUT /v1/rollouts/{rollout_id} first")
	}
	if g.settings.Finished == settings.FinishedRefuse && finished {
		return caller{}, refuse(http.StatusConflict, turn.CodeForbidden, "the rollout is finished, and this gateway takes no calls for finished rollouts")
	}
	return caller{rollout, harness}, nil
}

func (g *Gateway) rolloutOf(ctx context.Context, api, inPath string, header http.Header, key string) (string, error) {
	if key == "" && g.settings.Callers == settings.CallersKey {
		return "", refuse(http.StatusUnauthorized, turn.CodeUnauthorized,
			"a key that was minted for the rollout is needed: send it as the API key (Authorization: Bearer, x-api-key or x-goog-api-key)")
	}
	if key != "" {
		// A key of ours is checked even where none is needed: one that was revoked
		// must not go on working.
		rollout, err := g.keys.Find(ctx, key)
		switch {
		case errors.Is(err, ErrUnknownKey):
			return "", refuse(http.StatusUnauthorized, turn.CodeUnauthorized, "the API key is not known: it was never minted, is revoked, or has expired")
		case err != nil:
			return "", &turn.Fault{Status: http.StatusServiceUnavailable, Code: turn.CodeStorage, RetryAfter: storeAgain,
				Message: "overloaded: the API key cannot be looked up now; try again", Cause: err}
		case inPath != nobody && inPath != rollout:
			return "", refuse(http.StatusForbidden, turn.CodeForbidden, "the API key was minted for another rollout than the one in the path")
		}
		return rollout, nil
	}
	if inPath != nobody {
		return inPath, nil
	}
	for _, id := range []string{header.Get("Icecore-Rollout-Id"), sessionOf(header)} {
		if id != "" {
			return id, nil
		}
	}
	return "", noRollout(api)
}

func noRollout(api string) error {
	return turn.Invalid("rollout_id", "nothing names the rollout: put its id into the path (/gateway/{rollout_id}/…), so that the base URL of this API is "+
		baseURL(api)+", or put - there and use a key that was minted for it, or send the header Icecore-Rollout-Id")
}

// sessionOf is the session that a harness tells of in its headers; empty: none.
func sessionOf(h http.Header) string {
	for _, id := range []string{h.Get("X-Claude-Code-Session-Id"), codexTurn(h).SessionID, h.Get("Session-Id"), h.Get("X-Session-Id")} {
		if id != "" {
			return id // too long to be a rollout's: refused, not cut to be another's
		}
	}
	return ""
}
