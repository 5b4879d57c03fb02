package warehouse

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"icecore/migrations"
)

// What crosses the sockets: requests are JSON, or an apply's own form
// (applywire.go); answers are rows, if there are any, and then an outcome as
// JSON. Whatever has no whole outcome at its end was cut.

// outcome ends every answer.
type outcome struct {
	Value   int64       `json:"value,omitempty"`
	Yes     bool        `json:"yes,omitempty"`
	Batches int         `json:"batches,omitempty"`
	Reply   *Reply      `json:"reply,omitempty"`
	Failed  *remoteFail `json:"failed,omitempty"`
}

// remoteFail is an error on its way from the child to the parent.
type remoteFail struct {
	Kinds []string `json:"kinds,omitempty"`
	Text  string   `json:"text"`
	Fault *Fault   `json:"fault,omitempty"`
}

// kinds are the errors that stay what they are on the way.
var kinds = map[string]error{
	"out of order": ErrOutOfOrder,
	"unreadable":   ErrUnreadable,
	"newer":        migrations.ErrNewer,
	"cancelled":    context.Canceled,
	"late":         context.DeadlineExceeded,
	"closed":       ErrClosed,
}

func failOf(err error) *remoteFail {
	if err == nil {
		return nil
	}
	f := &remoteFail{Text: err.Error()}
	for name, kind := range kinds {
		if errors.Is(err, kind) {
			f.Kinds = append(f.Kinds, name)
		}
	}
	if fault, ok := errors.AsType[*Fault](err); ok {
		f.Fault = fault
	}
	return f
}

// remoteError is an error that the child met.
type remoteError struct {
	text string
	of   []error
}

func (e *remoteError) Error() string   { return e.text }
func (e *remoteError) Unwrap() []error { return e.of }

func (f *remoteFail) err() error {
	if f == nil {
		return nil
	}
	if f.Fault != nil {
		return f.Fault
	}
	e := &remoteError{text: f.Text}
	for _, name := range f.Kinds {
		if kind := kinds[name]; kind != nil {
			e.of = append(e.of, kind)
		}
	}
	return e
}

// wireBuffer gathers what is small; large buffers of Arrow pass it by.
const wireBuffer = 256 << 10

// Before the rows of an answer stands withRows, before an outcome alone noRows.
const (
	withRows = 'r'
	noRows   = 'n'
)

// rowWriter writes an answer.
type rowWriter struct {
	buf     *bufio.Writer
	rows    *ipc.Writer
	batches int
}

func newRowWriter(w io.Writer) *rowWriter { return &rowWriter{buf: bufio.NewWriterSize(w, wireBuffer)} }

func (w *rowWriter) write(rec arrow.RecordBatch) error {
	if w.rows == nil {
		_ = w.buf.WriteByte(withRows) // Flush says what went wrong
		w.rows = ipc.NewWriter(w.buf, ipc.WithSchema(rec.Schema()))
	}
	w.batches++
	if err := w.rows.Write(rec); err != nil {
		return fmt.Errorf("send rows: %w", err)
	}
	return nil
}

func (w *rowWriter) end(o outcome) error {
	if w.rows == nil {
		_ = w.buf.WriteByte(noRows) // Flush says what went wrong
	} else if err := w.rows.Close(); err != nil {
		return fmt.Errorf("send rows: %w", err)
	}
	o.Batches = w.batches
	text, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("send an outcome: %w", err)
	}
	_, _ = w.buf.Write(text) // Flush says what went wrong
	if err := w.buf.Flush(); err != nil {
		return fmt.Errorf("send an outcome: %w", err)
	}
	return nil
}

// readRows reads an answer, without rows if each is nil. err is the transport's or of each: the outcome says
// what the child met.
func readRows(from io.Reader, each func(arrow.RecordBatch) error) (o outcome, err error) {
	r := bufio.NewReaderSize(from, 64<<10)
	kind, err := r.ReadByte()
	if err != nil {
		return o, cutShort(err)
	}
	n := 0
	if kind == withRows && each != nil {
		if n, err = readBatches(r, each); err != nil {
			return o, err
		}
	}
	text, err := io.ReadAll(r)
	if err != nil {
		return o, cutShort(err)
	}
	if err := json.Unmarshal(text, &o); err != nil {
		return o, cutShort(err)
	}
	if o.Batches != n {
		return o, cutShort(fmt.Errorf("%d batches came of %d", n, o.Batches))
	}
	return o, nil
}

// readBatches reads one Arrow stream and leaves what follows it.
func readBatches(r io.Reader, each func(arrow.RecordBatch) error) (n int, err error) {
	rows, err := ipc.NewReader(r)
	if err != nil {
		return 0, cutShort(err)
	}
	defer rows.Release()
	for rows.Next() {
		n++
		if err := each(rows.RecordBatch()); err != nil {
			return n, &consumerError{err}
		}
	}
	if err := rows.Err(); err != nil {
		return n, cutShort(err)
	}
	return n, nil
}

// errCut says that an answer broke off.
var errCut = errors.New("the warehouse's answer broke off")

func cutShort(err error) error { return fmt.Errorf("%w: %w", errCut, err) }

// consumerError is an error of whom rows were handed to.
type consumerError struct{ error }

func (e *consumerError) Unwrap() error { return e.error }
