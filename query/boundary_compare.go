package query

import (
	"fmt"

	"icecore/query/enginebody"
	"icecore/trace"
)

// Kinds of difference between two stations.
const (
	idsDiffer      = "ids_differ"
	lengthDiffers  = "length_differs"
	logprobDiffers = "logprob_differs"
	missingInBody  = "missing_in_body"
	missingInTrace = "missing_in_trace"
	usageDisagrees = "usage_disagrees"
	finishDiffers  = "finish_differs"
	hashDiffers    = "hash_differs"
	mergeDiffers   = "merge_differs"
	spanDiffers    = "span_differs"
	maskDiffers    = "mask_differs"
	contextDiffers = "context_differs"
	unreadable     = "unreadable"
)

// maxPositions bounds the differing positions that a check lists.
const maxPositions = 100

// check is one comparison of two stations: what the earlier one has is expected
// of the later one.
type check struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	// Kind says what differs; empty when nothing does.
	Kind   string `json:"kind,omitempty"`
	Detail string `json:"detail"`
	// Sequence is what Position counts in: prompt, response or row.
	Sequence string `json:"sequence,omitempty"`
	// Position is the first that differs, of Differing; Positions lists them, up
	// to maxPositions.
	Position  *int  `json:"position,omitempty"`
	Differing int   `json:"differing,omitempty"`
	Positions []int `json:"positions,omitempty"`
	Expected  any   `json:"expected,omitempty"`
	Got       any   `json:"got,omitempty"`
	// Window shows the tokens around Position.
	Window *window `json:"window,omitempty"`
}

// window is both sides around a position; From is the position of the first
// entry.
type window struct {
	From     int   `json:"from"`
	Expected []any `json:"expected"`
	Got      []any `json:"got"`
}

// pair is two lists of which the second should be as the first.
type pair struct {
	sequence string
	// What the lists are of, and whose, for people.
	what, wantName, gotName string
	wantLen, gotLen         int
	// same compares entry i of one with entry j of the other.
	same func(i, j int) bool
	// kind says what it is called when the entries at i differ.
	kind      func(i int) string
	want, got func(i int) any
}

// compare fills a check; around is how many entries the window shows on each
// side, none when negative.
func (p *pair) compare(name string, around int) check {
	c := check{Name: name, Sequence: p.sequence}
	n := min(p.wantLen, p.gotLen)
	for i := range n {
		if !p.same(i, i) {
			c.add(i)
		}
	}
	if p.wantLen != p.gotLen {
		c.add(n)
		c.Differing += max(p.wantLen, p.gotLen) - n - 1
	}
	if c.Position == nil {
		c.OK, c.Detail = true, fmt.Sprintf("%d %s of %s and %s agree", n, p.what, p.wantName, p.gotName)
		return c
	}
	at := *c.Position
	c.Kind = lengthDiffers
	if at < n {
		c.Kind = p.kind(at)
	}
	c.Expected, c.Got = p.entry(p.want, p.wantLen, at), p.entry(p.got, p.gotLen, at)
	c.Detail = fmt.Sprintf("%s of %s and %s differ at %s position %d: %s has %s, %s has %s; %d of %d positions differ%s", p.what, p.wantName,
		p.gotName, p.sequence, at, p.wantName, shown(c.Expected), p.gotName, shown(c.Got), c.Differing, max(p.wantLen, p.gotLen), p.moved())
	if around >= 0 {
		c.Window = p.around(at, around)
	}
	return c
}

func (c *check) add(position int) {
	if c.Position == nil {
		c.Position = &position
	}
	if c.Differing++; len(c.Positions) < maxPositions {
		c.Positions = append(c.Positions, position)
	}
}

// past stands for an entry behind the end of its list.
const past = "end"

func (p *pair) entry(of func(int) any, n, i int) any {
	if i >= n {
		return past
	}
	return of(i)
}

func shown(v any) string {
	if v == past {
		return "its end"
	}
	if l, ok := v.(logprob); ok {
		raw, _ := l.MarshalJSON()
		return string(raw)
	}
	return fmt.Sprint(v)
}

// moved tells when the lists agree after moving one of them by a place or two:
// how log-probs of another place show themselves.
func (p *pair) moved() string {
	if p.wantLen != p.gotLen {
		return fmt.Sprintf(" (%d in %s, %d in %s)", p.wantLen, p.wantName, p.gotLen, p.gotName)
	}
	for _, by := range []int{1, -1, 2, -2} {
		from, to := max(0, -by), p.wantLen-max(0, by)
		if to-from < 3 {
			continue
		}
		agree := true
		for i := from; i < to && agree; i++ {
			agree = p.same(i, i+by)
		}
		if agree {
			where := "earlier"
			if by < 0 {
				where, by = "later", -by
			}
			return fmt.Sprintf("; those of %s agree when they are taken %d %s", p.gotName, by, where)
		}
	}
	return ""
}

func (p *pair) around(at, n int) *window {
	w := &window{From: max(0, at-n), Expected: []any{}, Got: []any{}}
	for i := w.From; i <= at+n; i++ {
		if i < p.wantLen {
			w.Expected = append(w.Expected, p.want(i))
		}
		if i < p.gotLen {
			w.Got = append(w.Got, p.got(i))
		}
	}
	return w
}

// idPair compares ids. What a body does not tell is no difference.
func idPair(sequence, wantName, gotName string, want, got []int32) *pair {
	return &pair{sequence: sequence, what: "token ids", wantName: wantName, gotName: gotName, wantLen: len(want), gotLen: len(got),
		same: func(i, j int) bool { return want[i] == got[j] || want[i] == enginebody.NotTold },
		kind: func(int) string { return idsDiffer },
		want: func(i int) any {
			if want[i] == enginebody.NotTold {
				return nil
			}
			return want[i]
		},
		got: func(i int) any { return got[i] }}
}

// engineFloor is what vLLM writes where it has no log-probability, or one below.
const engineFloor = -9999

// logprobPair compares log-probs bit for bit, all NaN alike. A body's floor may
// be "not known" in the trace, and so may what is no log-probability.
func logprobPair(wantName, gotName string, want, got *trace.Logprobs) *pair {
	body := wantName == "the body"
	return &pair{sequence: "response", what: "log-probs", wantName: wantName, gotName: gotName, wantLen: want.Len(), gotLen: got.Len(),
		same: func(i, j int) bool {
			a, b := logprobAt(want, i), logprobAt(got, j)
			return a.same(b) || body && !b.known && a.known && !(a.value > engineFloor && a.value <= trace.Rounding)
		},
		kind: func(i int) string {
			a, b := logprobAt(want, i), logprobAt(got, i)
			switch {
			case body && !a.known:
				return missingInBody
			case body && !b.known:
				return missingInTrace
			}
			return logprobDiffers
		},
		want: func(i int) any { return logprobAt(want, i) },
		got:  func(i int) any { return logprobAt(got, i) }}
}
