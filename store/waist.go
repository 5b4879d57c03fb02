package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"icecore/store/warehouse"
)

// waist is all that the store wants of DuckDB. It is a warehouse.Engine in this
// process, or a warehouse.Child, which may die and come back.
type waist interface {
	Apply(ctx context.Context, adds []warehouse.Addition, before func() error, stmts ...string) error
	Query(ctx context.Context, each func(arrow.RecordBatch) error, text string, args ...any) error
	Int(ctx context.Context, text string) (int64, error)
	Checkpoint(ctx context.Context) (clean bool, err error)
	Heal(ctx context.Context) (healed bool, err error)
	Ask(ctx context.Context, a warehouse.Ask, each func(arrow.RecordBatch) error) (warehouse.Reply, error)
	Close() error
}

func (s *Store) wh() waist { return s.warehouse }

// maxRepeats is how often a write that lost the warehouse's process is repeated
// at once.
const maxRepeats = 2

// applied writes what may be written again, or of which done, if set, tells
// whether it was written.
func (s *Store) applied(ctx context.Context, done func() (bool, error), before func() error, adds []warehouse.Addition, stmts ...string) error {
	for tries := 0; ; tries++ {
		err := s.wh().Apply(ctx, adds, before, stmts...)
		if !errors.Is(err, warehouse.ErrGone) || tries == maxRepeats {
			return err
		}
		s.log.Warn("a write lost the warehouse's process and is repeated", "err", err)
		if done == nil {
			continue
		}
		if held, err := done(); err != nil || held {
			return err
		}
	}
}

// InWarehouse calls what the warehouse's process serves beside the warehouse:
// in and out are JSON. It fails when the warehouse is in this process.
func (s *Store) InWarehouse(ctx context.Context, path string, in, out any) error {
	child, ok := s.warehouse.(*warehouse.Child)
	if !ok {
		return errors.New("ask the warehouse's process: there is none")
	}
	return child.Call(ctx, path, in, out)
}

// ControlPath is the file of the control database, for ReadControl.
func (s *Store) ControlPath() string { return s.control.path }

// ReadControl opens a control database for reading, also while another process
// writes it.
func ReadControl(path string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", controlDSN(path, "ro"))
	if err != nil {
		return nil, fmt.Errorf("open control database: %w", err)
	}
	return db, nil
}

// Databases gives both databases to a witness in this process, and the batch up
// to which the warehouse holds everything. Until release is called the warehouse
// is not opened anew. Of a warehouse in a process of its own it gives nil.
func (s *Store) Databases() (control, inProcess *sql.DB, drained int64, release func()) {
	e, ok := s.warehouse.(*warehouse.Engine)
	if !ok {
		return s.control.read, nil, s.Drained(), func() {}
	}
	release = e.Hold()
	return s.control.read, e.DB(), s.Drained(), release
}
