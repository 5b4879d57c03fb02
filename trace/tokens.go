package trace

// Tokens is a sequence of token ids (int32 ≥ 0) held in pieces, so that
// sequences with a common beginning can share memory instead of copying it: an
// agent's call repeats its whole history, and the history is kept once.
//
// A nil Tokens means "not known"; a non-nil Tokens of length 0 means "known to
// be empty". Pieces are read-only once they are part of a Tokens.
type Tokens [][]int32

// TokensOf wraps one slice without copying it. A nil slice gives nil Tokens.
func TokensOf(ids []int32) Tokens {
	if ids == nil {
		return nil
	}
	return Tokens{ids}
}

// Len is the number of ids.
func (t Tokens) Len() int {
	n := 0
	for _, p := range t {
		n += len(p)
	}
	return n
}

// Slice gives the half-open range [from, to) without copying ids.
// It panics when the range is not inside the sequence, as a slice does.
func (t Tokens) Slice(from, to int) Tokens {
	if from < 0 || to < from {
		panic("trace: Tokens.Slice out of range")
	}
	out := make(Tokens, 0, 4)
	need := to - from
	for _, p := range t {
		if need == 0 {
			break
		}
		if from >= len(p) {
			from -= len(p)
			continue
		}
		n := min(len(p)-from, need)
		out = append(out, p[from:from+n:from+n])
		need -= n
		from = 0
	}
	if need != 0 {
		panic("trace: Tokens.Slice out of range")
	}
	return out
}

// Concat gives t followed by the ids of more, sharing all pieces.
func (t Tokens) Concat(more Tokens) Tokens {
	out := make(Tokens, 0, len(t)+len(more))
	return append(append(out, t...), more...)
}

// Compact joins pieces that are no longer than what follows them, so that
// sequences which grow by small steps stay in few pieces (their number grows with
// the logarithm of the length) while long beginnings stay shared.
func (t Tokens) Compact() Tokens {
	out := make(Tokens, 0, 8)
	for _, p := range t {
		if len(p) == 0 {
			continue
		}
		out = append(out, p)
		for n := len(out); n > 1 && len(out[n-1]) >= len(out[n-2]); n = len(out) {
			joined := append(append(make([]int32, 0, len(out[n-2])+len(out[n-1])), out[n-2]...), out[n-1]...)
			out = append(out[:n-2], joined)
		}
	}
	return out
}

// AppendTo copies the ids behind dst and returns the longer slice.
func (t Tokens) AppendTo(dst []int32) []int32 {
	for _, p := range t {
		dst = append(dst, p...)
	}
	return dst
}

// Flat copies the ids into one new slice; nil stays nil.
func (t Tokens) Flat() []int32 {
	if t == nil {
		return nil
	}
	return t.AppendTo(make([]int32, 0, t.Len()))
}
