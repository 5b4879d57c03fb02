package continuity

import (
	"slices"
	"sync"

	"icecore/ingest/gateway/turn"
)

// Trust watches whether renderings are what the engine really makes of messages. Each
// call that was not spliced is evidence: set its rendering against the prompt ids that
// the engine told. A source is trusted for what it rendered rightly, and for nothing
// more once it disagreed: its template has changed, or the gateway's copy is not it.
//
// What a rendering shows about others is told by features, as Features gives them: a
// template that has never been seen with a tool's result is not trusted with one, for
// in a spliced call nobody would notice. The zero Trust knows nothing. Safe for
// concurrent use.
type Trust struct {
	mu      sync.Mutex
	sources map[string]*evidence
}

// Source is where renderings come from.
type Source struct {
	// Name holds the engine and the model, and the template where the gateway renders.
	Name string
	// Life counts up when the engine may have become another. What was seen of an
	// earlier life says nothing of this one.
	Life int64
}

type evidence struct {
	life      int64
	disagreed bool
	agreed    map[string]bool
}

// Seen sets a rendering against the engine's prompt ids, and says whether they agree.
// Where one of them is not known (nil) nothing is learnt, and it says true.
func (t *Trust) Seen(source Source, features []string, rendered, prompt []int32) bool {
	if rendered == nil || prompt == nil {
		return true
	}
	same := slices.Equal(rendered, prompt)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sources == nil {
		t.sources = map[string]*evidence{}
	}
	e := t.sources[source.Name]
	switch {
	case e == nil || e.life < source.Life:
		e = &evidence{life: source.Life, agreed: map[string]bool{}}
		t.sources[source.Name] = e
	case e.life > source.Life:
		return same // it came late
	}
	if !same {
		e.disagreed, e.agreed = true, nil
	}
	if !e.disagreed {
		for _, f := range features {
			e.agreed[f] = true
		}
	}
	return same
}

// of gives what is known of the source's life; nil: nothing is.
func (t *Trust) of(source Source) *evidence {
	if e := t.sources[source.Name]; e != nil && e.life == source.Life {
		return e
	}
	return nil
}

// Trusted says whether the source agreed at least once, never disagreed, and has shown
// all of the features.
func (t *Trust) Trusted(source Source, features []string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.of(source)
	if e == nil || e.disagreed {
		return false
	}
	return !slices.ContainsFunc(features, func(f string) bool { return !e.agreed[f] })
}

// Disagreed says whether the source disagreed once.
func (t *Trust) Disagreed(source Source) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.of(source)
	return e != nil && e.disagreed
}

// Features are what a template may treat differently: tools, and which sort of message
// follows which.
func Features(r *turn.Request) []string {
	seen := map[string]bool{"tools": len(r.Tools) > 0}
	before := "start"
	for i := range r.Messages {
		m := &r.Messages[i]
		sort := m.Role
		if m.Reasoning != nil && *m.Reasoning != "" {
			sort += "+reasoning"
		}
		if m.Text() != "" {
			sort += "+text"
		}
		switch len(m.Calls) {
		case 0:
		case 1:
			sort += "+call"
		default:
			sort += "+calls"
		}
		seen[before+">"+sort] = true
		before = sort
	}
	seen[before+">end"] = true
	out := make([]string, 0, len(seen))
	for f, is := range seen {
		if is {
			out = append(out, f)
		}
	}
	slices.Sort(out)
	return out
}
