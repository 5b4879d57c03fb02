package engine

import (
	"context"
	"io"
	"net/http"
	"slices"
	"time"

	"icecore/ingest/gateway/turn"
)

const (
	// drainFor bounds the wait for the end of a body behind [DONE], without which the
	// connection cannot serve another call.
	drainFor = 500 * time.Millisecond
	maxDrain = 4 << 10
	abortFor = 3 * time.Second
)

// release frees what the call holds, once.
func (s *Stream) release(well bool) {
	if s.quiet != nil {
		s.quiet.Stop()
	}
	s.follows.Lock()
	if s.unfollow != nil {
		s.unfollow()
	}
	s.follows.Unlock()
	defer s.engine.leave()
	if well && s.events != nil {
		s.engine.pool.background(s.drain)
		return
	}
	s.cancel(errClosed)
	if s.answer != nil {
		_ = s.answer.Body.Close()
	}
	if !well && !s.over.Load() && s.id() != "" {
		s.engine.pool.background(func() { s.engine.abort(s.id(), s.plan.tokenIn) })
	}
}

func (s *Stream) drain() {
	late := time.AfterFunc(drainFor, func() { s.cancel(errClosed) })
	_, _ = io.Copy(io.Discard, io.LimitReader(s.answer.Body, maxDrain))
	_ = s.answer.Body.Close()
	late.Stop()
	s.cancel(errClosed)
}

// abort asks the engine to end a call whose connection is closed already: engines
// should see that, and some do not. It is an attempt; nothing hangs on its success.
func (e *Engine) abort(id string, completions bool) {
	ctx, cancel := context.WithTimeout(context.Background(), abortFor)
	defer cancel()
	var route string
	var w writer
	switch e.Kind() {
	case KindVLLM:
		route = "/abort_requests"
		ids := []string{id, "chatcmpl-" + id}
		if completions {
			ids = []string{id, "cmpl-" + id, "cmpl-" + id + "-0"}
		}
		w.put("request_ids", ids)
	case KindSGLang:
		route = "/abort_request"
		w.put(mRid, id)
	default:
		return
	}
	if !e.has(route) {
		return
	}
	body, err := w.end()
	if err != nil {
		return
	}
	if _, status, err := e.small(ctx, http.MethodPost, route, body, maxSmall); err != nil {
		if missing(status) {
			e.lacks(route)
			return
		}
		e.pool.log.Debug("engine did not abort", "engine", e.name, "call", id, "why", unwrapped(err))
	}
}

// conclude learns from an answer that ended well.
func (s *Stream) conclude() {
	if s.call.PromptIDs != nil && s.hasPrompt && !slices.Equal(s.prompt, s.call.PromptIDs) {
		s.engine.learn(s.call.Model, func(l *learnt) { l.noTokenIn = true })
	}
	if s.plan.kind != KindSGLang {
		return
	}
	sglext, deltas, meta := false, false, false
	for _, h := range s.choices {
		sglext = sglext || h.output != nil
		deltas = deltas || h.hasIDs
		meta = meta || h.hasMeta
	}
	if !sglext && !deltas && !meta && turn.Count(s.usage.usage.Completion) == 0 {
		return // nothing was sampled
	}
	way := s.plan.way
	s.engine.learn(s.call.Model, func(l *learnt) {
		switch {
		case way == waySglext && !sglext:
			l.lostSglext, l.way = true, wayAsk
		case way == wayDeltas && !deltas:
			l.lostDeltas, l.way = true, wayAsk
		case way == waySglext, way == wayDeltas:
			l.way = way
		case way == wayNone && sglext:
			l.way = waySglext
		case way != wayAsk:
		case sglext && !l.lostSglext:
			l.way = waySglext
		case deltas && !l.lostDeltas && !l.whole:
			l.way = wayDeltas
		case sglext || deltas || meta:
			l.way = wayWhole
		default:
			l.way = wayNone
		}
	})
}
