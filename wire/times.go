package wire

import (
	"encoding/hex"
	"math"
	"time"

	"icecore/trace"
)

// parseTime reads an RFC 3339 time with its zone as microseconds since the Unix
// epoch, UTC. What is finer than a microsecond is cut off.
//
// time.Parse is laxer than RFC 3339 (a comma as decimal point, any number of
// digits), and what is stored must read the same everywhere.
func parseTime(b []byte) (int64, *trace.Error) {
	bad := trace.Invalid("", quoted(string(b))+" is not an RFC 3339 time with a zone, as 2026-01-31T09:30:00.5Z is")
	if len(b) < len("2006-01-02T15:04:05Z") || b[4] != '-' || b[7] != '-' ||
		b[10]|0x20 != 't' || b[13] != ':' || b[16] != ':' {
		return 0, bad
	}
	var n [6]int
	for i, part := range [6][]byte{b[0:4], b[5:7], b[8:10], b[11:13], b[14:16], b[17:19]} {
		for _, c := range part {
			if c-'0' > 9 {
				return 0, bad
			}
			n[i] = n[i]*10 + int(c-'0')
		}
	}
	micros, rest, ok := fraction(b[19:])
	zone, zoneOK := zoneSeconds(rest)
	if !ok || !zoneOK || n[3] > 23 || n[4] > 59 || n[5] > 59 {
		return 0, bad
	}
	t := time.Date(n[0], time.Month(n[1]), n[2], n[3], n[4], n[5], 0, time.UTC)
	if t.Month() != time.Month(n[1]) || t.Day() != n[2] {
		return 0, bad
	}
	return checkTime((t.Unix()-zone)*1e6 + micros)
}

// fraction reads up to nine digits behind a point.
func fraction(b []byte) (micros int64, rest []byte, ok bool) {
	if b[0] != '.' {
		return 0, b, true
	}
	i := digits(b, 1)
	if i == 1 || i > 10 {
		return 0, b, false
	}
	for d, unit := 1, int64(1e5); d < i && unit > 0; d, unit = d+1, unit/10 {
		micros += int64(b[d]-'0') * unit
	}
	return micros, b[i:], true
}

func zoneSeconds(b []byte) (int64, bool) {
	if len(b) == 1 {
		return 0, b[0]|0x20 == 'z'
	}
	if len(b) != 6 || b[0] != '+' && b[0] != '-' || b[3] != ':' {
		return 0, false
	}
	for _, i := range []int{1, 2, 4, 5} {
		if b[i]-'0' > 9 {
			return 0, false
		}
	}
	hours, minutes := int64(b[1]-'0')*10+int64(b[2]-'0'), int64(b[4]-'0')*10+int64(b[5]-'0')
	seconds := hours*3600 + minutes*60
	if b[0] == '-' {
		seconds = -seconds
	}
	return seconds, hours < 24 && minutes < 60
}

// The years that every reader of a timestamp column can show (Python's among
// them): 1 to 9999.
var (
	firstMicros = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	lastMicros  = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro() - 1
)

func checkTime(micros int64) (int64, *trace.Error) {
	if micros < firstMicros || micros > lastMicros {
		return 0, trace.Invalid("", "is outside the years 1 to 9999")
	}
	return micros, nil
}

// microsOf converts v of the given length of one unit, in nanoseconds.
func microsOf(v int64, unit time.Duration) (int64, *trace.Error) {
	if unit < time.Microsecond {
		per := int64(time.Microsecond / unit)
		micros := v / per
		if v%per < 0 {
			micros--
		}
		return checkTime(micros)
	}
	per := int64(unit / time.Microsecond)
	if v > math.MaxInt64/per || v < math.MinInt64/per {
		return 0, trace.Invalid("", "is outside the years 1 to 9999")
	}
	return checkTime(v * per)
}

func appendTime(dst []byte, micros int64) []byte {
	dst = append(dst, '"')
	dst = time.UnixMicro(micros).UTC().AppendFormat(dst, "2006-01-02T15:04:05.999999Z07:00")
	return append(dst, '"')
}

// parseHash reads 64 hexadecimal digits.
func parseHash(b []byte) ([]byte, *trace.Error) {
	out := make([]byte, 32)
	if len(b) != 64 {
		return nil, trace.Invalid("", "is not a SHA-256 (64 hexadecimal digits)")
	}
	if _, err := hex.Decode(out, b); err != nil {
		return nil, trace.Invalid("", "is not a SHA-256 (64 hexadecimal digits)")
	}
	return out, nil
}
