package gateway

import (
	"context"
	"errors"
	"time"

	"icecore/ingest/gateway/engine"
	"icecore/ingest/gateway/settings"
	"icecore/ingest/gateway/turn"
	"icecore/trace"
)

// call is one call of a harness, as it was admitted. Nothing of it changes afterwards,
// but for hash and link.
type call struct {
	g        *Gateway
	provider turn.Provider
	caller   caller
	agent    agent
	// request is what the engine is asked; requested is the model that the harness
	// named, and params go into the engine's body besides.
	request   *turn.Request
	requested string
	model     string
	options   *settings.Model
	params    settings.Members
	tools     string // hash; empty: there are none
	// body is what the harness sent, inflated, and headers what is kept of its headers.
	body    []byte
	headers map[string]string
	// ids are the traces', one per choice.
	ids     []string
	started time.Time
	// hash and link tell of calls sent again. They are the handler's alone.
	hash string
	link link
	// cancel ends the call at its engine, for one of the causes below.
	cancel context.CancelCauseFunc
}

// Why a call was cancelled: causes of its context.
var (
	errGone       = errors.New("the harness has left")
	errSuperseded = errors.New("the harness sent the call again")
	errStopping   = errors.New("the gateway stops")
	errFirstByte  = errors.New("the engine did not begin its answer in time")
	errCallTime   = errors.New("the call took too long")
	errPanicked   = errors.New("a panic ended the call")
)

// outcome is what became of a call at its engine. It is complete when the goroutine
// that read the engine has ended, and is then the handler's alone.
type outcome struct {
	// intents are durable once begun is true: then traces have to follow.
	intents []*trace.Intent
	begun   bool
	// engine and kind are of the last attempt.
	engine, kind string
	attempts     []attempt
	sampled      []*engine.Sampled
	ends         []turn.End
	usage        turn.Usage
	// gather holds the answer so far.
	gather turn.Gather
	// raw is the engine's side of the wire, where it is kept.
	rawRequest, rawResponse []byte
	before, after           moment
	firstToken, ended       time.Time
	drift                   drift
	// flags are what was odd, beside what the engine's own are.
	flags []string
	// fault is nil when every choice came to its end; otherwise status is what the
	// traces say of it, unless the harness had left.
	fault *turn.Fault
}

// attempt is one engine that was tried, and what came of it.
type attempt struct {
	Engine string `json:"engine"`
	// Fault is a code; empty: the engine answered.
	Fault  string `json:"fault,omitempty"`
	Status int    `json:"status,omitempty"`
}

// status says how a call ended, given why its context ended (nil: it did not).
func (o *outcome) status(cause error) trace.Status {
	switch {
	case errors.Is(cause, errGone), errors.Is(cause, errSuperseded):
		return trace.StatusClientGone
	case o.fault == nil:
		return trace.StatusOK
	case errors.Is(cause, errStopping), o.fault.Code == turn.CodeAborted:
		return trace.StatusAborted
	}
	return trace.StatusUpstreamError
}

// faultOf is the fault of a call that was cancelled for a cause of ours; otherwise it
// is err.
func faultOf(cause, err error) *turn.Fault {
	switch {
	case errors.Is(cause, errStopping):
		return &turn.Fault{Status: 503, Code: turn.CodeAborted, Message: "overloaded: the gateway stops; send this call again later", RetryAfter: storeAgain, Cause: err}
	case errors.Is(cause, errFirstByte), errors.Is(cause, errCallTime):
		return &turn.Fault{Status: 504, Code: turn.CodeTimeout, Message: cause.Error(), Cause: err}
	case cause != nil:
		return &turn.Fault{Status: 499, Code: turn.CodeAborted, Message: cause.Error(), Cause: err}
	}
	var f *turn.Fault
	if errors.As(err, &f) {
		return f
	}
	return &turn.Fault{Status: 500, Code: turn.CodeEngineError, Message: "the gateway failed; its log says why", Cause: err}
}

func (c *call) head() turn.Head {
	return turn.Head{ID: c.ids[0], Model: c.requested, Created: c.started.Unix(), TraceIDs: c.ids}
}

// engineCall is the call as an engine gets it.
func (c *call) engineCall() *engine.Call {
	return &engine.Call{Request: c.request, Model: c.model, TraceIDs: c.ids, Params: c.params,
		Reasoning: c.options.ReasoningField, ReasoningParser: c.options.ReasoningParser, ToolParser: c.options.ToolParser,
		KeepRaw: c.g.settings.Bodies == settings.BodiesEngine}
}

// affinity keeps the calls of one thread at one engine, which has their prefix cached.
func (c *call) affinity() string { return c.caller.rollout + "\x00" + c.agent.thread }
