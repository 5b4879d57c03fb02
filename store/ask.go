package store

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"

	"icecore/store/warehouse"
)

// Ask runs one statement of a user's. It sees what has been drained. A statement
// that is at fault gets a *warehouse.Fault; otherwise the error is ErrWarehouse
// when the warehouse does not answer.
func (s *Store) Ask(ctx context.Context, a warehouse.Ask, each func(arrow.RecordBatch) error) (warehouse.Reply, error) {
	return s.wh().Ask(ctx, a, each)
}

// Query runs a statement of icecore's own on what has been drained. A batch is
// valid during the call of each only.
func (s *Store) Query(ctx context.Context, each func(arrow.RecordBatch) error, text string, args ...any) error {
	return s.wh().Query(ctx, each, text, args...)
}
