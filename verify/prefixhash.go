package verify

import (
	"math/bits"
	"math/rand/v2"
)

// Sequences are compared by a polynomial hash of their prefixes modulo the
// Mersenne prime 2^61-1: comparing ids one by one would be quadratic in the
// calls of a rollout. The base is drawn anew in each process, so that two given
// different sequences of a million ids collide with a chance below 2^-40.
const prime = 1<<61 - 1

var base = 1<<32 + rand.Uint64N(prime-1<<33)

func mul(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	s := lo&prime + (lo>>61 | hi<<3)
	if s >= prime {
		s -= prime
	}
	return s
}

func add(a, b uint64) uint64 {
	s := a + b
	if s >= prime {
		s -= prime
	}
	return s
}

func sub(a, b uint64) uint64 { return add(a, prime-b) }

// extend gives the hash of a sequence one id longer. Ids count from one, so
// that leading zeros are seen.
func extend(h uint64, id int32) uint64 { return add(mul(h, base), uint64(uint32(id))+1) }

// power gives base^n.
func power(n int) uint64 {
	out, b := uint64(1), base
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			out = mul(out, b)
		}
		b = mul(b, b)
	}
	return out
}
