package wire

import "encoding/binary"

// flat is a table in a flatbuffer, the encoding of Arrow's message metadata.
// arrow-go follows whatever offsets and counts stand there, recursing and
// allocating as told; so they are walked here first, within bounds. Accessors
// panic on offsets outside the buffer, which walkers turn into errors.
type flat struct {
	buf []byte
	pos int
}

func flatRoot(buf []byte) flat { return flat{buf, int(binary.LittleEndian.Uint32(buf))} }

// slot is where field n of the table stands, or 0 if it is absent.
func (t flat) slot(n int) int {
	vtable := t.vtable()
	if 6+2*n > int(binary.LittleEndian.Uint16(t.buf[vtable:])) {
		return 0
	}
	offset := int(binary.LittleEndian.Uint16(t.buf[vtable+4+2*n:]))
	if offset == 0 {
		return 0
	}
	return t.pos + offset
}

func (t flat) vtable() int { return t.pos - int(int32(binary.LittleEndian.Uint32(t.buf[t.pos:]))) }

func (t flat) byte(n int) byte {
	if at := t.slot(n); at != 0 {
		return t.buf[at]
	}
	return 0
}

func (t flat) int16(n int) int16 {
	if at := t.slot(n); at != 0 {
		return int16(binary.LittleEndian.Uint16(t.buf[at:]))
	}
	return 0
}

func (t flat) int64(n int) int64 {
	if at := t.slot(n); at != 0 {
		return t.int64At(at)
	}
	return 0
}

func (t flat) int64At(at int) int64 { return int64(binary.LittleEndian.Uint64(t.buf[at:])) }

// follow gives the table that the offset at position at leads to.
func (t flat) follow(at int) flat {
	return flat{t.buf, at + int(binary.LittleEndian.Uint32(t.buf[at:]))}
}

func (t flat) table(n int) (flat, bool) {
	at := t.slot(n)
	if at == 0 {
		return flat{}, false
	}
	return t.follow(at), true
}

// vector gives where the elements of vector n start, and how many there are,
// which all lie inside the buffer. Strings are vectors of bytes.
func (t flat) vector(n, size int) (start, count int) {
	at := t.slot(n)
	if at == 0 {
		return 0, 0
	}
	v := t.follow(at)
	start = v.pos + 4
	count = int(binary.LittleEndian.Uint32(t.buf[v.pos:]))
	_ = t.buf[start : start+count*size]
	return start, count
}
