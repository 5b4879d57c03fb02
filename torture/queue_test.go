package torture

import (
	"math/rand/v2"
	"slices"

	"icecore/trace"
)

// take removes up to n open items from the queue; now and then one that is
// acknowledged already goes along.
func (w *world) take(n int) []*item {
	w.mu.Lock()
	defer w.mu.Unlock()
	n = min(n, len(w.open))
	if n == 0 {
		return nil
	}
	batch := slices.Clone(w.open[len(w.open)-n:])
	w.open = w.open[:len(w.open)-n]
	if w.r.IntN(10) == 0 {
		ro := w.rollouts[w.r.IntN(len(w.rollouts))]
		it := ro.items[w.r.IntN(len(ro.items))]
		if it.acked != 0 && !it.busy {
			batch = append(batch, it)
		}
	}
	for _, it := range batch {
		it.busy = true
	}
	return batch
}

// giveBack returns what was not acknowledged, to a random place.
func (w *world) giveBack(batch []*item) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, it := range batch {
		it.busy = false
		if it.acked == 0 {
			w.stats.resent++
			w.open = append(w.open, it)
			i := w.r.IntN(len(w.open))
			w.open[i], w.open[len(w.open)-1] = w.open[len(w.open)-1], w.open[i]
		}
	}
}

func (w *world) takeSmall() *small {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(w.openSmalls)
	if n == 0 {
		return nil
	}
	s := w.openSmalls[n-1]
	w.openSmalls = w.openSmalls[:n-1]
	s.busy = true
	return s
}

func (w *world) giveBackSmall(s *small) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s.busy = false
	if s.acked == 0 {
		w.openSmalls = append(w.openSmalls, s)
		i := w.r.IntN(len(w.openSmalls))
		w.openSmalls[i], w.openSmalls[len(w.openSmalls)-1] = w.openSmalls[len(w.openSmalls)-1], w.openSmalls[i]
	}
}

// unsettled says that something is open or on its way.
func (w *world) unsettled() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.open)+len(w.openSmalls) > 0 {
		return true
	}
	for _, ro := range w.rollouts {
		for _, it := range ro.items {
			if it.busy && it.acked == 0 {
				return true
			}
		}
		for _, s := range ro.smalls {
			if s.busy && s.acked == 0 {
				return true
			}
		}
	}
	return false
}

// encode marks items as sent and chooses how: a prompt is named by prefix only
// where its base is acknowledged, or goes before it in the same request.
func (w *world) encode(r *rand.Rand, batch []*item) (traces []*trace.Trace, before []state) {
	w.mu.Lock()
	earlier := map[*item]bool{}
	byPrefix := make([]bool, len(batch))
	for i, it := range batch {
		byPrefix[i] = it.base != nil && (it.base.acked != 0 || earlier[it.base]) && r.IntN(4) > 0
		earlier[it] = true
	}
	w.mu.Unlock()
	for i, it := range batch {
		before = append(before, w.sending(&it.state))
		traces = append(traces, it.onWire(byPrefix[i]))
	}
	return traces, before
}

// encodeBatch writes traces in one of the formats.
func encodeBatch(r *rand.Rand, traces []*trace.Trace) (media string, body []byte) {
	switch r.IntN(3) {
	case 0:
		return "application/vnd.apache.arrow.stream", arrowStream(traces)
	case 1:
		var lines []byte
		for _, t := range traces {
			lines = append(append(lines, encode(t)...), '\n')
		}
		return "application/x-ndjson", lines
	}
	out := []byte{'['}
	for i, t := range traces {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, encode(t)...)
	}
	return "application/json", append(out, ']')
}
