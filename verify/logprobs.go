package verify

import (
	"encoding/binary"
	"math"
)

// logprobs gathers a trace's log-probabilities in the form in which they are
// part of its content: per position a byte that says whether the value is known
// and, if so, its four bytes.
type logprobs struct {
	n      int
	form   []byte
	broken bool
}

func newLogprobs() *logprobs { return &logprobs{} }

// anyNaN stands for every NaN: which one it was means nothing.
const anyNaN = 0x7fc00000

func (l *logprobs) add(values []any) {
	l.n += len(values)
	for _, v := range values {
		f, known := v.(float32)
		if !known {
			l.form = append(l.form, 0)
			continue
		}
		bits := math.Float32bits(f)
		if f != f {
			bits = anyNaN
		}
		l.form = binary.LittleEndian.AppendUint32(append(l.form, 1), bits)
	}
}
