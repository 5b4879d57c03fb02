package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
)

type exportCmd struct {
	Out        string        `help:"File to write; - is standard output." required:"" placeholder:"FILE"`
	Server     string        `help:"The server." default:"http://127.0.0.1:7470" placeholder:"URL"`
	Format     string        `help:"arrow (a stream), ndjson or parquet." default:"arrow" enum:"arrow,ndjson,parquet" env:"ICECORE_EXPORT_FORMAT"`
	Policy     string        `help:"Merge policy." default:"strict_tree"`
	Rollout    []string      `help:"Only these rollouts."`
	Group      []string      `help:"Only these groups."`
	Task       []string      `help:"Only these tasks."`
	Harness    []string      `help:"Only these harnesses."`
	Model      []string      `help:"Only these models."`
	Split      []string      `help:"Only these splits: train, eval."`
	Status     []string      `help:"Only rollouts finished with these statuses."`
	Complete   bool          `help:"Only rollouts that are finished and miss no call."`
	VersionMin string        `help:"Only rows whose policy versions are all at least this."`
	VersionMax string        `help:"Only rows whose policy versions are all at most this."`
	Cursor     string        `help:"Go on behind the place that an earlier export printed."`
	Page       int           `help:"Rows fetched at a time; a page that breaks off is fetched again." default:"2000"`
	RetryFor   time.Duration `help:"How long to try again when the server is busy or away." default:"5m"`
}

// Help is shown by export --help.
func (exportCmd) Help() string {
	return `Rows come in the order in which rollouts were opened, page by page. Each page says beforehand how many rows and tokens
it has and is written only when all of them came. When an export is interrupted, the cursor it prints goes on behind
the last page that was written.`
}

// Run implements the command.
func (c exportCmd) Run(ctx context.Context) error {
	var dst io.WriteCloser = os.Stdout
	if c.Out != "-" {
		f, err := os.Create(c.Out)
		if err != nil {
			return fmt.Errorf("export: %w", err)
		}
		dst = f
	}
	buf := bufio.NewWriterSize(dst, 1<<20)
	rows, cursor, err := c.run(ctx, buf)
	err = errors.Join(err, buf.Flush(), dst.Close())
	if err != nil {
		if cursor != "" {
			err = fmt.Errorf("%w\n%d rows are written; go on with --cursor %s into another file", err, rows, cursor)
		}
		return fmt.Errorf("export: %w", err)
	}
	fmt.Fprintf(os.Stderr, "exported: %d trajectories\n", rows)
	return nil
}

// filters are the flags that select.
func (c exportCmd) filters() []filterFlag {
	flags := []filterFlag{{"rollout", c.Rollout}, {"group", c.Group}, {"task", c.Task}, {"harness", c.Harness}, {"model", c.Model},
		{"split", c.Split}, {"status", c.Status}}
	for _, end := range [][2]string{{"version-min", c.VersionMin}, {"version-max", c.VersionMax}} {
		if end[1] != "" {
			flags = append(flags, filterFlag{end[0], end[1:]})
		}
	}
	return flags
}

func (c exportCmd) query() url.Values {
	q := url.Values{"policy": {c.Policy}, "limit": {strconv.Itoa(c.Page)}}
	for name, values := range map[string][]string{"rollout_id": c.Rollout, "group_id": c.Group, "task_id": c.Task, "harness": c.Harness,
		"model": c.Model, "split": c.Split, "status": c.Status} {
		if len(values) > 0 {
			q[name] = values
		}
	}
	if c.Complete {
		q.Set("complete", "true")
	}
	if c.VersionMin != "" {
		q.Set("policy_version_min", c.VersionMin)
	}
	if c.VersionMax != "" {
		q.Set("policy_version_max", c.VersionMax)
	}
	return q
}

// run writes page after page and gives the cursor behind the last one that is in
// the file.
func (c exportCmd) run(ctx context.Context, w *bufio.Writer) (rows int, cursor string, err error) {
	cl := newClient(c.Server, c.RetryFor)
	if err := cl.reachable(ctx); err != nil {
		return 0, "", err
	}
	out := newPageWriter(c.Format, w)
	cursor = c.Cursor
	for {
		page, err := c.fetch(ctx, cl, cursor)
		if err != nil {
			return rows, cursor, errors.Join(err, out.abandon())
		}
		if err := errors.Join(out.write(page.body), w.Flush()); err != nil {
			// What of the file can be read now, nobody knows.
			return 0, "", err
		}
		rows += page.rows
		if page.next == "" {
			if c.Cursor == "" {
				noteMisses(ctx, cl, "trajectory", int64(rows), c.filters()...)
			}
			return rows, cursor, out.close()
		}
		cursor = page.next
	}
}

type page struct {
	body []byte
	rows int
	next string
}

// pageTries is how often a page that breaks off is fetched.
const pageTries = 5

func (c exportCmd) fetch(ctx context.Context, cl *client, cursor string) (p page, err error) {
	q := c.query()
	if cursor != "" {
		q.Set("cursor", cursor)
	}
	q.Set("format", "arrow")
	if c.Format == "ndjson" {
		q.Set("format", "ndjson")
	}
	for range pageTries {
		if p, err = fetchPage(ctx, cl, "/v1/trajectories?"+q.Encode(), c.Format == "ndjson"); err == nil || asRefusal(err) != nil || ctx.Err() != nil {
			return p, err
		}
	}
	return p, fmt.Errorf("a page broke off %d times: %w", pageTries, err)
}

func fetchPage(ctx context.Context, cl *client, path string, lines bool) (p page, err error) {
	resp, err := cl.send(ctx, http.MethodGet, path, "", nil)
	if err != nil {
		return p, err
	}
	defer resp.Body.Close() //nolint:errcheck // it was read, or its error is told
	if resp.StatusCode != http.StatusOK {
		return p, readRefusal(resp)
	}
	if p.body, err = io.ReadAll(resp.Body); err != nil {
		return p, fmt.Errorf("read page: %w", err)
	}
	want, err := strconv.Atoi(resp.Header.Get("Icecore-Rows"))
	if err != nil {
		return p, fmt.Errorf("read page: the answer does not say how many rows it has: %w", err)
	}
	if lines {
		p.rows = bytes.Count(p.body, []byte("\n"))
	} else if p.rows, err = countRows(p.body); err != nil {
		return p, err
	}
	if p.rows != want {
		return p, fmt.Errorf("read page: %d rows came of %d promised", p.rows, want)
	}
	p.next = resp.Header.Get("Icecore-Next-Cursor")
	return p, nil
}

func countRows(body []byte) (int, error) {
	n := 0
	err := eachRecord(body, func(rec arrow.RecordBatch) error {
		n += int(rec.NumRows())
		return nil
	})
	return n, err
}

func eachRecord(body []byte, do func(arrow.RecordBatch) error) error {
	r, err := ipc.NewReader(bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("read Arrow page: %w", err)
	}
	defer r.Release()
	for r.Next() {
		if err := do(r.RecordBatch()); err != nil {
			return err
		}
	}
	if err := r.Err(); err != nil {
		return fmt.Errorf("read Arrow page: %w", err)
	}
	return nil
}

// pageWriter joins pages into one file.
type pageWriter interface {
	write(body []byte) error
	close() error
	// abandon leaves a file whose rows so far can be read.
	abandon() error
}

func newPageWriter(format string, w io.Writer) pageWriter {
	if format == "ndjson" {
		return plainPages{w}
	}
	return &arrowPages{w: w, parquet: format == "parquet"}
}

type plainPages struct{ w io.Writer }

func (p plainPages) write(body []byte) error {
	if _, err := p.w.Write(body); err != nil {
		return fmt.Errorf("write file: %w", err)
	}
	return nil
}

func (plainPages) close() error { return nil }

func (plainPages) abandon() error { return nil }

// arrowPages writes one Arrow stream or Parquet file. The metadata that counts
// one page is left out: it would be wrong for the whole.
type arrowPages struct {
	w       io.Writer
	parquet bool
	out     interface {
		Write(arrow.RecordBatch) error
		Close() error
	}
	schema *arrow.Schema
}

func (p *arrowPages) write(body []byte) error {
	if p.out == nil {
		if err := p.open(body); err != nil {
			return err
		}
	}
	return eachRecord(body, func(rec arrow.RecordBatch) error {
		bare := array.NewRecordBatch(p.schema, rec.Columns(), rec.NumRows())
		defer bare.Release()
		if err := p.out.Write(bare); err != nil {
			return fmt.Errorf("write file: %w", err)
		}
		return nil
	})
}

func (p *arrowPages) open(body []byte) error {
	r, err := ipc.NewReader(bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("read Arrow page: %w", err)
	}
	defer r.Release()
	keep := map[string]string{}
	for i, k := range r.Schema().Metadata().Keys() {
		if k == "icecore.schema_version" || k == "icecore.merge_policy" {
			keep[k] = r.Schema().Metadata().Values()[i]
		}
	}
	meta := arrow.MetadataFrom(keep)
	p.schema = arrow.NewSchema(r.Schema().Fields(), &meta)
	if !p.parquet {
		p.out = ipc.NewWriter(p.w, ipc.WithSchema(p.schema))
		return nil
	}
	p.out, err = pqarrow.NewFileWriter(p.schema, p.w, parquet.NewWriterProperties(parquet.WithCompression(compress.Codecs.Zstd)),
		pqarrow.NewArrowWriterProperties(pqarrow.WithStoreSchema()))
	if err != nil {
		return fmt.Errorf("start Parquet file: %w", err)
	}
	return nil
}

func (p *arrowPages) close() error {
	if p.out == nil {
		return nil
	}
	if err := p.out.Close(); err != nil {
		return fmt.Errorf("end file: %w", err)
	}
	return nil
}

// abandon ends a Parquet file, which nobody can read without its footer. An Arrow
// stream is left without its end, as it is.
func (p *arrowPages) abandon() error {
	if !p.parquet {
		return nil
	}
	return p.close()
}
