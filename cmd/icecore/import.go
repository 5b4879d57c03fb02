package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"
)

type importCmd struct {
	Paths    []string      `arg:"" optional:"" help:"Files or directories; - is standard input." placeholder:"PATH"`
	Server   string        `help:"The server." default:"http://127.0.0.1:7470" placeholder:"URL"`
	Format   string        `help:"Format of standard input: ndjson, json, arrow or parquet." default:"ndjson" enum:"ndjson,json,arrow,parquet" env:"ICECORE_IMPORT_FORMAT"`
	Parallel int           `help:"Requests under way at once." default:"4"`
	RetryFor time.Duration `help:"How long to try again when the server is busy or away." default:"5m"`
	Quiet    bool          `help:"No progress." short:"q"`
}

// Help is shown by import --help.
func (importCmd) Help() string {
	return `Reads NDJSON (.ndjson, .jsonl), JSON (.json: an object, an array, or {"traces": [...]}), Arrow (.arrow, .arrows,
.ipc, .feather; stream or file) and Parquet (.parquet); each may be compressed (.gz, .zst). Directories are read
whole, in the order of names.

Lines of NDJSON are bodies of POST /v1/traces, or objects with "rollout", "finish" and "reward", whose contents go to
PUT /v1/rollouts/{id}, POST /v1/rollouts/{id}/finish and POST /v1/rewards after all traces are in.

What the server has already, it answers as a duplicate: importing again stores nothing twice, so an import that was
interrupted is simply started again. The exit status is 1 when anything was refused.`
}

// Run implements the command.
func (c importCmd) Run(ctx context.Context) error {
	if len(c.Paths) == 0 {
		return errors.New("import: name a file or directory, or - for standard input")
	}
	var progress io.Writer = os.Stderr
	if c.Quiet {
		progress = io.Discard
	}
	sum, err := runImport(ctx, c, progress)
	if sum != nil {
		sum.print(os.Stdout)
	}
	if err == nil && sum.refused > 0 {
		err = fmt.Errorf("import: %d items were refused", sum.refused)
	}
	return err
}

// batch is a request in the making, and where its items came from.
type batch struct {
	contentType string
	body        []byte
	items       []string // "file:line" or "file:row"
	// split gives the two halves of a batch that is too large; nil when it
	// holds one item.
	split func() (*batch, *batch)
}

// control is a line that is not a trace.
type control struct {
	where   string
	Rollout json.RawMessage `json:"rollout"`
	Finish  json.RawMessage `json:"finish"`
	Reward  json.RawMessage `json:"reward"`
}

// importer sends batches and keeps what is to be sent after them.
type importer struct {
	c        *client
	sum      *importSum
	batches  chan *batch
	controls []control
}

func runImport(ctx context.Context, c importCmd, progress io.Writer) (*importSum, error) {
	inputs, err := findInputs(c.Paths, c.Format)
	if err != nil {
		return nil, err
	}
	if err := newClient(c.Server, c.RetryFor).reachable(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	im := &importer{c: newClient(c.Server, c.RetryFor), sum: newImportSum(inputs, progress), batches: make(chan *batch)}
	defer im.sum.stop()
	var workers sync.WaitGroup
	for range max(c.Parallel, 1) {
		workers.Go(func() {
			for b := range im.batches {
				if err := im.post(ctx, b); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	err = im.readAll(ctx, inputs)
	close(im.batches)
	workers.Wait()
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if err == nil {
		err = im.sendControls(ctx)
	}
	return im.sum, err
}

func (im *importer) readAll(ctx context.Context, inputs []input) error {
	for _, in := range inputs {
		err := in.read(func(b *batch) error {
			select {
			case im.batches <- b:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}, func(l control) { im.controls = append(im.controls, l) }, im.sum.read)
		if in.found && errors.Is(err, errNoTraces) {
			im.sum.skip(in.name)
			continue
		}
		if err != nil {
			return fmt.Errorf("import %s: %w", in.name, err)
		}
	}
	return nil
}

// post sends a batch, in halves when the server finds it too large.
func (im *importer) post(ctx context.Context, b *batch) error {
	a, err := im.c.postItems(ctx, "/v1/traces", b.contentType, b.body)
	if r := asRefusal(err); r != nil && r.Status == http.StatusRequestEntityTooLarge {
		if left, right := b.halves(); left != nil {
			return errors.Join(im.post(ctx, left), im.post(ctx, right))
		}
	}
	switch r := asRefusal(err); {
	case r != nil:
		im.sum.refuse(b.items[0], "", r.Code, r.Detail, len(b.items))
	case err != nil:
		return err
	default:
		im.sum.answered(a, b.items)
	}
	return nil
}

func (b *batch) halves() (*batch, *batch) {
	if b.split == nil || len(b.items) < 2 {
		return nil, nil
	}
	return b.split()
}

// sendControls sends attributes, finishes and rewards, now that all traces are
// in: a trace after its rollout's finish would count as reopening it.
func (im *importer) sendControls(ctx context.Context) error {
	for _, l := range im.controls {
		var id struct {
			RolloutID string `json:"rollout_id"`
		}
		if l.Rollout != nil {
			var patch map[string]json.RawMessage
			if err := errors.Join(json.Unmarshal(l.Rollout, &patch), json.Unmarshal(l.Rollout, &id)); err != nil {
				im.sum.refuse(l.where, "", "invalid_json", err.Error(), 1)
				continue
			}
			delete(patch, "rollout_id")
			if err := im.control(ctx, l.where, http.MethodPut, "/v1/rollouts/"+url.PathEscape(id.RolloutID), patch); err != nil {
				return err
			}
		}
		if l.Finish != nil {
			if err := im.control(ctx, l.where, http.MethodPost, "/v1/rollouts/"+url.PathEscape(id.RolloutID)+"/finish", l.Finish); err != nil {
				return err
			}
		}
		if l.Reward != nil {
			if err := im.control(ctx, l.where, http.MethodPost, "/v1/rewards", l.Reward); err != nil {
				return err
			}
		}
	}
	return nil
}

func (im *importer) control(ctx context.Context, where, method, path string, v any) error {
	var a itemsAnswer
	err := im.c.call(ctx, method, path, v, &a)
	switch r := asRefusal(err); {
	case r != nil:
		im.sum.refuse(where, "", r.Code, r.Detail, 1)
		return nil //nolint:nilerr // the refusal is counted
	case err != nil:
		return err
	}
	for _, item := range a.Items {
		if item.Status == "refused" {
			im.sum.refuse(where, item.ID, item.Code, item.Message, 1)
			return nil
		}
	}
	im.sum.controlled()
	return nil
}
