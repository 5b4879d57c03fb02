package warehouse

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
)

// An apply is one request whose answer begins before the request has ended:
//
//	parent: head, one Arrow stream for each addition
//	child:  allAppended
//	parent: doCommit or doRollBack
//	child:  outcome
//
// A request that ends without either last word is rolled back.
const (
	allAppended = 'a'
	doCommit    = 'c'
	doRollBack  = 'x'
)

// applyHead begins an apply's request, after its length as four bytes.
type applyHead struct {
	Stmts  []string     `json:"stmts,omitempty"`
	Tables []applyTable `json:"tables,omitempty"`
}

type applyTable struct {
	Table   string `json:"table"`
	Batches int    `json:"batches"`
}

// applyBody is the request's body. Being an io.WriterTo it writes Arrow's
// buffers to the socket without a copy.
type applyBody struct {
	stmts []string
	adds  []Addition
	last  chan byte
	// When one of these is closed, no answer will come. The transport waits for
	// the writer before it says so itself.
	cancelled, gone <-chan struct{}

	mu      sync.Mutex
	over    bool
	written chan struct{} // not nil: writing has begun; closed: it has ended
}

func newApplyBody(adds []Addition, stmts []string, cancelled, gone <-chan struct{}) *applyBody {
	return &applyBody{stmts: stmts, adds: adds, last: make(chan byte, 1), cancelled: cancelled, gone: gone}
}

// end waits until nothing reads the records any more. Whatever was not decided
// is broken off.
func (b *applyBody) end() {
	b.mu.Lock()
	b.over = true
	written := b.written
	b.mu.Unlock()
	close(b.last)
	if written != nil {
		<-written
	}
}

var errApplyOver = errors.New("the write was given up")

// WriteTo implements io.WriterTo.
func (b *applyBody) WriteTo(w io.Writer) (int64, error) {
	b.mu.Lock()
	if b.over {
		b.mu.Unlock()
		return 0, errApplyOver
	}
	b.written = make(chan struct{})
	b.mu.Unlock()
	defer close(b.written)
	buf := bufio.NewWriterSize(w, wireBuffer)
	if err := b.rows(buf); err != nil {
		return 0, err
	}
	var last byte
	decided := false
	select {
	case last, decided = <-b.last:
	case <-b.cancelled:
	case <-b.gone:
	}
	if !decided {
		return 0, errApplyOver
	}
	_ = buf.WriteByte(last) // Flush says what went wrong
	if err := buf.Flush(); err != nil {
		return 0, fmt.Errorf("send rows: %w", err)
	}
	return 0, nil
}

func (b *applyBody) rows(buf *bufio.Writer) error {
	head := applyHead{Stmts: b.stmts}
	for _, a := range b.adds {
		if len(a.Records) > 0 {
			head.Tables = append(head.Tables, applyTable{a.Table, len(a.Records)})
		}
	}
	text, err := json.Marshal(head)
	if err != nil {
		return fmt.Errorf("send rows: %w", err)
	}
	_, _ = buf.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(text))), text...)) // Flush says what went wrong
	for _, a := range b.adds {
		if len(a.Records) == 0 {
			continue
		}
		rows := ipc.NewWriter(buf, ipc.WithSchema(a.Records[0].Schema()))
		for _, rec := range a.Records {
			if err := rows.Write(rec); err != nil {
				return fmt.Errorf("send rows of %s: %w", a.Table, err)
			}
		}
		if err := rows.Close(); err != nil {
			return fmt.Errorf("send rows of %s: %w", a.Table, err)
		}
	}
	if err := buf.Flush(); err != nil {
		return fmt.Errorf("send rows: %w", err)
	}
	return nil
}

// Read implements io.Reader, which a request's body has to be. The transport
// prefers WriteTo.
func (b *applyBody) Read([]byte) (int, error) {
	return 0, errors.New("an apply is written, not read")
}

// Close implements io.Closer.
func (b *applyBody) Close() error { return nil }

// readApply reads an apply up to its last word. The caller releases the records,
// also after an error.
func readApply(r io.Reader) (adds []Addition, stmts []string, err error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, nil, cutShort(err)
	}
	text := make([]byte, binary.LittleEndian.Uint32(size[:]))
	if _, err := io.ReadFull(r, text); err != nil {
		return nil, nil, cutShort(err)
	}
	var head applyHead
	if err := json.Unmarshal(text, &head); err != nil {
		return nil, nil, cutShort(err)
	}
	for _, t := range head.Tables {
		a := Addition{Table: t.Table}
		n, err := readBatches(r, func(rec arrow.RecordBatch) error {
			rec.Retain()
			a.Records = append(a.Records, rec)
			return nil
		})
		adds = append(adds, a)
		if err == nil && n != t.Batches {
			err = cutShort(fmt.Errorf("%d batches of %s came of %d", n, t.Table, t.Batches))
		}
		if err != nil {
			return adds, nil, err
		}
	}
	return adds, head.Stmts, nil
}

func release(adds []Addition) {
	for _, a := range adds {
		for _, rec := range a.Records {
			rec.Release()
		}
	}
}
