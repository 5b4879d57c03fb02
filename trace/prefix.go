package trace

import (
	"bytes"
	"unsafe"
)

// prefixBlock is how many ids are compared at once; the comparison itself is
// the vectorised one of package bytes.
const prefixBlock = 256

// CommonPrefix gives the number of leading ids in which a and b agree. Slices
// that begin at the same memory are not compared.
func CommonPrefix(a, b []int32) int {
	n := min(len(a), len(b))
	if n == 0 || &a[0] == &b[0] {
		return n
	}
	at := 0
	for at+prefixBlock <= n && bytes.Equal(Bytes(a[at:at+prefixBlock]), Bytes(b[at:at+prefixBlock])) {
		at += prefixBlock
	}
	for at < n && a[at] == b[at] {
		at++
	}
	return at
}

// Bytes views ids as their memory, four bytes each. On the little-endian
// machines that icecore builds for, this is the encoding that prompt hashes are
// defined over.
func Bytes(ids []int32) []byte {
	if len(ids) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&ids[0])), 4*len(ids))
}
