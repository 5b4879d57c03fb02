package merge

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"icecore/trace"
)

// loadCaptures gives the calls of each captured rollout, as they came.
func loadCaptures(t testing.TB) map[string][]Call {
	out := map[string][]Call{}
	for _, name := range []string{"plain", "thinking", "long"} {
		f, err := os.Open("../testdata/captures/" + name + ".ndjson.zst")
		require.NoError(t, err)
		z, err := zstd.NewReader(f)
		require.NoError(t, err)
		lines := bufio.NewScanner(z)
		lines.Buffer(nil, 64<<20)
		for lines.Scan() {
			var w wireTrace
			require.NoError(t, json.Unmarshal(lines.Bytes(), &w))
			out[w.RolloutID] = append(out[w.RolloutID], w.call())
		}
		require.NoError(t, lines.Err())
		z.Close()
		require.NoError(t, f.Close())
	}
	return out
}

type capturedAnswer struct {
	StrictTree    []wireRow              `json:"strict_tree"`
	PerRequest    int                    `json:"per_request"`
	Polar         wirePolar              `json:"polar_compat"`
	Dispositions  map[string]Disposition `json:"dispositions"`
	Boundaries    []wireBoundary         `json:"boundaries"`
	SampledTokens int                    `json:"sampled_tokens"`
	TrainedTokens int                    `json:"trained_tokens"`
}

func TestCaptures(t *testing.T) {
	raw, err := os.ReadFile("../testdata/captures/expected.json")
	require.NoError(t, err)
	var expected map[string]capturedAnswer
	require.NoError(t, json.Unmarshal(raw, &expected))
	require.Len(t, expected, 34)
	captured := loadCaptures(t)
	require.Len(t, captured, 34)
	rng := rand.New(rand.NewPCG(3, 4))
	for rollout, want := range expected {
		t.Run(rollout, func(t *testing.T) {
			calls := captured[rollout]
			want.check(t, treeOf(calls))
			want.check(t, treeOf(shuffled(calls, rng)))
		})
	}
}

func (want *capturedAnswer) check(t *testing.T, tree *Tree) {
	strict := tree.Run(Policy{Name: StrictTree})
	got := viewOf(tree, strict)
	require.Equal(t, want.Dispositions, got.Dispositions)
	require.Equal(t, viewBoundaries(want.Boundaries), got.Boundaries)
	requireRows(t, want.StrictTree, got.Rows)

	sampled, trained, inRows := 0, 0, 0
	for _, n := range strict.Nodes {
		sampled += n.ResponseLen
		if n.Disposition == Trained {
			trained += n.ResponseLen
		}
	}
	for row, trajectory := range strict.Trajectories {
		require.Equal(t, want.StrictTree[row].Length, trajectory.Length)
		inRows += trajectory.TrainedTokens
	}
	require.Equal(t, want.SampledTokens, sampled)
	require.Equal(t, want.TrainedTokens, trained)
	require.Equal(t, want.TrainedTokens, inRows)

	require.Len(t, tree.Run(Policy{Name: PerRequest}).Trajectories, want.PerRequest)

	polar := viewOf(tree, tree.Run(endOfTurn(want.Polar.EndOfTurn)))
	require.Equal(t, want.Polar.Dispositions, polar.Dispositions)
	requireRows(t, want.Polar.Trajectories, polar.Rows)
}

func requireRows(t *testing.T, want []wireRow, got []viewRow) {
	require.Len(t, got, len(want))
	for i, row := range want {
		require.Len(t, got[i].IDs, row.Length)
		require.Equal(t, row.SHA256, hashIDs(got[i].IDs))
		require.Equal(t, viewSpans(row.Spans), got[i].Spans)
		require.Equal(t, row.Rewritten, got[i].Rewritten)
	}
}

func hashIDs(ids []int32) string {
	raw := make([]byte, 0, 4*len(ids))
	for _, id := range ids {
		raw = binary.LittleEndian.AppendUint32(raw, uint32(id))
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// A rollout whose calls share the memory of their history must give the same
// answer as one whose calls hold copies.
func TestCapturesWithSharedMemory(t *testing.T) {
	for _, calls := range loadCaptures(t) {
		shared := shareHistory(calls)
		for _, p := range []Policy{{}, endOfTurn(151645)} {
			require.Equal(t, runView(calls, p), runView(shared, p))
		}
	}
}

// shareHistory replaces in each prompt what it has in common with the call
// before by that call's memory, as storage that keeps each token once would.
func shareHistory(calls []Call) []Call {
	out := append([]Call(nil), calls...)
	var before trace.Tokens
	for i := range out {
		flat := out[i].Prompt.Flat()
		k := sharedBeginning(flat, before.Flat())
		out[i].Prompt = before.Slice(0, k).Concat(trace.TokensOf(flat[k:]))
		before = out[i].Prompt.Concat(out[i].Response)
	}
	return out
}
