package httpbody

import (
	"net/http"
	"time"
)

// Writer writes an answer to a client that may take its time as long as it takes
// something.
type Writer struct {
	w        http.ResponseWriter
	rc       *http.ResponseController
	patience time.Duration
}

// NewWriter makes a Writer over w; patience is how long the client may take
// nothing.
func NewWriter(w http.ResponseWriter, patience time.Duration) *Writer {
	return &Writer{w, http.NewResponseController(w), patience}
}

// Write implements io.Writer.
func (p *Writer) Write(b []byte) (int, error) {
	_ = p.rc.SetWriteDeadline(time.Now().Add(p.patience)) // a test's writer has none
	return p.w.Write(b)                                   //nolint:wrapcheck // whoever wrote says what
}

// Done takes the deadline back: the connection serves other requests.
func (p *Writer) Done() { _ = p.rc.SetWriteDeadline(time.Time{}) }
