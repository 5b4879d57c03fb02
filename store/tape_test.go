package store

import (
	"crypto/sha256"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"icecore/trace"
)

// cut splits ids into random pieces.
func cut(r *rapid.T, ids []int32) trace.Tokens {
	out := trace.Tokens{}
	for len(ids) > 0 {
		n := rapid.IntRange(1, len(ids)).Draw(r, "piece")
		out = append(out, ids[:n:n])
		ids = ids[n:]
	}
	return out
}

// Whatever order sequences come in, each can be read back from its place, its
// prompt hash is right though it is rarely computed from the start, and nothing
// is written that a tape holds already.
func TestTapesGiveBackEverySequence(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		h := newHeads()
		stored := map[int64]*storedTape{}
		next := int64(1)
		var history [][]int32
		type placed struct {
			tape int64
			ids  []int32
			t    *tape
		}
		var all []placed
		for i := range rapid.IntRange(1, 40).Draw(r, "calls") {
			ids := drawSequence(r, history)
			history = append(history, ids)
			prompt := rapid.IntRange(0, len(ids)).Draw(r, "prompt")
			seq := cut(r, ids)
			f := h.find(seq, prompt)
			require.LessOrEqual(r, f.hashed, prompt)
			sum, state := f.hash(seq, prompt)
			want := sha256.Sum256(trace.Bytes(ids[:prompt]))
			require.Equal(r, want[:], sum)
			longest := 0
			for _, p := range all {
				longest = max(longest, trace.CommonPrefix(p.ids, ids))
			}
			require.Equal(r, longest, f.matched, "the longest shared beginning is found")
			g := h.place(seq, f, func() int64 { next++; return next })
			record(r, stored, g, next)
			if g.tape.depth > 0 || !g.opened {
				require.Len(r, g.ids, len(ids)-longest, "only what is new is written")
			}
			require.LessOrEqual(r, g.tape.depth, maxForkDepth)
			h.remember(int64(i), place{g.tape, prompt, len(ids) - prompt}, state)
			all = append(all, placed{g.tape.key, ids, g.tape})
		}
		for _, p := range all {
			require.Equal(r, p.ids, p.t.prefix(len(p.ids)).Flat())
			require.Equal(r, p.ids, stored[p.tape].read(stored, len(p.ids)))
		}
	})
}

// drawSequence extends, cuts, edits or repeats an earlier one, or starts anew.
func drawSequence(r *rapid.T, history [][]int32) []int32 {
	id := rapid.Int32Range(0, 3)
	fresh := rapid.SliceOfN(id, 1, 12).Draw(r, "fresh")
	if len(history) == 0 || rapid.IntRange(0, 5).Draw(r, "anew") == 0 {
		return fresh
	}
	base := history[rapid.IntRange(0, len(history)-1).Draw(r, "base")]
	keep := len(base)
	if rapid.Bool().Draw(r, "cut") {
		keep = rapid.IntRange(1, len(base)).Draw(r, "keep")
	}
	out := append([]int32(nil), base[:keep]...)
	if rapid.Bool().Draw(r, "grow") {
		out = append(out, fresh...)
	}
	return out
}

// storedTape is a tape as its rows describe it.
type storedTape struct {
	parent int64
	fork   int
	own    []int32
}

func record(r *rapid.T, stored map[int64]*storedTape, g growth, _ int64) {
	s := stored[g.tape.key]
	if g.opened {
		require.Nil(r, s, "a tape is opened once")
		s = &storedTape{fork: g.tape.fork}
		if g.tape.parent != nil {
			s.parent = g.tape.parent.key
		}
		stored[g.tape.key] = s
	}
	if len(g.ids) > 0 {
		require.Equal(r, s.fork+len(s.own), g.start, "chunks leave no gap")
		s.own = append(s.own, g.ids...)
	}
}

func (s *storedTape) read(all map[int64]*storedTape, n int) []int32 {
	if n <= s.fork {
		return all[s.parent].read(all, n)
	}
	var out []int32
	if s.fork > 0 {
		out = all[s.parent].read(all, s.fork)
	}
	return append(out, s.own[:n-s.fork]...)
}

// A rollout that rewrites its last turn every time forks at every call; its
// prompts must still be assembled from few tapes.
func TestForksStayShallow(t *testing.T) {
	h := newHeads()
	key := int64(0)
	ids := []int32{1}
	for i := range 500 {
		ids = append(append([]int32(nil), ids...), int32(i), 7)
		ids[len(ids)-3] = int32(1000 + i)
		seq := trace.TokensOf(ids)
		f := h.find(seq, len(ids))
		g := h.place(seq, f, func() int64 { key++; return key })
		require.LessOrEqual(t, len(g.tape.prefix(len(ids))), maxForkDepth+1)
		require.Equal(t, ids, g.tape.prefix(len(ids)).Flat())
	}
}
