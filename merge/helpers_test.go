package merge

import (
	"math/rand/v2"

	"icecore/trace"
)

// viewOf puts a result in terms of trace ids.
func viewOf(t *Tree, r *Result) view {
	v := view{Dispositions: map[string]Disposition{}}
	for row, trajectory := range r.Trajectories {
		out := viewRow{
			IDs: t.Tokens(r, row).Flat(), Namer: t.Call(trajectory.Namer).TraceID, Rewritten: trajectory.Rewritten,
		}
		for _, s := range r.Spans(row) {
			out.Spans = append(out.Spans, viewSpan{t.Call(s.Call).TraceID, s.Start, s.End, s.Trainable})
		}
		v.Rows = append(v.Rows, out)
	}
	for i, n := range r.Nodes {
		v.Dispositions[t.Call(i).TraceID] = n.Disposition
	}
	for _, b := range r.Boundaries {
		out := viewBoundary{TraceID: t.Call(b.Call).TraceID, Kind: b.Kind, Shared: b.Shared}
		if b.Nearest != None {
			out.Nearest = t.Call(b.Nearest).TraceID
		}
		v.Boundaries = append(v.Boundaries, out)
	}
	return v
}

func treeOf(calls []Call) *Tree {
	t := NewTree()
	for _, c := range calls {
		t.Add(c)
	}
	return t
}

func runView(calls []Call, p Policy) view {
	t := treeOf(calls)
	return viewOf(t, t.Run(p))
}

func shuffled(calls []Call, rng *rand.Rand) []Call {
	out := append([]Call(nil), calls...)
	rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// inPieces cuts the ids of every call at random, now and then into nothing.
func inPieces(calls []Call, rng *rand.Rand) []Call {
	out := append([]Call(nil), calls...)
	for i := range out {
		out[i].Prompt = cutUp(out[i].Prompt, rng)
		out[i].Response = cutUp(out[i].Response, rng)
	}
	return out
}

func cutUp(ids trace.Tokens, rng *rand.Rand) trace.Tokens {
	if ids == nil {
		return nil
	}
	flat, out := ids.Flat(), trace.Tokens{}
	for len(flat) > 0 {
		n := rng.IntN(len(flat) + 1)
		if rng.IntN(2) == 0 {
			n = min(n, rng.IntN(4))
		}
		out = append(out, flat[:n])
		flat = flat[n:]
	}
	return out
}

func ptr[T any](v T) *T { return &v }

func seqTokens(ids ...int32) trace.Tokens {
	if ids == nil {
		ids = []int32{}
	}
	return trace.TokensOf(ids)
}

func endOfTurn(id int32) Policy { return Policy{PolarCompat, &id} }
