package sse

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// ErrTooLarge is an event, or a line of one, beyond the reader's bound.
var ErrTooLarge = errors.New("event is too large")

// Received is one event as it was read.
type Received struct {
	// Name is what its event field said; empty: it had none.
	Name string
	// ID is the last id field seen in the stream.
	ID string
	// Data is valid until the next call of Next.
	Data []byte
}

// Reader reads events. An event is given once its empty line has come, at once, and
// never before: what a cut leaves unfinished is no event.
type Reader struct {
	from  io.Reader
	max   int
	buf   []byte
	begin int // of what is not read yet
	end   int
	seen  int // up to where no end of line was found
	err   error

	started bool // the byte order mark is behind
	skipLF  bool // the line before ended with CR
	data    []byte
	name    string
	id      string
	has     bool // the event has data
	partial bool // the event has a field
}

// NewReader reads from a stream. No event's data, and no line, may be longer than most
// bytes.
func NewReader(from io.Reader, most int) *Reader {
	return &Reader{from: from, max: most, buf: make([]byte, min(most+1, usual))}
}

// Next gives the next event that has data. The error is io.EOF where the stream ended
// between events, io.ErrUnexpectedEOF where it ended within one, ErrTooLarge, or what
// the source said.
func (r *Reader) Next() (Received, error) {
	r.reset()
	for {
		line, err := r.line()
		if err != nil {
			return Received{}, err
		}
		if len(line) == 0 {
			if r.has {
				return Received{Name: r.name, ID: r.id, Data: r.data}, nil
			}
			r.reset()
			continue
		}
		if err := r.field(line); err != nil {
			return Received{}, err
		}
	}
}

// usual is how long the events of most streams are at most, in bytes. What a longer one
// needed is given back: the first event of an answer may hold the ids of the whole
// prompt, and those after it one token each, for as long as the stream stays open.
const usual = 4 << 10

func (r *Reader) reset() {
	if cap(r.data) > usual {
		r.data = nil
	}
	if len(r.buf) > usual && r.end-r.begin <= usual {
		left := make([]byte, usual)
		r.seen -= r.begin
		r.end = copy(left, r.buf[r.begin:r.end])
		r.begin, r.buf = 0, left
	}
	r.data, r.name, r.has, r.partial = r.data[:0], "", false, false
}

func (r *Reader) field(line []byte) error {
	name, value, _ := bytes.Cut(line, []byte(":"))
	if len(name) == 0 {
		return nil // a comment
	}
	value = bytes.TrimPrefix(value, []byte(" "))
	r.partial = true
	switch string(name) {
	case "data":
		if r.has {
			r.data = append(r.data, '\n')
		}
		r.has = true
		if r.data = append(r.data, value...); len(r.data) > r.max {
			r.err = ErrTooLarge
			return r.err
		}
	case "event":
		r.name = string(value)
	case "id":
		if bytes.IndexByte(value, 0) < 0 {
			r.id = string(value)
		}
	}
	return nil
}

// line gives the next line without its end.
func (r *Reader) line() ([]byte, error) {
	for {
		if r.skipLF && r.begin < r.end {
			r.skipLF = false
			if r.buf[r.begin] == '\n' {
				r.begin++
				r.seen = r.begin
			}
		}
		if at := lineEnd(r.buf[r.seen:r.end]); at >= 0 {
			at += r.seen
			line := r.buf[r.begin:at]
			r.skipLF = r.buf[at] == '\r'
			r.begin = at + 1
			r.seen = r.begin
			if !r.started {
				r.started = true
				line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
			}
			return line, nil
		}
		r.seen = r.end
		if err := r.fill(); err != nil {
			return nil, err
		}
	}
}

// fill reads some more.
func (r *Reader) fill() error {
	if r.err != nil {
		if errors.Is(r.err, io.EOF) && (r.partial || r.begin < r.end) {
			return io.ErrUnexpectedEOF
		}
		return r.err
	}
	if r.end-r.begin > r.max {
		r.err = ErrTooLarge
		return r.err
	}
	if r.begin > 0 {
		r.seen -= r.begin
		r.end = copy(r.buf, r.buf[r.begin:r.end])
		r.begin = 0
	}
	if r.end == len(r.buf) {
		r.buf = append(r.buf, make([]byte, len(r.buf))...)
	}
	n, err := r.from.Read(r.buf[r.end:])
	r.end += n
	if err != nil {
		if !errors.Is(err, io.EOF) {
			err = fmt.Errorf("read events: %w", err)
		}
		r.err = err
	}
	return nil
}
