package table

import (
	"math"
	"strconv"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// DuckDB keeps infinite dates and times as the greatest and, without the last,
// the least number.
const (
	infinity      = "infinity"
	minusInfinity = "-infinity"
)

// timeCells writes dates, times and intervals as ISO 8601 has them. A timestamp
// without a zone counts as UTC, which is the time zone of every statement.
func timeCells(a arrow.Array) (cells, bool) {
	switch a := a.(type) {
	case *array.Date32:
		return worded(func(b []byte, i int) []byte { return appendDate(b, int64(a.Value(i))) }), true
	case *array.Date64:
		return worded(func(b []byte, i int) []byte { return appendDate(b, int64(a.Value(i))/86_400_000) }), true
	case *array.Time32:
		unit := a.DataType().(*arrow.Time32Type).Unit
		return worded(func(b []byte, i int) []byte { return appendClock(b, int64(a.Value(i)), unit) }), true
	case *array.Time64:
		unit := a.DataType().(*arrow.Time64Type).Unit
		return worded(func(b []byte, i int) []byte { return appendClock(b, int64(a.Value(i)), unit) }), true
	case *array.Timestamp:
		unit := a.DataType().(*arrow.TimestampType).Unit
		return worded(func(b []byte, i int) []byte { return appendTimestamp(b, int64(a.Value(i)), unit) }), true
	case *array.MonthDayNanoInterval:
		return worded(func(b []byte, i int) []byte { return appendInterval(b, a.Value(i)) }), true
	case *array.Duration:
		unit := int64(a.DataType().(*arrow.DurationType).Unit.Multiplier())
		return worded(func(b []byte, i int) []byte {
			return appendInterval(b, arrow.MonthDayNanoInterval{Nanoseconds: int64(a.Value(i)) * unit})
		}), true
	}
	return cells{}, false
}

func appendDate(b []byte, days int64) []byte {
	switch days {
	case math.MaxInt32:
		return append(b, infinity...)
	case -math.MaxInt32:
		return append(b, minusInfinity...)
	}
	return time.Unix(days*86_400, 0).UTC().AppendFormat(b, time.DateOnly)
}

// appendClock writes 24:00:00 too, which DuckDB has.
func appendClock(b []byte, v int64, unit arrow.TimeUnit) []byte {
	perSecond := int64(time.Second / unit.Multiplier())
	seconds, rest := v/perSecond, v%perSecond
	b = appendPadded(b, seconds/3600, 2)
	b = appendPadded(append(b, ':'), seconds/60%60, 2)
	b = appendPadded(append(b, ':'), seconds%60, 2)
	if unit == arrow.Nanosecond {
		return appendPadded(append(b, '.'), rest, 9)
	}
	return appendPadded(append(b, '.'), rest*(1_000_000/perSecond), 6)
}

func appendPadded(b []byte, v int64, width int) []byte {
	digits := strconv.FormatInt(v, 10)
	for n := len(digits); n < width; n++ {
		b = append(b, '0')
	}
	return append(b, digits...)
}

// appendTimestamp writes RFC 3339 in UTC with six places, nine where nanoseconds
// are kept.
func appendTimestamp(b []byte, v int64, unit arrow.TimeUnit) []byte {
	switch v {
	case math.MaxInt64:
		return append(b, infinity...)
	case -math.MaxInt64:
		return append(b, minusInfinity...)
	}
	var t time.Time
	switch unit {
	case arrow.Second:
		t = time.Unix(v, 0)
	case arrow.Millisecond:
		t = time.UnixMilli(v)
	case arrow.Microsecond:
		t = time.UnixMicro(v)
	default:
		return time.Unix(0, v).UTC().AppendFormat(b, "2006-01-02T15:04:05.000000000Z")
	}
	return t.UTC().AppendFormat(b, "2006-01-02T15:04:05.000000Z")
}

// appendInterval writes P1Y2M3DT4H5M6.5S; each part has its own sign.
func appendInterval(b []byte, v arrow.MonthDayNanoInterval) []byte {
	b = append(b, 'P')
	part := func(n int64, unit byte) {
		if n != 0 {
			b = append(strconv.AppendInt(b, n, 10), unit)
		}
	}
	part(int64(v.Months/12), 'Y')
	part(int64(v.Months%12), 'M')
	part(int64(v.Days), 'D')
	if v.Nanoseconds == 0 {
		if b[len(b)-1] == 'P' {
			b = append(b, "T0S"...)
		}
		return b
	}
	b = append(b, 'T')
	const second = int64(time.Second)
	seconds, rest := v.Nanoseconds/second, v.Nanoseconds%second
	part(seconds/3600, 'H')
	part(seconds/60%60, 'M')
	seconds %= 60
	if seconds == 0 && rest == 0 {
		return b
	}
	if v.Nanoseconds < 0 {
		b, seconds, rest = append(b, '-'), -seconds, -rest
	}
	b = strconv.AppendInt(b, seconds, 10)
	if rest != 0 {
		b = appendPadded(append(b, '.'), rest, 9)
		for b[len(b)-1] == '0' {
			b = b[:len(b)-1]
		}
	}
	return append(b, 'S')
}
