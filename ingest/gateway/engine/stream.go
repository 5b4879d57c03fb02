package engine

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"icecore/ingest/gateway/sse"
	"icecore/ingest/gateway/turn"
)

// Stream is one answer as it comes. It is used from one goroutine; Close may be called
// from another.
type Stream struct {
	engine  *Engine
	call    *Call
	plan    *plan
	asked   int // choices
	sent    []int32
	request []byte

	run      context.Context //nolint:containedctx // it is the call's life
	cancel   context.CancelCauseFunc
	followed <-chan struct{}
	follows  sync.Mutex
	unfollow func() bool
	quiet    *time.Timer

	answer *http.Response
	source source
	events *sse.Reader // nil: the answer comes whole
	chunk  chunk
	err    error       // how it ended; io.EOF: well
	given  bool        // a whole answer was
	inside bool        // the prompt ends within the thinking
	over   atomic.Bool // the engine ended the call

	choices   []*heard
	prompt    []int32
	hasPrompt bool
	toldCount bool // Piece.PromptTokens was given
	usage     usage
	flags     []string
	told      string // a version
	toldFirst bool   // before the first token
	spans     []versionSpan
	first     time.Time
	closing   sync.Once
}

// Next gives what came next, in one piece for each event that says anything. The error
// is io.EOF once the engine has ended properly: every choice has a finish reason. Any
// other is a *turn.Fault: aborted where the engine aborted the call or ended it without
// a finish reason, engine_error where it said what is wrong, engine_broke where the
// connection broke, timeout where it was silent for too long. After an error the same
// comes again.
func (s *Stream) Next(ctx context.Context) (Piece, error) {
	if s.err != nil {
		return Piece{}, s.err
	}
	s.follow(ctx)
	if s.events == nil {
		return s.whole()
	}
	for {
		event, err := s.events.Next()
		if err != nil {
			return Piece{}, s.end(s.broken(err))
		}
		if len(event.Data) == 0 {
			continue
		}
		if string(event.Data) == "[DONE]" {
			return Piece{}, s.end(s.done())
		}
		piece, err := s.event(event.Name, event.Data)
		if err != nil {
			return Piece{}, s.end(err)
		}
		if len(piece.Deltas) > 0 || len(piece.Ends) > 0 || piece.PromptTokens != nil {
			return piece, nil
		}
	}
}

// follow lets the context of this Next end the call, where it is not that of Do.
func (s *Stream) follow(ctx context.Context) {
	done := ctx.Done()
	if done == nil || done == s.followed {
		return
	}
	s.follows.Lock()
	defer s.follows.Unlock()
	if s.unfollow != nil {
		s.unfollow()
	}
	s.followed = done
	s.unfollow = context.AfterFunc(ctx, func() { s.cancel(context.Cause(ctx)) })
}

func (s *Stream) event(name string, data []byte) (Piece, error) {
	if err := s.chunk.decode(data); err != nil {
		if name == "error" {
			return Piece{}, s.engine.event(&engineFault{message: string(data)})
		}
		return Piece{}, &turn.Fault{Status: http.StatusBadGateway, Code: turn.CodeEngineBroke,
			Message: "the engine sent an event that cannot be read", Cause: err}
	}
	if f := s.chunk.fault; f != nil {
		s.over.Store(true)
		return Piece{}, s.engine.event(f)
	}
	return s.take(), nil
}

// whole reads an answer that is not streamed and gives all of it in one piece.
func (s *Stream) whole() (Piece, error) {
	if s.given {
		return Piece{}, s.end(s.done())
	}
	body, err := io.ReadAll(&s.source)
	if err != nil {
		return Piece{}, s.end(s.broken(err))
	}
	s.given = true
	if err := s.chunk.decode(body); err != nil {
		return Piece{}, s.end(&turn.Fault{Status: http.StatusBadGateway, Code: turn.CodeEngineBroke,
			Message: "the engine sent an answer that cannot be read", Cause: err})
	}
	if s.chunk.fault != nil {
		return Piece{}, s.end(s.engine.event(s.chunk.fault))
	}
	piece := s.take()
	var parts []turn.Delta
	for _, d := range piece.Deltas {
		parts = append(parts, split(d)...)
	}
	piece.Deltas = parts
	return piece, nil
}

// split parts a delta as a stream would.
func split(d turn.Delta) []turn.Delta {
	var out []turn.Delta
	if d.Reasoning != "" {
		out = append(out, turn.Delta{Choice: d.Choice, Reasoning: d.Reasoning})
	}
	if d.Text != "" || d.Refusal != "" || d.Logprobs != nil {
		out = append(out, turn.Delta{Choice: d.Choice, Text: d.Text, Refusal: d.Refusal, Logprobs: d.Logprobs})
	}
	if len(d.Calls) > 0 {
		out = append(out, turn.Delta{Choice: d.Choice, Calls: d.Calls})
	}
	return out
}

// broken makes a fault of a connection's end.
func (s *Stream) broken(err error) error {
	if f := ended(s.run); f != nil {
		return f
	}
	if errors.Is(err, errTooLarge) || errors.Is(err, sse.ErrTooLarge) {
		return &turn.Fault{Status: http.StatusBadGateway, Code: turn.CodeEngineError, Message: "the engine's answer is too large", Cause: err}
	}
	if errors.Is(err, io.EOF) && s.plan.kind != KindVLLM && s.plan.kind != KindSGLang && s.finished() && s.usage.has {
		s.flag(flagDoneMissing) // not every server has it
		return s.done()
	}
	s.engine.ask()
	return &turn.Fault{Status: http.StatusBadGateway, Code: turn.CodeEngineBroke,
		Message: "the engine broke the connection within its answer", Cause: noEOF(err)}
}

func (s *Stream) finished() bool {
	if len(s.choices) < s.asked {
		return false
	}
	return !slices.ContainsFunc(s.choices, func(h *heard) bool { return h.finish == "" })
}

// done says how an answer ended that came to its end.
func (s *Stream) done() error {
	s.over.Store(true)
	for _, h := range s.choices {
		switch h.finish {
		case finishAbort:
			why := "the engine aborted the call"
			if h.why != "" {
				why += ": " + s.engine.clean(h.why)
			}
			return &turn.Fault{Status: http.StatusBadGateway, Code: turn.CodeAborted, Message: why}
		case finishError:
			return &turn.Fault{Status: http.StatusBadGateway, Code: turn.CodeEngineError, Message: "the engine ended the answer with an error"}
		}
	}
	if !s.finished() {
		return &turn.Fault{Status: http.StatusBadGateway, Code: turn.CodeAborted,
			Message: "the engine ended the answer without a finish reason"}
	}
	s.conclude()
	return io.EOF
}

// end notes how the answer ended, and frees what it held.
func (s *Stream) end(err error) error {
	s.err = err
	s.closing.Do(func() { s.release(errors.Is(err, io.EOF)) })
	return err
}

// Close ends the call where it has not ended: the connection is closed, and the engine
// is asked to abort, if it has a route for that. It may be called again.
func (s *Stream) Close() error {
	s.closing.Do(func() { s.release(false) })
	return nil
}

// Usage gives the counts as the engine told them last.
func (s *Stream) Usage() turn.Usage { return s.usage.usage }

// Raw gives, with Call.KeepRaw, the request's body as it was sent and the answer's as
// far as it came; else nil.
func (s *Stream) Raw() (request, response []byte) { return s.request, s.source.kept }

// FirstToken is when the first token came; zero: none did.
func (s *Stream) FirstToken() time.Time { return s.first }

func (s *Stream) flag(word string) {
	if !slices.Contains(s.flags, word) {
		s.flags = append(s.flags, word)
	}
}
