package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
)

const typeArrowStream = "application/vnd.apache.arrow.stream"

// readArrow sends the record batches of an Arrow stream or file.
func readArrow(name string, r io.Reader, emit func(*batch) error) error {
	buf := bufio.NewReaderSize(r, 1<<20)
	magic, err := buf.Peek(6)
	if err != nil {
		return fmt.Errorf("read Arrow: %w", err)
	}
	rows := 0
	if string(magic) == "ARROW1" {
		whole, err := io.ReadAll(buf)
		if err != nil {
			return fmt.Errorf("read Arrow file: %w", err)
		}
		f, err := ipc.NewFileReader(bytes.NewReader(whole))
		if err != nil {
			return fmt.Errorf("read Arrow file: %w", err)
		}
		defer f.Close() //nolint:errcheck // it reads from memory
		for i := range f.NumRecords() {
			rec, err := f.RecordBatch(i)
			if err != nil {
				return fmt.Errorf("read Arrow file: %w", err)
			}
			if err := emitRecord(name, rec, &rows, emit); err != nil {
				return err
			}
		}
		return nil
	}
	s, err := ipc.NewReader(buf)
	if err != nil {
		return fmt.Errorf("read Arrow stream: %w", err)
	}
	defer s.Release()
	for s.Next() {
		if err := emitRecord(name, s.RecordBatch(), &rows, emit); err != nil {
			return err
		}
	}
	if err := s.Err(); err != nil {
		return fmt.Errorf("read Arrow stream: %w", err)
	}
	return nil
}

func readParquet(name string, r io.Reader, emit func(*batch) error) error {
	// Parquet is read from its end, so all of it is needed.
	whole, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("read Parquet: %w", err)
	}
	f, err := file.NewParquetReader(bytes.NewReader(whole))
	if err != nil {
		return fmt.Errorf("read Parquet: %w", err)
	}
	defer f.Close() //nolint:errcheck // it reads from memory
	p, err := pqarrow.NewFileReader(f, pqarrow.ArrowReadProperties{BatchSize: importItems}, memory.DefaultAllocator)
	if err != nil {
		return fmt.Errorf("read Parquet: %w", err)
	}
	recs, err := p.GetRecordReader(context.Background(), nil, nil)
	if err != nil {
		return fmt.Errorf("read Parquet: %w", err)
	}
	defer recs.Release()
	rows := 0
	for recs.Next() {
		if err := emitRecord(name, recs.RecordBatch(), &rows, emit); err != nil {
			return err
		}
	}
	if err := recs.Err(); err != nil && err != io.EOF {
		return fmt.Errorf("read Parquet: %w", err)
	}
	return nil
}

// emitRecord sends a record batch in slices of at most importItems rows and
// about importBytes bytes.
func emitRecord(name string, rec arrow.RecordBatch, rows *int, emit func(*batch) error) error {
	from, n := int64(0), int64(importItems)
	for from < rec.NumRows() {
		to := min(from+n, rec.NumRows())
		b, err := recordBatch(name, rec.NewSlice(from, to), *rows+int(from))
		if err != nil {
			return err
		}
		if len(b.body) > 2*importBytes && to-from > 1 {
			n = max(1, (to-from)/2)
			continue
		}
		if err := emit(b); err != nil {
			return err
		}
		from = to
	}
	*rows += int(rec.NumRows())
	return nil
}

func recordBatch(name string, rec arrow.RecordBatch, first int) (*batch, error) {
	var body bytes.Buffer
	w := ipc.NewWriter(&body, ipc.WithSchema(rec.Schema()))
	if err := w.Write(rec); err != nil {
		return nil, fmt.Errorf("encode Arrow: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("encode Arrow: %w", err)
	}
	b := &batch{contentType: typeArrowStream, body: body.Bytes()}
	for i := range int(rec.NumRows()) {
		b.items = append(b.items, fmt.Sprintf("%s row %d", name, first+i))
	}
	h := rec.NumRows() / 2
	b.split = func() (*batch, *batch) {
		left, lerr := recordBatch(name, rec.NewSlice(0, h), first)
		right, rerr := recordBatch(name, rec.NewSlice(h, rec.NumRows()), first+int(h))
		if lerr != nil || rerr != nil {
			return nil, nil // it could be encoded a moment ago
		}
		return left, right
	}
	return b, nil
}
