package engine

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strconv"
	"unsafe"
)

// integer gives the number that is next; false: it is another value, passed over.
func (s *scan) integer() (int64, bool) {
	if c := s.peek(); c != '-' && (c < '0' || c > '9') {
		s.skip()
		return 0, false
	}
	v, err := strconv.ParseInt(s.bare(), 10, 64)
	return v, err == nil
}

// count gives a number of tokens, 0 ≤ count < 2⁵³, also where it is written as 3.0.
func (s *scan) count() (int64, bool) {
	if c := s.peek(); c != '-' && (c < '0' || c > '9') {
		s.skip()
		return 0, false
	}
	v, err := strconv.ParseFloat(s.bare(), 64) // exact below 2⁵³
	if err != nil || !(v >= 0 && v < 1<<53) || v != math.Trunc(v) {
		return 0, false
	}
	return int64(v), true
}

// id gives a token id, 0 ≤ id < 2³¹.
func (s *scan) id() (int32, bool) {
	// A prompt has thousands: plain digits, fewer than overflow, need nothing else.
	s.peek()
	n := int32(0)
	for i := s.i; i < len(s.b) && i < s.i+10; i++ {
		if c := s.b[i]; c >= '0' && c <= '9' && i < s.i+9 {
			n = n*10 + int32(c-'0')
		} else if i > s.i && (c == ',' || c == ']') {
			s.i = i
			return n, true
		} else {
			break
		}
	}
	v, ok := s.integer()
	return int32(v), ok && v >= 0 && v <= math.MaxInt32 //nolint:gosec // checked
}

// ids appends an array of token ids; false: it is another value (null, as a rule), and
// nothing was appended. So it is with an array that holds anything but ids: what cannot
// be captured must not cost the harness its answer.
func (s *scan) ids(dst []int32) ([]int32, bool) {
	if !s.open('[') {
		return dst, false
	}
	if end := bytes.IndexByte(s.b[s.i:], ']'); end > 0 {
		dst = slices.Grow(dst, bytes.Count(s.b[s.i:s.i+end], []byte(","))+1)
	}
	begin, good := len(dst), true
	for s.item(']') {
		v, ok := s.id()
		if good = good && ok; good {
			dst = append(dst, v)
		}
	}
	if !good || s.err != nil {
		return dst[:begin], false
	}
	return dst, true
}

// number gives a float, as a number, a bare word, or either in quotes; false: it is
// null or something else, passed over. A number beyond float64 is its largest: it is no
// infinity, which only a word says.
func (s *scan) number() (float64, bool) {
	var t string
	switch c := s.peek(); c {
	case '"':
		raw := s.text()
		t = unsafe.String(unsafe.SliceData(raw), len(raw))
	case '{', '[':
		s.skip()
		return 0, false
	case 0:
		s.fail()
		return 0, false
	default:
		if t = s.bare(); t == "" {
			s.fail()
			return 0, false
		}
	}
	v, err := strconv.ParseFloat(t, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return math.Copysign(math.MaxFloat64, v), true
	case err != nil:
		return 0, false // null, true, a word
	}
	return v, true
}
