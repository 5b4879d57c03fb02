package engine

import (
	"context"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"icecore/ingest/gateway/parser"
	"icecore/ingest/gateway/sse"
	"icecore/ingest/gateway/turn"
)

// Bounds of one call.
const (
	// maxEvent bounds one event: the first may hold the ids of the whole prompt.
	maxEvent   = 64 << 20
	maxRefusal = 64 << 10
	// maxAttempts bounds what is tried until an engine takes a request. Each but the
	// last taught something that is remembered.
	maxAttempts = 8
)

// Do sends the call and returns once the engine has accepted it: its answer's status
// is 2xx. An engine that does not stream accepts when its answer is ready. While the
// engine has as many calls open as it may, Do waits. The error is a *turn.Fault; where
// the context ended, errors.Is finds why.
//
// Whoever gets a Stream must Close it.
func (e *Engine) Do(ctx context.Context, c *Call) (*Stream, error) {
	if err := e.enter(ctx); err != nil {
		return nil, err
	}
	s := newStream(ctx, e, c)
	if err := s.open(); err != nil {
		s.err = err
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// enter takes a place among the open calls.
func (e *Engine) enter(ctx context.Context) error {
	if e.slots != nil {
		select {
		case e.slots <- struct{}{}:
		case <-ctx.Done():
			return ended(ctx)
		}
	}
	e.open.Add(1)
	return nil
}

func (e *Engine) leave() {
	e.open.Add(-1)
	if e.slots != nil {
		<-e.slots
	}
}

// open makes attempts until the engine takes one.
func (s *Stream) open() error {
	e := s.engine
	known := e.know(s.call.Model)
	for attempt := 1; ; attempt++ {
		s.settle(&known)
		body, err := s.body()
		if err != nil {
			return err
		}
		if s.call.KeepRaw {
			s.request = body
		}
		answer, err := e.send(s.run, http.MethodPost, s.plan.path(), body, s.id())
		if err != nil {
			s.over.Store(ended(s.run) == nil)
			return err
		}
		s.over.Store(false)
		if answer.StatusCode >= 200 && answer.StatusCode <= 299 {
			if attempt > 1 {
				e.learn(s.call.Model, func(l *learnt) {
					l.refused, l.whole, l.noTokenIn = known.refused, known.whole, known.noTokenIn
				})
			}
			s.begin(answer)
			return nil
		}
		says, _ := io.ReadAll(io.LimitReader(answer.Body, maxRefusal))
		_ = answer.Body.Close()
		f := e.refused(answer.StatusCode, answer.Header, says)
		s.over.Store(true)
		if attempt >= maxAttempts || !s.adapt(&known, answer.StatusCode, f) {
			return f
		}
	}
}

// settle makes the plan of the next attempt.
func (s *Stream) settle(known *learnt) {
	if s.call.PromptIDs != nil && known.noTokenIn {
		// The engine does not take ids. The call is served from its messages; the prompt
		// that the engine tells is what is recorded.
		whole := *s.call
		whole.PromptIDs = nil
		s.call = &whole
		s.flag(flagTokenInRefused)
	}
	s.plan = s.engine.plan(s.call, known)
}

func (s *Stream) body() ([]byte, error) {
	if s.plan.tokenIn {
		if err := checkParsers(s.call); err != nil {
			return nil, err
		}
		s.inside = s.call.ReasoningParser == parser.Think && s.engine.opens(s.run, s.call.Model, s.call.PromptIDs)
		return completionsBody(s.call, s.plan, s.engine.maxLen(s.call.Model))
	}
	return chatBody(s.call, s.plan)
}

func (s *Stream) id() string {
	if len(s.call.TraceIDs) == 0 {
		return ""
	}
	return s.call.TraceIDs[0]
}

// adapt changes what is known by a refusal, so that the next attempt is another;
// false: the refusal is about the request itself.
func (s *Stream) adapt(known *learnt, status int, f *turn.Fault) bool {
	if s.plan.tokenIn && missing(status) && f.Code != turn.CodeUnknownModel {
		known.noTokenIn = true // there is no such route
		return true
	}
	if status != http.StatusBadRequest && status != http.StatusUnprocessableEntity {
		return false
	}
	members, stream := s.plan.refusal(s.call, f.Message)
	switch {
	case stream:
		known.whole = true
	case members != nil:
		if known.refused == nil {
			known.refused = map[string]bool{}
		}
		for _, m := range members {
			if m == mInputIDs {
				known.noTokenIn = true
			} else {
				known.refused[m] = true
			}
		}
	case s.call.PromptIDs != nil && !known.noTokenIn:
		// Whatever it dislikes, the harness's request may still be good.
		known.noTokenIn = true
	default:
		return false
	}
	return true
}

// begin takes an accepted answer.
func (s *Stream) begin(answer *http.Response) {
	if s.quiet != nil {
		s.quiet.Stop()
	}
	s.answer = answer
	s.source.from = answer.Body
	s.source.left = s.engine.pool.o.MaxAnswerBytes
	if name := s.engine.cfg.VersionHeader; name != "" {
		if v := clip(answer.Header.Get(name), maxWord); v != "" {
			s.told, s.toldFirst = v, true
			s.engine.toldVersion(v)
		}
	}
	// What an engine answers with counts, and not what it was asked for.
	kind, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	if kind != "application/json" && (!s.plan.whole || kind == "text/event-stream") {
		s.events = sse.NewReader(&s.source, int(min(maxEvent, s.engine.pool.o.MaxAnswerBytes)))
	}
}

// source reads the answer: it counts, and keeps what is to be kept.
type source struct {
	stream *Stream
	from   io.Reader
	left   int64
	kept   []byte
}

var errTooLarge = fmt.Errorf("the answer is too large")

func (r *source) Read(b []byte) (int, error) {
	if r.left <= 0 {
		return 0, errTooLarge
	}
	// Silence counts while it is listened to: a reader that is slow is not the engine's
	// fault.
	if quiet := r.stream.quiet; quiet != nil {
		quiet.Reset(r.stream.engine.pool.o.SilenceTimeout)
		defer quiet.Stop()
	}
	n, err := r.from.Read(b[:min(int64(len(b)), r.left)])
	r.left -= int64(n)
	if n > 0 {
		r.stream.engine.heard.Add(1)
	}
	if n > 0 && r.stream.call.KeepRaw {
		r.kept = append(r.kept, b[:n]...)
	}
	return n, err
}

func newStream(ctx context.Context, e *Engine, c *Call) *Stream {
	s := &Stream{engine: e, call: c, sent: c.PromptIDs, asked: c.Request.Choices()}
	s.run, s.cancel = context.WithCancelCause(ctx)
	s.followed = ctx.Done()
	s.source.stream = s
	if quiet := e.pool.o.SilenceTimeout; quiet > 0 {
		s.quiet = time.AfterFunc(quiet, func() { s.cancel(errSilent) })
	}
	return s
}
