package wire

import (
	"errors"
	"math"
	"strconv"
	"unsafe"

	"icecore/trace"
)

// number passes over a JSON number.
func (s *scanner) number() error {
	b, i := s.buf, s.pos
	if i < len(b) && b[i] == '-' {
		i++
	}
	whole := digits(b, i)
	if whole == i || b[i] == '0' && whole > i+1 {
		s.pos = i
		return s.fail("a number needs digits and no leading zero")
	}
	i = whole
	if i < len(b) && b[i] == '.' {
		frac := digits(b, i+1)
		if frac == i+1 {
			s.pos = frac
			return s.fail("a number needs digits after its point")
		}
		i = frac
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		exp := digits(b, i)
		if exp == i {
			s.pos = i
			return s.fail("a number needs digits in its exponent")
		}
		i = exp
	}
	s.pos = i
	return nil
}

func digits(b []byte, i int) int {
	for i < len(b) && b[i]-'0' <= 9 {
		i++
	}
	return i
}

// isNumber reports whether the value at the position begins like a number.
func (s *scanner) isNumber() bool { return s.peek() == '-' || s.peek()-'0' <= 9 }

// int64 reads an integer exactly.
func (s *scanner) int64() (int64, error) {
	if !s.isNumber() {
		return 0, s.wrongType("an integer")
	}
	start := s.pos
	if err := s.number(); err != nil {
		return 0, err
	}
	text := s.buf[start:s.pos]
	v, err := strconv.ParseInt(view(text), 10, 64)
	switch {
	case err == nil:
		return v, nil
	case errors.Is(err, strconv.ErrRange):
		return 0, trace.Invalid("", shown(text)+" does not fit into 64 bits")
	}
	return 0, trace.Invalid("", shown(text)+" is not written as an integer (digits only)")
}

// finite reads a finite float64.
func (s *scanner) finite() (float64, error) {
	start := s.pos
	if s.literal("NaN") || s.literal("Infinity") || s.literal("-Infinity") {
		return 0, trace.Invalid("", "is "+string(s.buf[start:s.pos])+", not a finite number")
	}
	if !s.isNumber() {
		return 0, s.wrongType("a finite number")
	}
	if err := s.number(); err != nil {
		return 0, err
	}
	v, err := strconv.ParseFloat(view(s.buf[start:s.pos]), 64)
	if err != nil {
		return 0, trace.Invalid("", shown(s.buf[start:s.pos])+" is beyond the range of float64")
	}
	return v, nil
}

// view is b as a string without a copy. strconv copies what its errors keep.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// canonicalNaN is the one NaN that is kept, whatever bits an engine sent.
const canonicalNaN = 0x7fc00000

func nan32() float32 { return math.Float32frombits(canonicalNaN) }

// pow10 are the powers of ten that float64 holds exactly.
var pow10 = [...]float64{1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11,
	1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22}

// float32At reads the JSON number that begins at b[i] and gives the nearest
// float32 and where the number ends. ok is false if it is not a JSON number, or
// beyond float32's range.
//
// The decimal m·10^e is computed in float64 with at most two roundings (of m,
// when it has more than 53 bits, and of the product), so the result is within
// two units in the last place. Rounding that to float32 gives the right answer
// unless it lies that close to the middle between two float32: those, and
// numbers with very many digits, go the slow, exact way. 10^±22 keeps the
// product away from float32's subnormals.
func float32At(b []byte, i int) (v float32, end int, ok bool) {
	start := i
	negative := i < len(b) && b[i] == '-'
	if negative {
		i++
	}
	var mantissa uint64
	from := i
	for i < len(b) && b[i]-'0' <= 9 {
		mantissa = mantissa*10 + uint64(b[i]-'0')
		i++
	}
	if i == from || b[from] == '0' && i > from+1 {
		return 0, i, false
	}
	count, exponent := i-from, 0
	if i < len(b) && b[i] == '.' {
		i++
		from = i
		for i < len(b) && b[i]-'0' <= 9 {
			mantissa = mantissa*10 + uint64(b[i]-'0')
			i++
		}
		if i == from {
			return 0, i, false
		}
		count += i - from
		exponent = from - i
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		var e int
		if e, i, ok = exponentAt(b, i+1); !ok {
			return 0, i, false
		}
		exponent += e
	}
	if count <= 19 && exponent >= -22 && exponent <= 22 {
		f := float64(mantissa)
		if exponent < 0 {
			f /= pow10[-exponent]
		} else {
			f *= pow10[exponent]
		}
		const half, near = 1 << 28, 4
		low := int64(math.Float64bits(f) & (1<<29 - 1))
		if (low < half-near || low > half+near) && f < math.MaxFloat32 {
			if negative {
				f = -f
			}
			return float32(f), i, true
		}
	}
	exact, err := strconv.ParseFloat(view(b[start:i]), 32)
	return float32(exact), i, err == nil
}

// exponentAt reads the sign and digits of an exponent, held at ±1e6 so that it
// cannot overflow.
func exponentAt(b []byte, i int) (e, end int, ok bool) {
	negative := false
	if i < len(b) && (b[i] == '+' || b[i] == '-') {
		negative = b[i] == '-'
		i++
	}
	from := i
	for i < len(b) && b[i]-'0' <= 9 {
		e = min(e*10+int(b[i]-'0'), 1_000_000)
		i++
	}
	if negative {
		e = -e
	}
	return e, i, i > from
}
