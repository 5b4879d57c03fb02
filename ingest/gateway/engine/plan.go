package engine

import (
	"maps"
	"slices"
	"strings"
	"unicode"

	"icecore/ingest/gateway/turn"
)

// Ways to get ids out of SGLang. Which one an engine takes is found out by asking, for
// each model, and forgotten when the engine comes back from being down.
const (
	// wayAsk: not known. The call is not streamed and asks for ids in every way there
	// is, so that none is lost; how they came tells the way.
	wayAsk = iota
	// waySglext: streamed, with one list of ids before the usage.
	waySglext
	// wayDeltas: streamed, with ids in each delta.
	wayDeltas
	// wayWhole: not streamed.
	wayWhole
	// wayNone: streamed, without ids; it never gave any.
	wayNone
)

// learnt is what one engine showed of one model. It is guarded by Engine.mu.
type learnt struct {
	way int
	// refused are members that were answered with 400.
	refused map[string]bool
	// whole: ids are not given in a stream.
	whole bool
	// lost counts streams that ended well and had none.
	lostSglext, lostDeltas bool
	// noTokenIn: a prompt of ids was not honoured.
	noTokenIn bool
}

// plan is how one attempt is made.
type plan struct {
	kind    string
	way     int
	whole   bool
	tokenIn bool // by /v1/completions
	ask     []string
}

func (p *plan) asks(name string) bool { return slices.Contains(p.ask, name) }

func (p *plan) path() string {
	if p.tokenIn {
		return "/v1/completions"
	}
	return "/v1/chat/completions"
}

// capture writes the members that are plain switches.
func (p *plan) capture(w *writer, c *Call) {
	for _, name := range p.ask {
		switch name {
		case mLogprobs, mTopLogprobs:
		case mStreamOptions:
			w.raw(name, []byte(`{"include_usage":true}`))
		case mRequestID, mRid:
			w.put(name, c.TraceIDs[0])
		default:
			w.raw(name, []byte("true"))
		}
	}
}

// know gives what was learnt of a model, as it is now.
func (e *Engine) know(model string) learnt {
	e.mu.Lock()
	defer e.mu.Unlock()
	l, ok := e.learnt[model]
	if !ok {
		return learnt{}
	}
	out := *l
	out.refused = maps.Clone(l.refused)
	return out
}

// learn changes what is known of a model.
func (e *Engine) learn(model string, change func(*learnt)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.learnt[model]
	if l == nil {
		l = &learnt{refused: map[string]bool{}}
		e.learnt[model] = l
	}
	change(l)
}

// plan says how to make a call, by what is known.
func (e *Engine) plan(c *Call, l *learnt) *plan {
	kind := e.Kind()
	p := &plan{kind: kind, whole: l.whole}
	switch kind {
	case KindSGLang:
		e.planSGLang(p, l)
	case KindVLLM:
		p.tokenIn = c.PromptIDs != nil
		p.ask = []string{mTokenIDs, mLogprobs, mTopLogprobs, mAsIDs}
	default:
		p.ask = []string{mTokenIDs, mLogprobs, mTopLogprobs, mAsIDs}
	}
	if len(c.TraceIDs) > 0 && c.TraceIDs[0] != "" {
		switch kind {
		case KindSGLang:
			p.ask = append(p.ask, mRid)
		case KindVLLM:
			p.ask = append(p.ask, mRequestID)
		}
	}
	if !p.whole {
		p.ask = append(p.ask, mStreamOptions)
	}
	p.ask = slices.DeleteFunc(p.ask, func(name string) bool {
		if name == mAsIDs && c.Request.Logprobs {
			return true // the harness wants to read its tokens
		}
		return l.refused[name] && !wanted(c.Request, name)
	})
	return p
}

// wanted says that the harness itself asked for a member.
func wanted(r *turn.Request, name string) bool {
	return r.Logprobs && (name == mLogprobs || name == mTopLogprobs)
}

func (e *Engine) planSGLang(p *plan, l *learnt) {
	p.way = l.way
	if p.way == wayAsk {
		e.mu.Lock()
		switch {
		case e.knows[mSglextOutput] && !l.lostSglext:
			p.way = waySglext
		case e.knows[mTokenIDs] && !l.lostDeltas:
			p.way = wayDeltas
		}
		e.mu.Unlock()
	}
	if l.whole && (p.way == waySglext || p.way == wayDeltas) {
		p.way = wayWhole
	}
	switch p.way {
	case waySglext, wayNone:
		p.ask = []string{mSglextInput, mSglextOutput, mLogprobs, mTopLogprobs}
	case wayDeltas:
		p.ask = []string{mTokenIDs, mLogprobs, mTopLogprobs}
	default:
		p.whole = true
		p.ask = []string{mSglextInput, mSglextOutput, mPromptIDs, mMetaInfo, mTokenIDs, mLogprobs, mTopLogprobs}
	}
}

// refusal finds what of a plan an engine's 400 is about: members to leave out, or the
// stream. Nothing: the fault is the request's own.
func (p *plan) refusal(c *Call, says string) (members []string, stream bool) {
	r := c.Request
	words := map[string]bool{}
	for _, w := range strings.FieldsFunc(strings.ToLower(says), func(r rune) bool {
		return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}) {
		words[w] = true
	}
	for _, name := range p.ask {
		if words[name] && !wanted(r, name) {
			members = append(members, name)
		}
	}
	if c.PromptIDs != nil && words[mInputIDs] {
		members = append(members, mInputIDs)
	}
	if !p.whole && (words["stream"] || words["streaming"]) {
		return nil, true
	}
	if members == nil && unknownMember(words) {
		// It does not say which one. All of ours go.
		for _, name := range p.ask {
			if !wanted(r, name) {
				members = append(members, name)
			}
		}
	}
	return members, false
}

func unknownMember(words map[string]bool) bool {
	some := func(list ...string) bool {
		return slices.ContainsFunc(list, func(w string) bool { return words[w] })
	}
	return some("unknown", "unrecognized", "unexpected", "extra", "additional", "unsupported", "forbidden") &&
		some("field", "fields", "argument", "arguments", "parameter", "parameters", "property", "properties", "key", "keys", "input", "inputs", "member")
}
