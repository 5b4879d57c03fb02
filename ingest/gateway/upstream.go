package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"icecore/ingest/gateway/engine"
	"icecore/ingest/gateway/turn"
)

// engines, sampler and answer are package engine as this package uses it, so that a
// test can put in its place what no real engine would do.
type engines interface {
	Start(ctx context.Context)
	Close()
	Models() []engine.Model
	Status() []engine.Status
	Pick(model, affinity string, exclude ...string) (sampler, error)
}

type sampler interface {
	Name() string
	Kind() string
	Downs() int64
	Do(ctx context.Context, c *engine.Call) (answer, error)
	Version(ctx context.Context, maxAge time.Duration) (*int64, string)
	TokenIn(c *engine.Call) bool
	Render(ctx context.Context, c *engine.Call) ([]int32, error)
	Detokenize(ctx context.Context, model string, ids []int32) (string, error)
	Tokenize(ctx context.Context, model, text string) ([]int32, error)
}

type answer interface {
	Next(ctx context.Context) (engine.Piece, error)
	Sampled(i int) *engine.Sampled
	Usage() turn.Usage
	Raw() (request, response []byte)
	FirstToken() time.Time
	Close() error
}

type enginePool struct{ *engine.Pool }

// noModel is the fault of a name that nothing here has. While the names are the engines'
// own and one of them was never reached, that cannot be said for good.
func (g *Gateway) noModel(name string) error {
	if len(g.settings.Models) == 0 {
		var f *turn.Fault
		if _, err := g.engines.Pick(name, ""); errors.As(err, &f) && f.Code == turn.CodeEngineUnreachable {
			return f
		}
	}
	return refuse(http.StatusNotFound, turn.CodeUnknownModel, fmt.Sprintf("there is no model %q here: GET models lists those that there are", clip(name, 128)))
}

// Pick implements engines.
func (p enginePool) Pick(model, affinity string, exclude ...string) (sampler, error) {
	e, err := p.Pool.Pick(model, affinity, exclude...)
	if err != nil {
		return nil, err
	}
	return engineOf{e}, nil
}

type engineOf struct{ *engine.Engine }

// Do implements sampler.
func (e engineOf) Do(ctx context.Context, c *engine.Call) (answer, error) {
	s, err := e.Engine.Do(ctx, c)
	if err != nil {
		return nil, err
	}
	return s, nil
}
