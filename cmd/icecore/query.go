package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

type queryCmd struct {
	SQL     string        `arg:"" optional:"" name:"sql" help:"The statement; absent: from --file, from standard input, or typed."`
	File    string        `help:"Read the statement from this file." placeholder:"FILE" env:"ICECORE_QUERY_FILE"`
	Server  string        `help:"The server." default:"http://127.0.0.1:7470" placeholder:"URL"`
	Param   []string      `help:"A value for $1, $2, … in their order, or NAME=VALUE for $NAME. A JSON scalar is taken as such, all else as text; '=VALUE' is a text that looks like NAME=VALUE." placeholder:"VALUE" sep:"none" env:"ICECORE_QUERY_PARAM"`
	Format  string        `help:"table, csv, json, ndjson, parquet or arrow (a stream)." default:"table" enum:"table,csv,json,ndjson,parquet,arrow" env:"ICECORE_QUERY_FORMAT"`
	Out     string        `help:"File to write; absent: standard output." placeholder:"FILE" env:"ICECORE_QUERY_OUT"`
	Limit   int64         `help:"Most rows; 0: 1000 for a table on a terminal, else as many as the server gives." default:"0" env:"ICECORE_QUERY_LIMIT"`
	Timeout time.Duration `help:"Time limit of a statement; 0: the server's." default:"0s" env:"ICECORE_QUERY_TIMEOUT"`

	RetryFor time.Duration `help:"How long to try again when the server is busy or away." default:"30s" env:"ICECORE_QUERY_RETRY_FOR"`
}

// Help is shown by query --help.
func (queryCmd) Help() string {
	return `One statement that reads, over the tables that \d lists:

  icecore query 'SELECT harness, count(*) FROM rollouts GROUP BY ALL'
  icecore query --param r-1 --format csv 'SELECT seq, prompt_length FROM traces WHERE rollout_id = $1'
  icecore query --file report.sql --format parquet --out report.parquet

When a file or a pipe gets only a part of the answer, and not because --limit said so, the exit status is 3.

Without a statement, at a terminal, statements are typed: \? lists what else can be typed there.`
}

// tableRows is how many rows a table shows on a terminal unless it is told
// otherwise.
const tableRows = 1000

// Run implements the command.
func (c queryCmd) Run(ctx context.Context) error {
	if c.SQL == "" && c.File == "" && isTerminal(os.Stdin) && isTerminal(os.Stdout) {
		return c.interactive(ctx)
	}
	if err := c.once(ctx); err != nil {
		return fmt.Errorf("query: %w", err)
	}
	return nil
}

// once runs one statement and ends.
func (c queryCmd) once(ctx context.Context) error {
	sql, err := c.statement()
	if err != nil {
		return err
	}
	params, err := readParams(c.Param)
	if err != nil {
		return err
	}
	if binary(c.Format) && c.toTerminal() {
		return fmt.Errorf("%s is nothing for a terminal: name a file with --out", c.Format)
	}
	cl := newQueryClient(c.Server, c.RetryFor)
	if err := cl.reachable(ctx); err != nil {
		return err
	}
	a, err := cl.ask(ctx, question{SQL: sql, Params: params, Limit: c.limit(c.toTerminal()), TimeoutMS: c.Timeout.Milliseconds()}, c.Format)
	if err != nil {
		return err
	}
	defer a.close()
	if c.Out == "" {
		return c.print(a, os.Stdout)
	}
	return c.save(a)
}

// limit is the most rows to ask for; 0: as many as the server gives. Only who
// looks at a terminal is spared rows: a file or another program wants them all.
func (c queryCmd) limit(terminal bool) int64 {
	if c.Limit == 0 && c.Format == "table" && terminal {
		return tableRows
	}
	return c.Limit
}

// toTerminal says whether the answer is shown to somebody.
func (c queryCmd) toTerminal() bool { return c.Out == "" && isTerminal(os.Stdout) }

// cut is the error of an answer that ends before --limit said so, where nobody
// looks at it.
func (c queryCmd) cut(a *queryAnswer) error {
	if !a.truncated || c.toTerminal() || c.Limit > 0 && a.rows >= c.Limit {
		return nil
	}
	return &cutError{file: c.Out, rows: a.rows}
}

// print writes an answer where somebody, or another program, reads it.
func (c queryCmd) print(a *queryAnswer, w io.Writer) error {
	if c.Format == "table" {
		r, err := a.result()
		if err != nil {
			return err
		}
		return errors.Join(screen(os.Stdout).show(w, r), c.cut(a))
	}
	if err := a.copyTo(w); err != nil {
		return err
	}
	if err := c.cut(a); err != nil {
		return err
	}
	if a.truncated {
		fmt.Fprintf(os.Stderr, "icecore: %s\n", rowsLine(a.rows, true, moreRows))
	}
	return nil
}

// save writes an answer into a file, which is there when all of it came.
func (c queryCmd) save(a *queryAnswer) (err error) {
	f, err := os.Create(c.Out)
	if err != nil {
		return fmt.Errorf("make file: %w", err)
	}
	if c.Format == "table" {
		var r *result
		if r, err = a.result(); err == nil {
			err = view{more: moreRows}.show(f, r)
		}
	} else {
		err = a.copyTo(f)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		if info, statErr := os.Stat(c.Out); statErr == nil && info.Mode().IsRegular() { // not /dev/null
			err = errors.Join(err, os.Remove(c.Out))
		}
		return err
	}
	if err := c.cut(a); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "icecore: %s in %s\n", rowsLine(a.rows, a.truncated, moreRows), c.Out)
	return nil
}

func binary(format string) bool { return format == "parquet" || format == "arrow" }

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) } //nolint:gosec // a descriptor is small
