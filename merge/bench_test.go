package merge

import (
	"hash/maphash"
	"testing"
	"unsafe"
)

var (
	sinkHash uint64
	sinkInt  int
)

// perToken runs f over all captures and reports tokens of prompts and responses
// per second.
func perToken(b *testing.B, f func(calls []Call)) {
	captured := loadCaptures(b)
	tokens := 0
	for _, calls := range captured {
		for i := range calls {
			tokens += calls[i].Prompt.Len() + calls[i].Response.Len()
		}
	}
	b.SetBytes(int64(4 * tokens))
	for b.Loop() {
		for _, calls := range captured {
			f(calls)
		}
	}
	b.ReportMetric(float64(tokens)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mtok/s")
}

// BenchmarkLink is Add of every call and one Run; the hashes below are what one
// pass over the same tokens costs when each is looked at once.
func BenchmarkLink(b *testing.B) {
	assemble := func(t *Tree, r *Result) {
		for row := range r.Trajectories {
			sinkInt += len(t.Tokens(r, row).Flat())
		}
	}
	for _, p := range []Policy{{Name: StrictTree}, {Name: PerRequest}, endOfTurn(151645)} {
		b.Run(p.Name, func(b *testing.B) {
			perToken(b, func(calls []Call) {
				t := treeOf(calls)
				sinkInt += len(t.Run(p).Trajectories)
			})
		})
		b.Run(p.Name+"/flat", func(b *testing.B) {
			perToken(b, func(calls []Call) {
				t := treeOf(calls)
				assemble(t, t.Run(p))
			})
		})
	}
	b.Run("strict_tree/shared_memory", func(b *testing.B) {
		shared := map[string][]Call{}
		for _, calls := range loadCaptures(b) {
			shared[calls[0].TraceID] = shareHistory(calls)
		}
		perToken(b, func(calls []Call) {
			sinkInt += len(Run(shared[calls[0].TraceID], Policy{}).Trajectories)
		})
	})
}

func BenchmarkHash(b *testing.B) {
	b.Run("multiply_per_id", func(b *testing.B) {
		perToken(b, func(calls []Call) {
			eachPiece(calls, func(ids []int32) {
				h := uint64(14695981039346656037)
				for _, id := range ids {
					h = (h ^ uint64(uint32(id))) * 1099511628211
				}
				sinkHash += h
			})
		})
	})
	seed := maphash.MakeSeed()
	b.Run("maphash", func(b *testing.B) {
		perToken(b, func(calls []Call) {
			eachPiece(calls, func(ids []int32) {
				raw := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(ids))), 4*len(ids))
				sinkHash += maphash.Bytes(seed, raw)
			})
		})
	})
}

// BenchmarkRun is a Run over a tree that is already linked.
func BenchmarkRun(b *testing.B) {
	tree := NewTree()
	for _, c := range growing(2000, 2000, 60, 40, true) {
		tree.Add(c)
	}
	for _, p := range []Policy{{Name: StrictTree}, endOfTurn(7)} {
		b.Run(p.Name, func(b *testing.B) {
			for b.Loop() {
				sinkInt += len(tree.Run(p).Trajectories)
			}
		})
	}
}

func eachPiece(calls []Call, f func([]int32)) {
	for i := range calls {
		for _, piece := range calls[i].Prompt {
			f(piece)
		}
		for _, piece := range calls[i].Response {
			f(piece)
		}
	}
}
