package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"

	"icecore/trace"
)

// tokenIDs reads an array of token ids. This loop is most of what ingest does:
// one allocation of the right size (commas counted first, by SIMD), one pass
// over the digits without a branch per digit, nothing boxed.
func (s *scanner) tokenIDs() ([]int32, error) {
	w, most, err := s.arrayWindow("an array of token ids")
	if err != nil {
		return nil, err
	}
	ids := make([]int32, min(most, s.lim.MaxTokens))
	j := pass(w, 0)
	if w[j] == ']' {
		s.pos += j + 2
		return ids[:0], nil
	}
	for k := 0; ; k++ {
		if k == len(ids) {
			return nil, tooManyTokens(s.lim.MaxTokens)
		}
		start := j
		v, n := shortNumber(w, j)
		if n == 0 {
			v, n = longNumber(w, j)
		}
		if n == 0 || n > 1 && w[j] == '0' || v > math.MaxInt32 {
			return nil, s.badToken(start, k)
		}
		ids[k] = int32(v)
		j += n
		if w[j] != ',' {
			j = pass(w, j)
			if w[j] == ']' {
				s.pos += j + 2
				return ids[:k+1], nil
			}
			if w[j] != ',' {
				return nil, s.badToken(start, k)
			}
		}
		if j++; w[j] <= ' ' {
			j = pass(w, j)
		}
	}
}

// shortNumber reads one to seven digits at w[j] and gives how many; 0 when there
// are none, or more, or too few bytes behind them.
func shortNumber(w []byte, j int) (v uint64, n int) {
	if j+8 > len(w) {
		return 0, 0
	}
	// Digits have bit 4 set, and a comma or white space has not: the first such
	// byte ends the number. The next number waits for this, and for no more.
	x := binary.LittleEndian.Uint64(w[j:])
	end := ^x & 0x1010101010101010
	if end == 0 {
		return 0, 0
	}
	n = bits.TrailingZeros64(end) / 8
	// Shifted so that zeros stand in front of what are digits, 0 to 9: any byte
	// that is none has its top bit set in other.
	x = (x ^ 0x3030303030303030) << (64 - 8*n)
	if other := (x + 0x7676767676767676 | x) & 0x8080808080808080; other != 0 {
		return 0, 0
	}
	// Pairs, then fours, then all eight.
	x = x*10 + x>>8
	const low = 0x000000FF000000FF
	return (x&low*(100+1_000_000<<32) + x>>16&low*(1+10_000<<32)) >> 32, n
}

// longNumber reads up to ten digits one by one; w ends in ']'.
func longNumber(w []byte, j int) (v uint64, n int) {
	for w[j+n]-'0' <= 9 {
		if n++; n > 10 {
			return math.MaxUint64, n
		}
		v = v*10 + uint64(w[j+n-1]-'0')
	}
	return v, n
}

// logprobs reads an array of log-probabilities: numbers, null for a position
// that is not known, and the non-finite values as words or strings.
func (s *scanner) logprobs() (*trace.Logprobs, error) {
	w, most, err := s.arrayWindow("an array of numbers")
	if err != nil {
		return nil, err
	}
	limit := s.lim.MaxTokens
	out := &trace.Logprobs{Values: make([]float32, 0, min(most, limit))}
	j := pass(w, 0)
	if w[j] == ']' {
		s.pos += j + 2
		return out, nil
	}
	for {
		if out.Len() == limit {
			return nil, tooManyTokens(limit)
		}
		start := j
		v, end, ok := float32At(w, j)
		if ok {
			out.Append(v)
		} else if v, end, ok = nonFiniteAt(w, j); ok {
			out.Append(v)
		} else if bytes.HasPrefix(w[j:], []byte("null")) {
			end = j + 4
			out.AppendUnknown()
		} else {
			return nil, s.badLogprob(w, start, out.Len())
		}
		j = pass(w, end)
		switch w[j] {
		case ']':
			s.pos += j + 2
			return out, nil
		case ',':
			j = pass(w, j+1)
		default:
			return nil, s.badLogprob(w, start, out.Len()-1)
		}
	}
}

// nonFiniteAt reads NaN, Infinity or -Infinity, bare or quoted.
func nonFiniteAt(w []byte, i int) (v float32, end int, ok bool) {
	quoted := w[i] == '"'
	if quoted {
		i++
	}
	for _, word := range nonFinite {
		if bytes.HasPrefix(w[i:], word.text) {
			end = i + len(word.text)
			if !quoted {
				return word.value, end, true
			}
			return word.value, end + 1, w[end] == '"'
		}
	}
	return 0, i, false
}

var nonFinite = []struct {
	text  []byte
	value float32
}{
	{[]byte("NaN"), nan32()},
	{[]byte("Infinity"), float32(math.Inf(1))},
	{[]byte("-Infinity"), float32(math.Inf(-1))},
}

// arrayWindow gives the text from behind the '[' at the position up to and with
// the next ']', and how many elements it can hold. Neither kind of array has a
// ']' inside when it is valid.
func (s *scanner) arrayWindow(want string) (w []byte, most int, err error) {
	if s.peek() != '[' {
		return nil, 0, s.wrongType(want)
	}
	n := bytes.IndexByte(s.buf[s.pos:], ']')
	if n < 0 {
		return nil, 0, &syntaxError{len(s.buf), "the text ends inside an array"}
	}
	w = s.buf[s.pos+1 : s.pos+n+1]
	return w, bytes.Count(w, []byte{','}) + 1, nil
}

// pass moves over white space; w ends in ']'.
func pass(w []byte, j int) int {
	for isSpace(w[j]) {
		j++
	}
	return j
}

// badToken says what the element at offset start of the window is. If it is not even JSON, the
// skip that follows every field error says so.
func (s *scanner) badToken(start, index int) error {
	return &trace.Error{Code: trace.CodeInvalidTokenID, Field: fmt.Sprintf("[%d]", index),
		Message: s.element(start) + " is not a token id (int32 ≥ 0)"}
}

func (s *scanner) badLogprob(w []byte, start, index int) error {
	message := " is not a number, null, NaN, Infinity or -Infinity"
	if c := w[start]; c == '-' || c-'0' <= 9 {
		message = " is beyond the range of float32"
	}
	return trace.Invalid(fmt.Sprintf("[%d]", index), s.element(start)+message)
}

// element is the text of an element that begins at offset start of the window.
func (s *scanner) element(start int) string {
	e := *s
	e.pos += 1 + start
	e.stack = nil
	from := e.pos
	if _, err := e.skip(true); err != nil {
		return "what stands here"
	}
	return shown(s.buf[from:e.pos])
}

func tooManyTokens(limit int) error {
	return &trace.Error{Code: trace.CodeTooManyTokens,
		Message: fmt.Sprintf("holds more than the limit of %d tokens", limit)}
}
