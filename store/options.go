package store

import (
	"log/slog"
	"os/exec"
	"time"
)

// Options configures a Store. The zero value of each field means its default.
type Options struct {
	// Dir is the data directory. Required; made when absent.
	Dir string
	// Owner is what the lock file tells a second process about this one, an
	// address for instance.
	Owner string
	// Log receives what an operator should know. Default: slog.Default().
	Log *slog.Logger

	// MemoryLimit bounds DuckDB, in bytes. Default: half of what the machine
	// or its cgroup has.
	MemoryLimit int64
	// Threads bounds DuckDB. Default: the processors of machine or cgroup.
	Threads int
	// TempDir is where DuckDB spills. Default: Dir/tmp.
	TempDir string
	// SpillLimit bounds what DuckDB spills, in bytes. Default, and its bound: half
	// of what is free beyond DiskFloor when DuckDB is started, 256 MiB at least.
	SpillLimit int64

	// HeadBytes bounds the tape heads kept in memory. Default: a sixteenth of
	// memory, at least 64 MiB. Too small costs disk, never answers.
	HeadBytes int64
	// GroupBytes bounds one group commit. Default 32 MiB.
	GroupBytes int
	// DrainInterval is how long a stored trace may wait for the warehouse.
	// Default 200 ms.
	DrainInterval time.Duration
	// DrainBytes is how much journal makes a drain start at once, and bounds
	// one drain. Default 32 MiB.
	DrainBytes int64
	// CheckpointBytes is how much drained journal makes DuckDB write its
	// checkpoint. Default 128 MiB.
	CheckpointBytes int64
	// CheckpointInterval is how long drained journal may wait for a
	// checkpoint. Default 30 s.
	CheckpointInterval time.Duration
	// DiskFloor is the free space below which nothing is taken in. Default
	// 256 MiB; negative: no floor.
	DiskFloor int64

	// Warehouse, when set, makes the command whose process calls
	// warehouse.Serve: DuckDB then runs there, and dies alone. Nil: it runs in
	// this process.
	Warehouse func() *exec.Cmd
	// WarehousePatience is how long reads and writes wait for that process when
	// it is away. Default 30 s.
	WarehousePatience time.Duration
	// ChildMemory is the resident memory, in bytes, at which that process is
	// killed while it runs a user's statement. Default: MemoryLimit and a quarter
	// of it, 1 GiB at least, on top, but not above nine tenths of what the machine
	// or its cgroup has.
	ChildMemory int64
	// AskGrace is how long a user's statement may go on in that process after it
	// was told to stop, before the process is killed. Default 5 s.
	AskGrace time.Duration
	// RebuildIndex makes Open rebuild the trace index, and what else of the
	// control database the warehouse knows, from warehouse and journal.
	RebuildIndex bool
	// Clock is the wall clock by which rows are dated and leases expire. Default:
	// time.Now.
	Clock func() time.Time
	// OnDrain is told the rollouts whose traces have become readable.
	OnDrain func(rolloutKeys []int64)
}

const (
	mib = 1 << 20
	// maxList bounds every list in the warehouse: a DuckDB vector is 2,048
	// rows, and its memory is that times the list.
	maxList = 4096
	// maxForkDepth bounds how many tapes a prompt is assembled from. A deeper
	// fork starts a tape of its own.
	maxForkDepth = 32
	// maxBodyChain bounds how many bodies must be read to read one.
	maxBodyChain = 32
)

func (o Options) withDefaults() Options {
	m := machine()
	set := func(v *int64, d int64) {
		if *v == 0 {
			*v = d
		}
	}
	set(&o.MemoryLimit, m.memory/2)
	set(&o.ChildMemory, min(o.MemoryLimit+max(1<<30, o.MemoryLimit/4), m.memory/10*9))
	set(&o.HeadBytes, max(64*mib, m.memory/16))
	set(&o.DrainBytes, 32*mib)
	set(&o.CheckpointBytes, 128*mib)
	set(&o.DiskFloor, 256*mib)
	if o.Threads == 0 {
		o.Threads = m.cpus
	}
	if o.GroupBytes == 0 {
		o.GroupBytes = 32 * mib
	}
	if o.DrainInterval == 0 {
		o.DrainInterval = 200 * time.Millisecond
	}
	if o.CheckpointInterval == 0 {
		o.CheckpointInterval = 30 * time.Second
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return o
}
