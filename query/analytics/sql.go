package analytics

import (
	"bytes"
	"context"
	_ "embed" // the statements
	"encoding/json"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// The statements, as docs/analytics.md shows them. Each says at its head what
// its parameters are.
var (
	//go:embed summary.sql
	SummarySQL string
	//go:embed uplift.sql
	UpliftSQL string
	//go:embed splits.sql
	SplitsSQL string
	//go:embed groups.sql
	GroupsSQL string
	//go:embed mismatch.sql
	MismatchSQL string
	//go:embed mismatch_trajectories.sql
	MismatchTrajectoriesSQL string
	//go:embed mismatch_tokens.sql
	MismatchTokensSQL string
)

// Warehouse is what this package needs of the store: it runs one statement that
// reads. A batch is valid during the call only.
type Warehouse interface {
	Query(ctx context.Context, each func(arrow.RecordBatch) error, text string, args ...any) error
}

// rowsOf runs a statement and decodes each row by the names of its columns.
func rowsOf[T any](ctx context.Context, w Warehouse, text string, args ...any) (rows []T, err error) {
	err = w.Query(ctx, func(rec arrow.RecordBatch) error {
		var lines bytes.Buffer
		if err := array.RecordToJSON(rec, &lines); err != nil {
			return fmt.Errorf("read result: %w", err)
		}
		d := json.NewDecoder(&lines)
		d.UseNumber() // a policy version has 64 bits
		for range rec.NumRows() {
			var row T
			if err := d.Decode(&row); err != nil {
				return fmt.Errorf("read result: %w", err)
			}
			rows = append(rows, row)
		}
		return nil
	}, text, args...)
	return rows, err
}

// list is a JSON list as the statements take it; nil: all.
func list[T any](values []T) any {
	if len(values) == 0 {
		return nil
	}
	text, err := json.Marshal(values)
	if err != nil {
		panic(err) // texts and integers always encode
	}
	return string(text)
}

// optional is a value that may be NULL.
func optional[T any](v *T) any {
	if v == nil {
		return nil
	}
	return *v
}
