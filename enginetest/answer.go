package enginetest

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
)

// answer is one choice: what will be sampled, and how far it has come.
type answer struct {
	index    int
	ids      []int32
	logprobs []float32
	finish   string
	// stop is why it stopped, as vLLM's stop_reason: nil, an id, or a text.
	stop any
	// shown bounds the text in bytes, where a stop sequence cut it; -1: all.
	shown int

	sampled, sent atomic.Int64 // how many ids
	versions      []VersionAt

	text   detokenizer
	parser parser
	kept   callDelta // arguments kept for the end
	whole  gathered
	plain  []byte // the whole text, unparsed
}

// plan makes the answer of choice i. It hangs on seed, script and prompt alone.
func (c *call) plan(i int) *answer {
	seen := c.seen
	seen.Choice = i
	t := c.script.turn(&seen)
	if !c.thinking {
		t.Reasoning = ""
	}
	seed := c.seedOf(i)
	a := &answer{index: i, shown: -1}
	room := c.room()
	switch {
	case c.req.IgnoreEOS && c.req.max() > 0:
		a.ids, a.finish = c.encode(t.filled(room, seed), t, seed)[:room], "length"
	default:
		var end []int32
		switch c.script.Sampling.End {
		case "none":
		case "second":
			end, a.stop = []int32{EndOfText}, EndOfText
		default:
			end = []int32{ImEnd}
		}
		text := t.text()
		if length := max(t.Length, c.req.MinTokens); length > 0 && len(t.Calls) == 0 {
			a.ids = c.encode(t.filled(length-len(end), seed), t, seed)
			a.ids = a.ids[:max(length-len(end), 0)]
		} else {
			a.ids = c.encode(text, t, seed)
		}
		a.ids, a.finish = append(a.ids, end...), "stop"
	}
	if len(a.ids) > room {
		a.ids, a.finish, a.stop = a.ids[:room], "length", nil
	}
	a.cut(c.req.stops(), c.req.stopIDs(), c.script.Sampling.PastStop)
	if t.Finish != "" {
		a.finish = t.Finish
	}
	a.logprobs = logprobs(c.past, a.ids)
	if l := c.script.Logprobs; l.Uniform {
		for k := l.From; k < len(a.logprobs); k++ {
			a.logprobs[k] = -float32(math.Log(float64(VocabSize)))
		}
	}
	return a
}

func (c *call) encode(text string, t Turn, seed uint64) []int32 {
	switch {
	case t.Spelled:
		return EncodePlain(text)
	case c.script.Sampling.Drift:
		return EncodeDrifting(text, seed)
	}
	return Encode(text)
}

// seedOf is the seed of choice i.
func (c *call) seedOf(i int) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(c.name)) // never fails
	seed := h.Sum64() ^ c.e.options.Seed*0x9E3779B97F4A7C15 ^ c.past.mixed() ^ uint64(i)<<56
	if c.script.Sampling.ByAttempt {
		seed ^= uint64(c.attempt) << 32
	}
	return seed
}

// text is what the model writes for a turn; the template prints it alike.
func (t Turn) text() string {
	if t.Raw != "" {
		return t.Raw
	}
	var b strings.Builder
	if t.Reasoning != "" {
		b.WriteString("<think>\n" + strings.Trim(t.Reasoning, "\n") + "\n</think>\n\n")
	}
	b.WriteString(t.Text)
	for i, c := range t.Calls {
		if i > 0 || t.Text != "" && !strings.HasSuffix(t.Text, "\n") {
			b.WriteString("\n")
		}
		b.WriteString(callText(c))
	}
	return b.String()
}

var words = strings.Fields("the core of the ice is read in order and each layer stands on another as it fell one winter tells of sand 12 of " +
	"ash and the next of rain “so thin” that only a line remains été comme hiver 雪 と 氷 name user tool command")

// filled is the turn's text with words behind it, enough for n ids in any tokenisation.
func (t Turn) filled(n int, seed uint64) string {
	text := t.text()
	r := rand.New(rand.NewPCG(seed, 0xf111))
	b := []byte(text)
	for len(Encode(string(b))) < n+n/4+16 { // drift may take a few longer tokens too
		for bound := 2*len(b) + 64; len(b) < bound; {
			b = append(append(b, ' '), words[r.IntN(len(words))]...)
		}
	}
	return string(b)
}

// drawn are the ids sampled so far.
func (a *answer) drawn() []int32 {
	n := a.sampled.Load()
	return a.ids[:n:n]
}

// cut ends the answer at the first stop, past ids later than the engine saw it.
func (a *answer) cut(stops []string, stopIDs []int32, past int) {
	if len(stops) == 0 && len(stopIDs) == 0 {
		return
	}
	var text []byte
	for i, id := range a.ids {
		if slices.Contains(stopIDs, id) {
			a.ids, a.finish, a.stop = a.ids[:i+1], "stop", id
			return
		}
		if hidden(id) {
			continue
		}
		from := len(text)
		text = append(text, Token(id)...)
		at, which := -1, ""
		for _, s := range stops {
			begin := max(0, from-len(s)+1)
			if k := strings.Index(string(text[begin:]), s); s != "" && k >= 0 && (at < 0 || begin+k < at) {
				at, which = begin+k, s
			}
		}
		if at >= 0 {
			a.ids, a.finish, a.stop, a.shown = a.ids[:min(i+1+past, len(a.ids))], "stop", which, at
			return
		}
	}
}

// show gives the text that ids[from:to] add, and all that was held when last.
func (a *answer) show(from, to int, last bool) string {
	var raw []byte
	for _, id := range a.ids[from:to] {
		if !hidden(id) {
			raw = append(raw, Token(id)...)
		}
	}
	text := a.text.push(string(raw))
	if last {
		text += a.text.end()
	}
	if a.shown >= 0 {
		text = text[:min(len(text), max(0, a.shown-len(a.plain)))]
	}
	a.plain = append(a.plain, text...)
	return text
}
