package verify

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// Source is what Run reads. Both databases may be in use by a server at the
// same time, and both may be opened read-only.
type Source struct {
	// Control is the control database (SQLite), Warehouse the warehouse
	// (DuckDB).
	Control, Warehouse *sql.DB
	// ThroughBatch is the newest batch to compare; rows of later batches are
	// left out. It must be drained. Zero means: all that is drained.
	ThroughBatch int64
}

// Options configures Run. The zero value of each field means its default.
type Options struct {
	// MaxFindings bounds the findings that are told of each check; the rest is
	// counted. Default 20.
	MaxFindings int
	// PageTokens is about how many ids are held in memory at once; a rollout is
	// never split. Default 2 Mi.
	PageTokens int64
	// Progress, when set, is told how many rollouts of how many are done.
	Progress func(done, total int64)
}

const (
	defaultMaxFindings = 20
	defaultPageTokens  = 2 << 20
	// pageRollouts bounds a page of small rollouts.
	pageRollouts = 1024
)

// run is one verification.
type run struct {
	*Report
	src  Source
	opts Options
	// through is the newest batch that is looked at, drained the newest that
	// the warehouse held at the start.
	through, drained int64
	// indexed counts the index rows of each rollout, up to batch through.
	indexed map[int64]int
	// lastSeq is the highest seq that each rollout's calls may have.
	lastSeq map[int64]int64
	// sent holds the SHA-256 of bodies that are still in the journal.
	sent map[bodyKey][32]byte
}

// Run checks everything. Its error says that the databases could not be read;
// what is wrong with their content is in the report.
func Run(ctx context.Context, src Source, opts Options) (*Report, error) {
	started := time.Now()
	if opts.MaxFindings == 0 {
		opts.MaxFindings = defaultMaxFindings
	}
	if opts.PageTokens == 0 {
		opts.PageTokens = defaultPageTokens
	}
	v := &run{Report: newReport(opts.MaxFindings), src: src, opts: opts, indexed: map[int64]int{}, lastSeq: map[int64]int64{}, sent: map[bodyKey][32]byte{}}
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"drains", v.drains},
		{"counters", v.counters},
		{"duplicate keys", v.duplicateKeys},
		{"control database", v.control},
		{"journal", v.journal},
		{"merge tables", v.strayMerges},
		{"learners' posts", v.learnerIndex},
		{"rollouts", v.walk},
	} {
		if err := step.do(ctx); err != nil {
			return nil, fmt.Errorf("verify %s: %w", step.name, err)
		}
	}
	v.TookSeconds = time.Since(started).Seconds()
	return v.Report, nil
}
