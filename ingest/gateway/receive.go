package gateway

import (
	"bytes"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"icecore/ingest/gateway/turn"
)

// maxWindow is the zstd window that RFC 9659 lets a content coding ask of a receiver.
const maxWindow = 8 << 20

// flateWindow is about what undoing deflate or gzip takes.
const flateWindow = 64 << 10

// maxCodings is how many content codings may lie on one another.
const maxCodings = 2

// receive reads a request's body and undoes its content codings, those of the header
// and those that only its first bytes tell: proxies lose the header. most bounds it
// both as it came and inflated, and held is made as large as it is before more of it is
// read. A body that is taken is read to its end, because net/http watches for a harness
// that leaves only from there on. The error is a *turn.Fault.
func receive(w http.ResponseWriter, r *http.Request, patience time.Duration, most int64, held *share) ([]byte, error) {
	raw, err := receiveAll(w, r, patience, most, held)
	if err != nil {
		// What is left of the body is not read: the connection must not be used again.
		w.Header().Set("Connection", "close")
		return nil, err
	}
	if err := held.weigh(r.Context(), raw); err != nil {
		return nil, err
	}
	return raw, refuseCoding(r.Header, raw)
}

func receiveAll(w http.ResponseWriter, r *http.Request, patience time.Duration, most int64, held *share) ([]byte, error) {
	if r.ContentLength > most {
		return nil, tooLarge(most)
	}
	// room makes room for so many bytes, and for what undoes their coding.
	room := func(besides int64) func(int) error {
		return func(size int) error { return held.atLeast(r.Context(), takenIn.of(int64(size), 0)+besides) }
	}
	raw, err := readAll(&patient{r.Body, http.NewResponseController(w), patience}, r.ContentLength, most, room(0))
	var full *turn.Fault
	switch {
	case errors.Is(err, errMost):
		return nil, tooLarge(most)
	case errors.As(err, &full):
		return nil, full
	case err != nil:
		return nil, &turn.Fault{Status: http.StatusBadRequest, Code: turn.CodeInvalidRequest, Message: "the request body ended before it was complete", Cause: err}
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // a test's writer has none
	for range maxCodings {
		inflated, coded, err := inflate(raw, most, room)
		switch {
		case errors.Is(err, errMost):
			return nil, tooLarge(most)
		case errors.As(err, &full):
			return nil, full
		case err != nil:
			return nil, &turn.Fault{Status: http.StatusBadRequest, Code: turn.CodeInvalidRequest, Message: "the compressed request body is damaged: " + err.Error()}
		case !coded:
			return raw, nil
		}
		raw = inflated
	}
	return raw, nil
}

func tooLarge(most int64) error {
	return &turn.Fault{Status: http.StatusRequestEntityTooLarge, Code: turn.CodeTooLarge,
		Message: fmt.Sprintf("the request body is larger than the limit of %d bytes (inflated)", most)}
}

// refuseCoding names a coding that is not known, where the body is no JSON because of it.
func refuseCoding(h http.Header, raw []byte) error {
	for _, coding := range strings.Split(strings.Join(h.Values("Content-Encoding"), ","), ",") {
		switch strings.ToLower(strings.TrimSpace(coding)) {
		case "", "identity", "gzip", "x-gzip", "zstd", "deflate":
			continue
		}
		if text := bytes.TrimLeft(raw, " \t\r\n"); len(text) > 0 && text[0] == '{' {
			continue // the header is wrong, the body is not
		}
		return &turn.Fault{Status: http.StatusUnsupportedMediaType, Code: turn.CodeInvalidRequest,
			Message: fmt.Sprintf("the content coding %.32q is not supported: send identity, gzip, deflate or zstd", coding)}
	}
	return nil
}

// inflate undoes one coding by its magic bytes. No JSON text begins with any of them.
func inflate(raw []byte, most int64, room func(besides int64) func(int) error) (out []byte, coded bool, err error) {
	var from io.Reader
	besides := int64(flateWindow)
	switch {
	case bytes.HasPrefix(raw, []byte{0x1f, 0x8b}):
		from, err = gzip.NewReader(bytes.NewReader(raw))
	case bytes.HasPrefix(raw, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		besides = maxWindow
		if err := room(besides)(len(raw)); err != nil {
			return nil, true, err
		}
		var z *zstd.Decoder
		if z, err = zstd.NewReader(bytes.NewReader(raw), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow)); err == nil {
			defer z.Close()
			from = z
		}
	case len(raw) >= 2 && raw[0] == 0x78 && (int(raw[0])<<8|int(raw[1]))%31 == 0:
		from, err = zlib.NewReader(bytes.NewReader(raw))
	case len(raw) > 0 && !startsJSON(raw):
		// "deflate" without the zlib header, as some clients send it.
		if out, err := readAll(flate.NewReader(bytes.NewReader(raw)), 0, most, room(besides)); err == nil && startsJSON(out) || ofSize(err) {
			return out, true, err
		}
		return nil, false, nil
	default:
		return nil, false, nil
	}
	if err == nil {
		out, err = readAll(from, int64(len(raw))*4, most, room(besides))
	}
	return out, true, err
}

func startsJSON(raw []byte) bool {
	text := bytes.TrimLeft(raw, " \t\r\n\xef\xbb\xbf")
	return len(text) > 0 && (text[0] == '{' || text[0] == '[' || text[0] == '"')
}

var errMost = errors.New("larger than the limit")

// ofSize says whether an error is about the size of a body and not about the body.
func ofSize(err error) bool {
	var full *turn.Fault
	return errors.Is(err, errMost) || errors.As(err, &full)
}

// firstRead is most that is held of a body of which nothing has come: its length is only
// said.
const firstRead = 1 << 20

// readAll reads to the end of r, or until it passes most. expect is a guess of its
// length, which is believed once firstRead of it has come; room is told what is about to
// be held. What comes back has no room to spare.
func readAll(r io.Reader, expect, most int64, room func(size int) error) ([]byte, error) {
	whole := int(min(max(expect, 0), most)) + bytes.MinRead
	size := min(whole, firstRead)
	var out []byte
	for {
		if out != nil && len(out)+bytes.MinRead > size {
			if size = min(size+size/2, int(most)+bytes.MinRead); size < whole {
				size = whole
			}
		}
		if size > cap(out) {
			if err := room(size); err != nil {
				return nil, err
			}
			out = append(make([]byte, 0, size), out...)
		}
		n, err := r.Read(out[len(out):cap(out)])
		out = out[:len(out)+n]
		switch {
		case int64(len(out)) > most:
			return nil, errMost
		case errors.Is(err, io.EOF):
			if cap(out)-len(out) > len(out)/8+bytes.MinRead {
				out = append(make([]byte, 0, len(out)), out...)
			}
			return out, nil
		case err != nil:
			return nil, fmt.Errorf("read: %w", err)
		}
	}
}

// patient moves the deadline on with each read: a harness may take its time as long as
// it sends something.
type patient struct {
	r        io.Reader
	rc       *http.ResponseController
	patience time.Duration
}

// Read implements io.Reader.
func (p *patient) Read(b []byte) (int, error) {
	if p.patience > 0 {
		_ = p.rc.SetReadDeadline(time.Now().Add(p.patience)) // a test's writer has none
	}
	return p.r.Read(b)
}
