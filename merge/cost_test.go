package merge

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"icecore/trace"
)

// growing makes a chain of n calls over one tape of ids: call i receives the
// first start+i*step ids and samples sampled of what follows. With shared, all
// read the same memory; otherwise each prompt is a copy.
func growing(n, start, step, sampled int, shared bool) []Call {
	tape := make([]int32, start+n*step)
	for i := range tape {
		tape[i] = int32(i % 1009)
	}
	calls := make([]Call, n)
	for i := range calls {
		p := start + i*step
		prompt := tape[:p]
		if !shared {
			prompt = append([]int32(nil), prompt...)
		}
		calls[i] = Call{
			TraceID: name(i), Seq: ptr(int64(i)),
			Prompt: trace.TokensOf(prompt), Response: trace.TokensOf(tape[p : p+sampled]),
		}
	}
	return calls
}

func name(i int) string {
	return fmt.Sprintf("t%06d", i)
}

func TestAddComparesItsOwnIDsOnceAtMost(t *testing.T) {
	tree := NewTree()
	calls := growing(60, 20_000, 60, 40, false)
	for _, c := range calls {
		before := tree.radix.compared
		tree.Add(c)
		require.LessOrEqual(t, tree.radix.compared-before, c.Prompt.Len()+c.Response.Len())
	}
	require.Positive(t, tree.radix.compared, "copies must be compared, or the count is blind")
	require.Len(t, tree.Run(Policy{}).Trajectories, 1)
}

// 2,000 calls with prompts of 200,000 to 320,000 ids hold 520 million ids in
// 1.3 MB of memory: linking them reads none.
func TestSharedMemoryIsNotCompared(t *testing.T) {
	tree := NewTree()
	for _, c := range growing(2000, 200_000, 60, 40, true) {
		tree.Add(c)
	}
	require.Zero(t, tree.radix.compared)
	r := tree.Run(Policy{})
	require.Len(t, r.Trajectories, 1)
	require.Len(t, r.Spans(0), 2000)
	require.LessOrEqual(t, len(tree.radix.vertices), 1+2*2000)
}

// Ropes that share pieces cost nothing either, however other calls have cut the
// tree's edges in between.
func TestSharedPiecesAreNotCompared(t *testing.T) {
	tape := make([]int32, 30_000)
	for i := range tape {
		tape[i] = int32(i % 997)
	}
	head, middle, tail := tape[:10_000], tape[10_000:20_000], tape[20_000:]
	tree := NewTree()
	tree.Add(Call{TraceID: "a", Prompt: trace.Tokens{head, middle}, Response: trace.Tokens{tail[:10]}})
	tree.Add(Call{TraceID: "b", Prompt: trace.Tokens{head[:3], head[3:]}, Response: trace.Tokens{middle[:7], {5, 5}}})
	tree.Add(Call{TraceID: "c", Prompt: trace.Tokens{head, nil, middle}, Response: trace.Tokens{tail[:20]}})
	require.LessOrEqual(t, tree.radix.compared, 2, "only where b leaves the others")
}

// Run does not look at tokens under these policies: it may not even know them.
func TestRunReadsNoTokens(t *testing.T) {
	calls := growing(50, 100, 20, 10, false)
	tree := treeOf(calls)
	want := []*Result{tree.Run(Policy{}), tree.Run(Policy{Name: PerRequest})}
	for i := range tree.calls {
		for _, ids := range []trace.Tokens{tree.calls[i].Prompt, tree.calls[i].Response} {
			clear(ids[0])
		}
	}
	require.Equal(t, want, []*Result{tree.Run(Policy{}), tree.Run(Policy{Name: PerRequest})})
}

// Trees are as deep as rollouts are long, and nothing may climb them for each
// call anew: here that would take minutes. Longest first, so that Add itself is
// short of steps; the bound is generous.
func TestLongRolloutsAreNotQuadratic(t *testing.T) {
	const n = 100_000
	tape := make([]int32, n+1)
	for reply, length := range map[string]int{"that goes on along the tape": 1, "that leaves it": 0} {
		calls := make([]Call, n)
		for i := range calls {
			response := tape[n-i : n-i+1]
			if length == 0 {
				response = []int32{5}
			}
			calls[i] = Call{
				TraceID: name(i), Seq: ptr(int64(i)), Status: trace.StatusClientGone,
				Prompt: trace.TokensOf(tape[:n-i]), Response: trace.TokensOf(response),
			}
		}
		begin := time.Now()
		tree := treeOf(calls)
		strict := tree.Run(Policy{})
		if length == 1 {
			require.Len(t, strict.Trajectories, 1, reply)
			require.Equal(t, n-1, strict.Trajectories[0].TrainedTokens, reply) // the last is nobody's parent
		} else {
			require.Empty(t, strict.Trajectories, reply)
			require.Equal(t, Boundary{n - 1, Rewinds, 0, 1}, strict.Boundaries[n-1], reply)
		}
		require.Len(t, tree.Run(Policy{Name: PolarCompat}).Trajectories, n, reply)
		require.Less(t, time.Since(begin), 20*time.Second, reply)
	}
}
