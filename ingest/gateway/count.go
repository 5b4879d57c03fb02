package gateway

import (
	"context"
	"errors"
	"net/http"
	"time"

	"icecore/ingest/gateway/engine"
	"icecore/ingest/gateway/generate"
	"icecore/ingest/gateway/messages"
	"icecore/ingest/gateway/turn"
)

// countWait bounds how long counting may take.
const countWait = 30 * time.Second

// countTokens answers how many ids a prompt has, by the engine's own template and
// tokenizer. Where the engine has none to ask, that is said: an estimate would be taken
// for the truth. Nothing is sampled, so there is no trace.
func (g *Gateway) countTokens(v *visit, held *share) error {
	c, err := g.admit(v)
	if err != nil {
		return err
	}
	held.shrink(waiting)
	e, err := g.engines.Pick(c.model, c.affinity())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(v.r.Context(), countWait)
	defer cancel()
	ids, err := e.Render(ctx, c.engineCall())
	if errors.Is(err, engine.ErrNone) {
		return refuse(http.StatusNotImplemented, turn.CodeUnsupported, "tokens cannot be counted: the engine cannot render a prompt without sampling")
	}
	if err != nil {
		return err
	}
	if v.route.api == apiGenerate {
		return g.answerBody(v, generate.CountTokens(int64(len(ids))))
	}
	return g.answerBody(v, messages.CountTokens(int64(len(ids))))
}
