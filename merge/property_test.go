package merge

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestTreeAgreesWithReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		calls := rollouts().Draw(t, "rollout")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "pieces"), 0))
		tree := treeOf(inPieces(calls, rng))
		for _, p := range []Policy{{}, {Name: PerRequest}, {Name: PolarCompat}, endOfTurn(2), endOfTurn(3)} {
			require.Equal(t, refRun(calls, p), viewOf(tree, tree.Run(p)), p)
		}
	})
}

func TestFaithful(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		calls := rollouts().Draw(t, "rollout")
		tree := treeOf(calls)
		r := tree.Run(policies().Draw(t, "policy"))
		for row, trajectory := range r.Trajectories {
			ids := tree.Tokens(r, row).Flat()
			require.Len(t, ids, trajectory.Length)
			for _, s := range r.Spans(row) {
				c := tree.Call(s.Call)
				require.Equal(t, c.Response.Flat(), ids[s.Start:s.End])
				if !trajectory.Rewritten {
					require.True(t, slices.Equal(c.Prompt.Flat(), ids[:s.Start]))
				}
			}
		}
	})
}

// What polar_compat rewrote, it admits: a row that says nothing is faithful
// (above), and one that says so holds at least one span that is not.
func TestRewrittenIsNotSaidWithoutCause(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		calls := rollouts().Draw(t, "rollout")
		tree := treeOf(calls)
		r := tree.Run(policies().Draw(t, "policy"))
		for row, trajectory := range r.Trajectories {
			if !trajectory.Rewritten {
				continue
			}
			require.Equal(t, PolarCompat, r.Policy.Name)
			ids, faithful := tree.Tokens(r, row).Flat(), true
			for c := trajectory.Last; c != None; c = r.Nodes[c].Parent { // spans and empty responses
				faithful = faithful && slices.Equal(tree.Call(c).Prompt.Flat(), ids[:r.Nodes[c].SpanStart])
			}
			require.False(t, faithful)
		}
	})
}

func TestConserved(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		calls := rollouts().Draw(t, "rollout")
		tree := treeOf(calls)
		r := tree.Run(policies().Draw(t, "policy"))
		trainable, inSpans := make([]int, len(calls)), 0
		for row, trajectory := range r.Trajectories {
			inRow := 0
			for _, s := range r.Spans(row) {
				if s.Trainable {
					trainable[s.Call]++
					inRow += s.End - s.Start
				}
			}
			require.Equal(t, trajectory.TrainedTokens, inRow)
			require.NotZero(t, inRow)
			inSpans += inRow
		}
		require.Len(t, r.Nodes, len(calls))
		byDisposition, sampled := map[Disposition]int{}, 0
		for i, n := range r.Nodes {
			require.Contains(t, Dispositions, n.Disposition)
			want := 0
			if n.Disposition == Trained {
				want = 1
			}
			require.Equal(t, want, trainable[i])
			require.Equal(t, n.Disposition == Trained, n.Row != None)
			byDisposition[n.Disposition] += n.ResponseLen
			sampled += calls[i].Response.Len()
		}
		require.Equal(t, inSpans, byDisposition[Trained])
		total := 0
		for _, tokens := range byDisposition {
			total += tokens
		}
		require.Equal(t, sampled, total)
	})
}

func TestOrderFree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		calls := rollouts().Draw(t, "rollout")
		p := policies().Draw(t, "policy")
		again := rapid.Permutation(calls).Draw(t, "another arrival")
		require.Equal(t, runView(calls, p), runView(again, p))
	})
}

// A tree may be asked at any time, and what it answers does not depend on what
// it was asked before, nor on when the other calls came.
func TestRepeatable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		calls := rollouts().Draw(t, "rollout")
		p := policies().Draw(t, "policy")
		tree := NewTree()
		for i, c := range calls {
			require.Equal(t, i, tree.Add(c))
			require.Equal(t, i+1, tree.Len())
			if rapid.Bool().Draw(t, "ask") {
				require.Equal(t, runView(calls[:i+1], p), viewOf(tree, tree.Run(p)))
			}
		}
		first, second := tree.Run(p), tree.Run(p)
		require.Equal(t, first, second)
		require.Equal(t, first, Run(calls, p))
	})
}

// Pieces are the storage's view of a row, Tokens the learner's: they agree, and
// Tokens copies nothing.
func TestPiecesMakeTheRow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		calls := rollouts().Draw(t, "rollout")
		tree := treeOf(calls)
		r := tree.Run(policies().Draw(t, "policy"))
		for row := range r.Trajectories {
			var ids []int32
			for _, p := range r.Pieces(row) {
				s := slices.Concat(calls[p.Call].Prompt.Flat(), calls[p.Call].Response.Flat())
				ids = append(ids, s[p.From:p.To]...)
			}
			tokens := tree.Tokens(r, row)
			require.Equal(t, ids, tokens.Flat())
			for _, piece := range tokens {
				require.True(t, len(piece) == 0 || inMemoryOf(piece, calls))
			}
			// The contributions along the parents make the same row.
			var parts [][]int32
			for c := r.Trajectories[row].Last; c != None; c = r.Nodes[c].Parent {
				s := slices.Concat(calls[c].Prompt.Flat(), calls[c].Response.Flat())
				parts = append(parts, s[r.Nodes[c].Cut:])
			}
			slices.Reverse(parts)
			require.Equal(t, ids, slices.Concat(parts...))
		}
	})
}

func inMemoryOf(piece []int32, calls []Call) bool {
	for _, c := range calls {
		for _, part := range c.sequence() {
			for i := range part {
				if &part[i] == &piece[0] {
					return true
				}
			}
		}
	}
	return false
}

func TestEnclosingAgreesWithSearch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 20).Draw(t, "n")
		parents := make([]int32, n)
		x := newRadix()
		for v := 1; v < n; v++ {
			parents[v] = int32(rapid.IntRange(0, v-1).Draw(t, "parent"))
			x.vertices = append(x.vertices, vertex{parent: parents[v]})
		}
		l := x.layout()
		set, member := newEnclosing(n), make([]bool, n)
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			v := rapid.IntRange(0, n-1).Draw(t, "v")
			if member[v] = rapid.Bool().Draw(t, "member"); member[v] {
				set.set(l.in[v], l.out[v])
			} else {
				set.set(l.in[v], 0)
			}
			at := int32(rapid.IntRange(0, n-1).Draw(t, "at"))
			want, asked := int32(None), l.in[at]
			for ; ; at = parents[at] {
				if member[at] {
					want = l.in[at]
				}
				if member[at] || at == root {
					break
				}
			}
			require.Equal(t, want, set.find(asked))
		}
	})
}
