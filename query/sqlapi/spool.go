package sqlapi

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
)

// spoolMemory is how many bytes of a result are kept in memory.
const spoolMemory = 4 << 20

// spool keeps a result until it is sent, as an Arrow IPC stream: in memory, and
// from some size on in a file that has no name, so that nothing of it can be left
// behind.
type spool struct {
	dir    string
	memory int
	schema *arrow.Schema
	w      *ipc.Writer
	buf    bytes.Buffer
	file   *os.File
	out    *bufio.Writer
	size   int64
}

func newSpool(dir string, memory int) *spool { return &spool{dir: dir, memory: memory} }

// spoolError is a fault of the place where results are kept, not of a statement.
type spoolError struct{ err error }

func (e *spoolError) Error() string { return "keep result: " + e.err.Error() }

// Unwrap gives the cause.
func (e *spoolError) Unwrap() error { return e.err }

// add appends a batch, which it does not keep.
func (s *spool) add(rec arrow.RecordBatch) error {
	if s.w == nil {
		s.schema = rec.Schema()
		s.w = ipc.NewWriter(s, ipc.WithSchema(s.schema))
	}
	if rec.NumRows() == 0 {
		return nil
	}
	if err := s.w.Write(rec); err != nil {
		return &spoolError{err}
	}
	return nil
}

// Write implements io.Writer for the Arrow writer.
func (s *spool) Write(b []byte) (int, error) {
	s.size += int64(len(b))
	if s.file == nil && s.buf.Len()+len(b) > s.memory {
		if err := s.toFile(); err != nil {
			return 0, err
		}
	}
	if s.file == nil {
		_, _ = s.buf.Write(b) // memory takes everything
		return len(b), nil
	}
	n, err := s.out.Write(b)
	if err != nil {
		err = fmt.Errorf("write to a temporary file: %w", err)
	}
	return n, err
}

func (s *spool) toFile() error {
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return fmt.Errorf("make temporary directory: %w", err)
	}
	f, err := os.CreateTemp(s.dir, "sql-*.arrow")
	if err != nil {
		return fmt.Errorf("make a temporary file: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		return errors.Join(fmt.Errorf("take the name off a temporary file: %w", err), f.Close())
	}
	s.file, s.out = f, bufio.NewWriterSize(f, 256<<10)
	if _, err := s.out.Write(s.buf.Bytes()); err != nil {
		return fmt.Errorf("write to a temporary file: %w", err)
	}
	s.buf = bytes.Buffer{}
	return nil
}

// finish ends the stream: nothing is added any more.
func (s *spool) finish() error {
	if s.w == nil {
		return errors.New("keep result: no columns came")
	}
	err := s.w.Close()
	if s.out != nil {
		err = errors.Join(err, s.out.Flush())
	}
	if err != nil {
		return &spoolError{err}
	}
	return nil
}

// each gives the batches back, in their order.
func (s *spool) each(do func(arrow.RecordBatch) error) error {
	var from io.Reader = bytes.NewReader(s.buf.Bytes())
	if s.file != nil {
		from = bufio.NewReaderSize(io.NewSectionReader(s.file, 0, s.size), 256<<10)
	}
	r, err := ipc.NewReader(from)
	if err != nil {
		return fmt.Errorf("read kept result: %w", err)
	}
	defer r.Release()
	for r.Next() {
		if err := do(r.RecordBatch()); err != nil {
			return err
		}
	}
	if err := r.Err(); err != nil {
		return fmt.Errorf("read kept result: %w", err)
	}
	return nil
}

// close lets go of the result.
func (s *spool) close() {
	s.buf = bytes.Buffer{}
	if s.file != nil {
		_ = s.file.Close() // it has no name, and nobody reads it again
	}
}
