package engine

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"icecore/trace"
)

// weight is the version of the weights as the engine told it last.
type weight struct {
	text string
	at   time.Time // when the question was asked, or it told unasked
}

func (w weight) number() *int64 {
	if v, err := strconv.ParseInt(w.text, 10, 64); err == nil && v >= 0 {
		return &v
	}
	return nil
}

// Version gives the version of the weights: as a number where it is one, and as the
// engine writes it; nil and "" where it does not tell. What was told within maxAge is
// not asked for again. Callers that wait at the same time share one question.
func (e *Engine) Version(ctx context.Context, maxAge time.Duration) (*int64, string) {
	since := time.Now().Add(-maxAge)
	w, _, fresh := e.weightSince(since)
	if fresh {
		return w.number(), w.text // and nobody waits for another's question
	}
	select {
	case e.asking <- struct{}{}:
		defer func() { <-e.asking }()
	case <-ctx.Done():
		return nil, ""
	}
	w, kind, fresh := e.weightSince(since)
	if fresh {
		return w.number(), w.text
	}
	began := time.Now()
	text := e.askVersion(ctx, kind)
	if text == "" {
		return nil, ""
	}
	w = weight{text: text, at: began}
	e.mu.Lock()
	if e.weight.at.Before(began) {
		e.weight = w
	}
	e.mu.Unlock()
	return w.number(), w.text
}

// weightSince gives what was told last, and whether that was not before since.
func (e *Engine) weightSince(since time.Time) (w weight, kind string, fresh bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.weight, e.kind, !e.weight.at.IsZero() && !e.weight.at.Before(since)
}

func (e *Engine) askVersion(ctx context.Context, kind string) string {
	var routes []string
	switch kind {
	case KindVLLM:
		routes = []string{"/weight_info"}
	case KindSGLang:
		routes = []string{"/model_info", "/get_model_info", "/get_weight_version"}
	}
	for _, route := range routes {
		if !e.has(route) {
			continue
		}
		data, status, err := e.small(ctx, http.MethodGet, route, nil, maxSmall)
		if err != nil {
			if missing(status) {
				e.lacks(route)
				continue
			}
			return ""
		}
		if v := member(data, "weight_version"); v != "" {
			return v
		}
		e.lacks(route)
	}
	return ""
}

// toldVersion takes a version that an answer told.
func (e *Engine) toldVersion(v string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.weight = weight{text: v, at: time.Now()}
}

// weights takes versions that stand at the top of an answer.
func (s *Stream) weights(version string, spans []versionSpan) {
	if version != "" {
		s.told, s.toldFirst = version, false
		s.engine.toldVersion(version)
	}
	if spans != nil {
		s.spans = spans
	}
}

// versions reads spans over n ids: they must begin at 0, follow each other and cover
// all. Versions that are no integers are given as texts only.
func versions(spans []versionSpan, n int) (out []trace.VersionSpan, texts []string, ok bool) {
	at, numbers := int64(0), true
	for _, span := range spans {
		if span.start != at || span.end < span.start {
			return nil, nil, false
		}
		at = span.end
		v, err := strconv.ParseInt(span.version, 10, 64)
		numbers = numbers && err == nil
		if span.end > span.start {
			out = append(out, trace.VersionSpan{Start: span.start, Version: v})
			texts = append(texts, span.version)
		}
	}
	if at != int64(n) {
		return nil, nil, false
	}
	if !numbers {
		return nil, texts[:min(len(texts), maxSpans)], true
	}
	return out, nil, true
}
