package gateway

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"icecore/httpbody"
)

// maxRecord bounds what is kept of an answer as it was sent, in bytes: as much as a
// trace may hold.
const maxRecord = 16 << 20

// forever is how long a harness may take nothing where no limit is set.
const forever = 1000 * time.Hour

// out is the harness's side of one call: it writes what is in buf and keeps a copy.
type out struct {
	w    http.ResponseWriter
	to   *httpbody.Writer
	kind string // content type of a stream
	id   string // of the trace
	buf  []byte
	// sent is what was written so far; over: it was too much to keep.
	keeps, over bool
	sent        []byte
	// begun: the status line is out.
	begun bool
	// broken is the first error of a write; nothing is written after it.
	broken error
}

func newOut(w http.ResponseWriter, patience time.Duration, id string, keeps bool) *out {
	if patience <= 0 {
		patience = forever
	}
	return &out{w: w, to: httpbody.NewWriter(w, patience), id: id, keeps: keeps}
}

// begin sends the headers of a stream.
func (o *out) begin() {
	if o.begun {
		return
	}
	o.begun = true
	h := o.w.Header()
	h.Set("Content-Type", o.kind)
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // nginx: pass events on as they come
	o.name(h)
	o.w.WriteHeader(http.StatusOK)
	if err := http.NewResponseController(o.w).Flush(); err != nil {
		o.broken = fmt.Errorf("send headers: %w", err)
	}
}

// name tells the trace in the headers in which each provider's SDKs look for the id of
// a request.
func (o *out) name(h http.Header) {
	h.Set("Icecore-Trace-Id", o.id)
	h.Set("X-Request-Id", o.id)
	h.Set("Request-Id", o.id)
}

// keep adds what is to be sent to what was.
func (o *out) keep(b []byte) {
	if !o.keeps || o.over {
		return
	}
	if len(o.sent)+len(b) > maxRecord {
		o.over, o.sent = true, nil
		return
	}
	o.sent = append(o.sent, b...)
}

// flush sends buf.
func (o *out) flush() error {
	o.keep(o.buf)
	err := o.write(o.buf)
	o.buf = o.buf[:0]
	return err
}

// unrecorded sends bytes that no trace will show.
func (o *out) unrecorded(b []byte) { _ = o.write(b) } // the next write says that it broke

func (o *out) write(b []byte) error {
	if o.broken != nil || len(b) == 0 {
		return o.broken
	}
	if _, err := o.to.Write(b); err != nil {
		o.broken = fmt.Errorf("write answer: %w", err)
		return o.broken
	}
	if err := http.NewResponseController(o.w).Flush(); err != nil {
		o.broken = fmt.Errorf("send answer: %w", err)
	}
	return o.broken
}

// whole sends an answer in one piece.
func (o *out) whole(status int, header http.Header, body []byte) error {
	h := o.w.Header()
	for name, values := range header {
		h[name] = values
	}
	if h.Get("Content-Type") == "" {
		h.Set("Content-Type", "application/json")
	}
	if o.id != "" {
		o.name(h)
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	o.begun = true
	o.w.WriteHeader(status)
	return o.write(body)
}
