package torture

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"icecore/trace"
)

// maker draws rollouts: everything that a harness does to its history.
type maker struct {
	r *rand.Rand
	n int
	// tag keeps the ids of one test's makers apart.
	tag string
}

func newMaker(seed uint64, tag string) *maker {
	return &maker{r: rand.New(rand.NewPCG(seed, 0x1ce)), tag: tag}
}

// endOfTurn ends most responses, so that polar_compat has something to find.
const endOfTurn = 9

func (m *maker) chance(percent int) bool { return m.r.IntN(100) < percent }

func (m *maker) ids(n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(10 + m.r.IntN(40))
	}
	if n > 0 && m.chance(5) {
		out[m.r.IntN(n)] = math.MaxInt32 - int32(m.r.IntN(3))
	}
	return out
}

func (m *maker) answer() []int32 {
	ids := m.ids(1 + m.r.IntN(30))
	if m.chance(80) {
		ids = append(ids, endOfTurn)
	}
	return ids
}

// call is a drawn trace with its ids in one piece.
type call struct {
	t    *trace.Trace
	p, r []int32
}

func (c *call) all() []int32 { return slices.Concat(c.p, c.r) }

// rolloutMaker draws one rollout.
type rolloutMaker struct {
	*maker
	id    string
	calls []*call
	turns []string
	seq   int64
}

// rollout draws a rollout of about n calls and what belongs to it.
func (m *maker) rollout(n int) *rollout {
	m.n++
	g := &rolloutMaker{maker: m, id: fmt.Sprintf("%s-r%03d", m.tag, m.n)}
	if m.chance(10) {
		g.id += " ü/?%" // ids are any printable text
	}
	system := g.ids(20 + m.r.IntN(100))
	if m.chance(8) {
		system = g.ids(4000 + m.r.IntN(5000)) // more than one chunk
	}
	last := g.add(system, g.answer())
	for len(g.calls) < n {
		last = g.step(last, system)
	}
	return g.finish()
}

func ptr[T any](v T) *T { return &v }

// add makes a trace of ids and everything else drawn.
func (g *rolloutMaker) add(p, r []int32) *call {
	g.seq++
	t := &trace.Trace{
		TraceID: fmt.Sprintf("%s-t%02d", g.id, g.seq), RolloutID: g.id, Seq: ptr(g.seq),
		PromptIDs: trace.TokensOf(p), ResponseIDs: r, Status: trace.StatusOK, Kind: trace.KindAgent, FinishReason: "stop",
	}
	if g.chance(5) {
		t.Seq = nil
	}
	if g.chance(90) {
		t.ResponseLogprobs = g.logprobs(len(r))
	}
	g.versions(t)
	g.attributes(t)
	g.bodies(t)
	c := &call{t: t, p: p, r: r}
	g.calls = append(g.calls, c)
	return c
}

func (g *rolloutMaker) logprobs(n int) *trace.Logprobs {
	l := &trace.Logprobs{Values: make([]float32, 0, n)}
	holes := g.chance(20)
	strange := g.chance(15)
	odd := []float32{float32(math.NaN()), float32(math.Inf(-1)), float32(math.Inf(1)), float32(math.Copysign(0, -1)),
		math.SmallestNonzeroFloat32, -math.MaxFloat32}
	for range n {
		switch {
		case holes && g.chance(20):
			l.AppendUnknown()
		case strange && g.chance(30):
			l.Append(odd[g.r.IntN(len(odd))])
		default:
			l.Append(-g.r.Float32() * 12)
		}
	}
	return l
}

func (g *rolloutMaker) versions(t *trace.Trace) {
	if g.chance(70) {
		t.PolicyVersion = ptr(int64(g.r.IntN(50)))
	}
	if n := len(t.ResponseIDs); n > 2 && g.chance(15) {
		t.PolicyVersionSpans = []trace.VersionSpan{{Start: 0, Version: 3}, {Start: int64(1 + g.r.IntN(n-1)), Version: 4}}
	}
}

func (g *rolloutMaker) attributes(t *trace.Trace) {
	a := &t.Attributes
	if g.chance(60) {
		a.Harness = []string{"codex", "claude-code", "qwen-code", "pi"}[g.r.IntN(4)]
		a.Model = "qwen3"
	}
	if g.chance(30) {
		a.TaskID, a.GroupID = "task-"+g.id, "group-"+g.id[:len(g.id)/2]
		a.SampleIndex = ptr(int64(g.r.IntN(8)))
	}
	if g.chance(30) {
		t.Metadata = []byte(`{"big":9007199254740993,"n":"` + strings.Repeat("x", g.r.IntN(30)) + `"}`)
		t.Usage = []byte(fmt.Sprintf(`{"completion_tokens":%d}`, len(t.ResponseIDs)))
		t.Sampling = []byte(`{"temperature":0.7}`)
		t.StartedAt, t.FinishedAt = ptr(int64(1_700_000_000_000_001)), ptr(int64(1_700_000_001_000_007))
		t.Tokenizer, t.API, t.Error = "qwen", "chat", ""
	}
}

// bodies grows the request as a harness does: the whole history each time.
func (g *rolloutMaker) bodies(t *trace.Trace) {
	g.turns = append(g.turns, fmt.Sprintf(`{"role":"user",  "content":"turn %d %s"}`, len(g.turns), strings.Repeat("lorem ", g.r.IntN(60))))
	if g.chance(70) {
		t.RequestBody = []byte("{\"messages\": [" + strings.Join(g.turns, ",\t ") + "], \"n\": 1.0}")
	}
	if g.chance(70) {
		t.ResponseBody = []byte(fmt.Sprintf(`{"id":%q, "choices":[{"text":"é \u00e9 %d"}]}`, t.TraceID, g.r.Uint32()))
	}
}

// step makes the next calls and gives the one that the harness goes on from.
func (g *rolloutMaker) step(last *call, system []int32) *call {
	next := func(c *call) []int32 { return append(c.all(), g.ids(1+g.r.IntN(20))...) }
	switch k := g.r.IntN(100); {
	case k < 45: // goes on
		return g.add(next(last), g.answer())
	case k < 53: // retry: the first answer is thrown away
		p := next(last)
		lost := g.add(p, g.answer())
		if g.chance(50) {
			lost.t.Status = trace.StatusAborted
		}
		return g.add(p, g.answer())
	case k < 60: // the reply broke off, and came whole
		p, r := next(last), g.answer()
		stub := g.add(p, r[:g.r.IntN(len(r))])
		stub.t.Status, stub.t.FinishReason = trace.StatusClientGone, ""
		return g.add(p, r)
	case k < 67: // fork from an earlier call
		return g.add(next(g.calls[g.r.IntN(len(g.calls))]), g.answer())
	case k < 72: // the same call under two names
		p, r := next(last), g.answer()
		g.add(p, r)
		return g.add(p, r)
	case k < 79: // n > 1 sampling
		p := next(last)
		group := fmt.Sprintf("%s-c%d", g.id, g.seq)
		var chosen *call
		for i := range 2 + g.r.IntN(2) {
			chosen = g.add(p, g.answer())
			chosen.t.ChoiceGroup, chosen.t.ChoiceIndex = group, ptr(int64(i))
		}
		return chosen
	case k < 84: // compaction: a summary by an auxiliary call, then a new beginning
		s := g.add(next(last), g.answer())
		s.t.Kind = trace.KindAuxiliary
		return g.add(slices.Concat(system, s.r, g.ids(5)), g.answer())
	case k < 89: // a sub-agent runs in between
		sub := g.add(g.ids(15), g.answer())
		g.add(next(sub), g.answer())
		return last
	case k < 93: // the harness edits early context
		p := next(last)
		p[g.r.IntN(len(p))]++
		p[0] &= math.MaxInt32
		for i := range p {
			p[i] &= math.MaxInt32
		}
		return g.add(p, g.answer())
	case k < 95:
		c := g.add(next(last), []int32{})
		c.t.ResponseLogprobs, c.t.PolicyVersionSpans = nil, nil
		return c
	case k < 97:
		return g.unknown(next(last), last)
	default:
		c := g.add(next(last), g.answer())
		c.t.IDsIncomplete, c.t.FinishReason = true, "length"
		return c
	}
}

// unknown makes a call whose ids are not all known.
func (g *rolloutMaker) unknown(p []int32, last *call) *call {
	c := g.add(p, g.answer())
	c.t.PromptIDs, c.p = nil, nil
	if g.chance(50) {
		c.t.ResponseIDs, c.t.ResponseLogprobs, c.t.PolicyVersionSpans, c.r = nil, nil, nil, nil
	}
	return last
}
