package engine

import (
	"errors"
	"math"
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

// id gives a token id, 0 ≤ id < 2³¹.
func (s *scan) id() (int32, bool) {
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
// null or something else, passed over.
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
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0, false // null, true, a word
	}
	return v, true
}
