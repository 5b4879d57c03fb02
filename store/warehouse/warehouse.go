// Package warehouse is the narrow waist around DuckDB: append record batches,
// run SQL, get record batches. An Engine does that in this process; a Child is
// spoken to in the same words and does it in a process of its own, which may die
// and is started anew. Nothing else in icecore touches DuckDB.
package warehouse

import (
	"errors"

	"github.com/apache/arrow-go/v18/arrow"
)

// Options configures an Engine. Sizes are bytes.
type Options struct {
	// Functions are made known to SQL before anything else happens: the views of
	// the warehouse are made of them.
	Functions []Function `json:"-"`
	// MemoryLimit bounds DuckDB; it gets 64 MiB at least.
	MemoryLimit int64 `json:"memory_limit"`
	// Threads bounds DuckDB. Required.
	Threads int `json:"threads"`
	// TempDir is where DuckDB spills, in a directory of its own. Required.
	TempDir string `json:"temp_dir"`
	// SpillLimit bounds what is spilled. It is never more than half of what is
	// free beyond DiskFloor when the file is opened, nor less than 256 MiB. 0:
	// that half.
	SpillLimit int64 `json:"spill_limit,omitempty"`
	// DiskFloor is the free space that spilling is to leave.
	DiskFloor int64 `json:"disk_floor,omitempty"`
	// AsItIs opens the file without migrating it.
	AsItIs bool `json:"as_it_is,omitempty"`
	// Hook, when set, is called inside each migration's transaction.
	Hook func() `json:"-"`
}

// Addition is rows to append to one table of the schema ice. Its columns stand
// in the table's order; all its records have one schema.
type Addition struct {
	Table   string
	Records []arrow.RecordBatch
}

var (
	// ErrOutOfOrder says that the warehouse cannot take in, or give out, what is
	// stored. It is tried again.
	ErrOutOfOrder = errors.New("the warehouse is out of order for now")
	// ErrGone says that the warehouse's process ended while it was being asked.
	// Whatever it was asked to write is written whole or not at all. An error
	// that is ErrGone is ErrOutOfOrder too.
	ErrGone = errors.New("its process ended")
	// ErrUnreadable says that the file, or its write-ahead log, is damaged:
	// DuckDB refuses it, or dies of it.
	ErrUnreadable = errors.New("the warehouse's file cannot be read")
	// ErrClosed says that Close was called.
	ErrClosed = errors.New("the warehouse is closed")
)
