package gateway

import (
	"context"
	"strconv"
	"time"

	"icecore/ingest/gateway/engine"
	"icecore/trace"
)

// versionAge is how old what an engine said of its weights may be at dispatch. It is
// asked anew at completion; when both agree, nothing changed in between, and the older
// answer was true at dispatch as well.
const versionAge = 5 * time.Second

// versionWait bounds how long an engine may take to say it at completion.
const versionWait = 3 * time.Second

// moment is the version of the weights at one moment, by who tells it.
type moment struct {
	// engine is the engine's own integer, text what it said in other words.
	engine *int64
	text   string
	// pushed is what a trainer announced.
	pushed *int64
}

func (g *Gateway) versionAt(ctx context.Context, e sampler, model string, age time.Duration) moment {
	m := moment{pushed: g.versions.At(model)}
	m.engine, m.text = e.Version(ctx, age)
	return m
}

// versionOf is what is known of the weights that sampled a choice.
type versionOf struct {
	version *int64
	spans   []trace.VersionSpan
	// metadata is nil when there is no more to say.
	metadata map[string]any
}

// resolveVersion sets together what was said of the weights: by the engine of each
// token, then by the engine before and after, then by the request's header, then by the
// trainer before and after. What differs without saying where is not known: then only
// metadata has it.
func resolveVersion(s *engine.Sampled, header *int64, before, after moment) versionOf {
	if spans := usableSpans(s); spans != nil {
		out := versionOf{version: &spans[0].Version}
		if len(spans) > 1 {
			out.spans = spans
		}
		return out
	}
	out := versionOf{metadata: map[string]any{}}
	if len(s.VersionStrings) > 0 {
		out.metadata["strings"] = s.VersionStrings
	}
	dispatch, completion := before.engine, after.engine
	if told, err := strconv.ParseInt(s.Told, 10, 64); err == nil && told >= 0 {
		// The answer itself is closer to its tokens than what was asked afterwards,
		// unless that differs too.
		if dispatch == nil {
			dispatch = &told
		}
		switch {
		case s.ToldFirst && !equal(before.pushed, after.pushed):
			// New weights were announced while the answer ran, after it had named its own.
		case completion == nil || *completion == *dispatch:
			completion = &told
		}
	} else if s.Told != "" {
		out.metadata["told"] = clip(s.Told, 128)
	}
	source := "engine"
	texts := before.text != after.text && before.text != "" && after.text != ""
	if texts {
		out.metadata["dispatch"], out.metadata["completion"] = clip(before.text, 128), clip(after.text, 128)
	}
	if dispatch == nil && completion == nil {
		switch {
		case texts || len(s.VersionStrings) > 1:
			// The engine says that it changed, in words that are no numbers.
		case header != nil:
			source, dispatch, completion = "header", header, header
		default:
			source, dispatch, completion = "announced", before.pushed, after.pushed
		}
	}
	switch {
	case dispatch != nil && completion != nil && *dispatch == *completion:
		out.version = dispatch
		out.metadata["source"] = source
		return out
	case dispatch != nil && completion != nil:
		out.metadata["min"], out.metadata["max"] = min(*dispatch, *completion), max(*dispatch, *completion)
	}
	if dispatch != nil {
		out.metadata["dispatch"] = *dispatch
	}
	if completion != nil {
		out.metadata["completion"] = *completion
	}
	if len(out.metadata) == 0 {
		out.metadata = nil
	}
	return out
}

func equal(a, b *int64) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }

// usableSpans are the engine's spans if they are of the ids that there are.
func usableSpans(s *engine.Sampled) []trace.VersionSpan {
	if len(s.Versions) == 0 || s.Versions[0].Start != 0 {
		return nil
	}
	last := int64(-1)
	var out []trace.VersionSpan
	for _, v := range s.Versions {
		if v.Version < 0 || v.Start <= last {
			return nil
		}
		last = v.Start
		if v.Start == 0 || v.Start < int64(len(s.IDs)) {
			out = append(out, v)
		}
	}
	return out
}
