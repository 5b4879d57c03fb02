package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
)

type demoCmd struct {
	Tour string `arg:"" optional:"" help:"What is shown: captures (rollouts of four harnesses are imported), or gateway (an agent calls an engine through it)." enum:"captures,gateway" default:"captures"`
	config
	Captures string `help:"Directory of captured rollouts to import." default:"testdata/captures" placeholder:"DIR"`
	Once     bool   `help:"End after the tour instead of serving on."`
}

// Help is shown by demo --help.
func (demoCmd) Help() string {
	return `Works in a fresh temporary directory, below --data where that is given, and removes it at the end; on a free port
unless --listen names one. The gateway's engine is a test engine without a model, unless --engine
or --gateway names one.`
}

// Run implements the command.
func (c demoCmd) Run(ctx context.Context) error {
	// A reader that has seen enough (demo | head) must not leave the directory
	// behind: the write fails instead of ending the process.
	signal.Ignore(syscall.SIGPIPE)
	parent := ""
	if c.Data != defaultData {
		parent = c.Data
		if err := os.MkdirAll(parent, 0o755); err != nil {
			return fmt.Errorf("demo: %w", err)
		}
	}
	dir, err := os.MkdirTemp(parent, "icecore-demo-")
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a leftover in the temporary directory
	c.Data = filepath.Join(dir, "data")
	if c.Listen == "127.0.0.1:7470" {
		c.Listen = "127.0.0.1:0"
	}
	log, err := c.logger(os.Stderr)
	if err != nil {
		return err
	}
	if c.LogLevel == "info" {
		log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	show := demoCmd.tour
	if c.Tour == "gateway" {
		show = demoCmd.gatewayTour
		if len(c.Engine) == 0 && c.Gateway == "" {
			url, stop, err := startDemoEngine(ctx)
			if err != nil {
				return fmt.Errorf("demo: %w", err)
			}
			defer stop() //nolint:errcheck // nothing is lost
			c.Engine = []string{url}
		}
	}
	s, err := startServer(ctx, c.config, log)
	if err != nil {
		return err
	}
	err = show(c, ctx, "http://"+s.addr, os.Stdout)
	if err == nil && !c.Once {
		<-ctx.Done()
		fmt.Println("\nstopping")
	}
	if ctx.Err() != nil {
		err = nil // interrupted, as was offered
	}
	return errors.Join(err, s.stop())
}

// tour shows what goes in, what the merges make of it, and what comes out.
func (c demoCmd) tour(ctx context.Context, base string, w io.Writer) error {
	p := printer{w: w}
	p.f("icecore serves %s in a fresh directory.\n\n", base)
	p.f("1. Traces in: importing the rollouts of four coding harnesses from %s\n", c.Captures)
	sum, err := runImport(ctx, importCmd{Paths: []string{c.Captures}, Server: base, Format: "ndjson", Parallel: 2, RetryFor: time.Minute}, io.Discard)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("demo: %w; the captures lie in the repository: run it there, or name them with --captures DIR", err)
	}
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	sum.print(w)
	if sum.refused > 0 {
		return fmt.Errorf("demo: %d items were refused", sum.refused)
	}
	cl := newClient(base, time.Minute)
	p.f("\n2. Merged. sent: ids in all prompts and responses; kept: ids stored, each once.\n")
	for _, policy := range []string{"strict_tree", "polar_compat(end_of_turn=151645)"} {
		p.f("\n   By %s:\n", policy)
		if err := showHarnesses(ctx, cl, policy, w); err != nil {
			return fmt.Errorf("demo: %w", err)
		}
	}
	p.f("\n3. Trajectories out: GET %s/v1/trajectories?split=train&limit=5\n\n", base)
	if err := showArrow(ctx, cl, w); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	if err := demoAsk(ctx, base, w); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	p.f(`
Go on:
  bin/icecore query --server %[1]s
  bin/icecore trace --server %[1]s codex-fix-sum-0-0000
  curl -s '%[1]s/v1/rollouts?limit=3'
  curl -s '%[1]s/v1/rollouts/codex-fix-sum-0/trajectories?policy=strict_tree' | head -c 600
  curl -s '%[1]s/v1/status'
  bin/icecore export --server %[1]s --out trajectories.parquet --format parquet
  bin/icecore verify --server %[1]s
`, base)
	if !c.Once {
		p.f("\nServing %s until interrupted (Ctrl-C).\n", base)
	}
	return p.err
}

// demoSQL asks where the tokens of training come from.
const demoSQL = `SELECT harness, kind, count(*) AS calls, sum(prompt_length - shared) AS new_prompt_tokens
FROM boundaries WHERE merge_policy = 'strict_tree' GROUP BY ALL ORDER BY ALL`

// demoAsk shows an answer in SQL, and the table per harness.
func demoAsk(ctx context.Context, base string, w io.Writer) error {
	p := printer{w: w}
	p.f("\n4. Asked in SQL (icecore query):\n\n%s\n\n", demoSQL)
	a, err := newQueryClient(base, time.Minute).ask(ctx, question{SQL: demoSQL}, "table")
	if err != nil {
		return err
	}
	defer a.close()
	r, err := a.result()
	if err != nil {
		return err
	}
	if err := (view{}).show(w, r); err != nil {
		return err
	}
	report, err := reportCmd{Server: base, By: []string{"harness"}, Policy: "strict_tree", SolvedAt: 1, K: []int{1, 4}, RetryFor: time.Minute}.run(ctx)
	if err != nil {
		return err
	}
	p.f("\n5. By harness (icecore report):\n\n%s", report)
	return p.err
}

// printer keeps the first error of many writes.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) f(format string, args ...any) {
	if _, err := fmt.Fprintf(p.w, format, args...); err != nil && p.err == nil {
		p.err = err
	}
}

func showHarnesses(ctx context.Context, cl *client, policy string, w io.Writer) error {
	var a struct {
		Harnesses []struct {
			Harness      string           `json:"harness"`
			Rollouts     int64            `json:"rollouts"`
			Traces       int64            `json:"traces"`
			Trajectories int64            `json:"trajectories"`
			Sampled      int64            `json:"sampled_tokens"`
			Trained      int64            `json:"trained_tokens"`
			Sent         int64            `json:"sent_tokens"`
			Kept         int64            `json:"kept_tokens"`
			Dispositions map[string]int64 `json:"dispositions"`
			Boundaries   map[string]int64 `json:"boundaries"`
		} `json:"harnesses"`
	}
	if err := cl.call(ctx, http.MethodGet, "/v1/harnesses?policy="+strings.ReplaceAll(policy, "=", "%3D"), nil, &a); err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	p := printer{w: t}
	p.f("harness\trollouts\tcalls\ttrajectories\tsampled\ttrained\tsent\tkept\t\n")
	for _, h := range a.Harnesses {
		p.f("%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", h.Harness, h.Rollouts, h.Traces, h.Trajectories, h.Sampled, h.Trained, h.Sent, h.Kept)
	}
	if err := errors.Join(p.err, t.Flush()); err != nil {
		return err
	}
	p = printer{w: w}
	for _, h := range a.Harnesses {
		p.f("  %-12s dispositions %s\n  %-12s boundaries   %s\n", h.Harness, counts(h.Dispositions), "", counts(h.Boundaries))
	}
	return p.err
}

// counts writes a map of counts, the largest first.
func counts(m map[string]int64) string {
	names := make([]string, 0, len(m))
	for n := range m {
		names = append(names, n)
	}
	slices.SortFunc(names, func(a, b string) int {
		if m[a] != m[b] {
			return int(m[b] - m[a])
		}
		return strings.Compare(a, b)
	})
	for i, n := range names {
		names[i] = fmt.Sprintf("%s %d", n, m[n])
	}
	return strings.Join(names, ", ")
}

// showArrow pulls a stream and prints its schema and first rows.
func showArrow(ctx context.Context, cl *client, w io.Writer) error {
	page, err := fetchPage(ctx, cl, "/v1/trajectories?split=train&limit=5&format=arrow", false)
	if err != nil {
		return err
	}
	r, err := ipc.NewReader(bytes.NewReader(page.body))
	if err != nil {
		return fmt.Errorf("read Arrow stream: %w", err)
	}
	defer r.Release()
	p := printer{w: w}
	for _, f := range r.Schema().Fields() {
		null := ""
		if l, ok := f.Type.(*arrow.ListType); ok && l.ElemField().Nullable {
			null = ", items may be null"
		}
		if f.Nullable {
			null = ", may be null"
		}
		p.f("  %-24s %s%s\n", f.Name, shortType(f.Type), null)
	}
	p.f("\n")
	for r.Next() {
		rec := r.RecordBatch()
		for i := range int(rec.NumRows()) {
			p.f("  %s  rollout %s, reward %s\n    token_ids %s\n    loss_mask %s\n    logprobs  %s\n", cell(rec, "trajectory_id", i),
				cell(rec, "rollout_id", i), cell(rec, "reward", i), around(rec, "token_ids", i), around(rec, "loss_mask", i), around(rec, "logprobs", i))
		}
	}
	if err := r.Err(); err != nil {
		return fmt.Errorf("read Arrow stream: %w", err)
	}
	return p.err
}

func shortType(t arrow.DataType) string {
	switch t := t.(type) {
	case *arrow.ListType:
		return "list<" + shortType(t.Elem()) + ">"
	case *arrow.StructType:
		names := make([]string, len(t.Fields()))
		for i, f := range t.Fields() {
			names[i] = f.Name
		}
		return "struct<" + strings.Join(names, ", ") + ">"
	case *arrow.DictionaryType:
		return "dictionary<utf8>"
	}
	return t.Name()
}

func column(rec arrow.RecordBatch, name string) arrow.Array {
	return rec.Column(rec.Schema().FieldIndices(name)[0])
}

func cell(rec arrow.RecordBatch, name string, row int) string { return column(rec, name).ValueStr(row) }

// around shows a list where the row's first trained position is, the place that
// tells most.
func around(rec arrow.RecordBatch, name string, row int) string {
	l := column(rec, name).(*array.List)
	from, to := l.ValueOffsets(row)
	p := int64(column(rec, "prompt_length").(*array.Int32).Value(row))
	lo, hi := max(from, from+p-3), min(to, from+p+5)
	var parts []string
	for i := lo; i < hi; i++ {
		parts = append(parts, l.ListValues().ValueStr(int(i)))
	}
	return fmt.Sprintf("(%d) … %s …", to-from, strings.Join(parts, " "))
}
