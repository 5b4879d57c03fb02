package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"icecore/store"
	"icecore/verify"
)

type verifyCmd struct {
	Data     string        `help:"Check a data directory that no server uses." placeholder:"DIR"`
	Server   string        `help:"Check through a running server." default:"http://127.0.0.1:7470" placeholder:"URL"`
	JSON     bool          `help:"Print the report as JSON."`
	RetryFor time.Duration `help:"How long to wait for a server that is busy or away." default:"30s"`
}

// Help is shown by verify --help.
func (verifyCmd) Help() string {
	return `An independent witness: it shares no code with what stores and merges. It walks everything that is stored,
rebuilds every prompt and checks its hash, follows every log-probability and span, recomputes merges from the tokens,
counts that no sampled token is lost or trained twice, and compares journal, index and warehouse.

Without --data it asks a running server, which goes on serving. With --data it opens the directory itself, under its
lock, and changes nothing.

The exit status is 0 when all holds and 1 when anything does not.`
}

// Run implements the command.
func (c verifyCmd) Run(ctx context.Context) error {
	var report *verify.Report
	var err error
	if c.Data != "" {
		report, err = verifyOffline(ctx, c.Data)
	} else {
		report = &verify.Report{}
		cl := newClient(c.Server, c.RetryFor)
		if err = cl.reachable(ctx); err == nil {
			err = cl.call(ctx, "POST", "/v1/verify", nil, report)
		} else if errors.Is(err, errNobodyListens) {
			err = fmt.Errorf("%w; --data DIR checks a directory that no server uses", err)
		}
	}
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	if c.JSON {
		if err := json.NewEncoder(os.Stdout).Encode(report); err != nil {
			return fmt.Errorf("verify: %w", err)
		}
	} else if err := report.Text(os.Stdout); err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	if !report.OK() {
		return errors.New("verify: what is stored is not as it should be; see the findings above")
	}
	return nil
}

func verifyOffline(ctx context.Context, dir string) (*verify.Report, error) {
	control, warehouse, drained, closeAll, err := store.Offline(ctx, dir, "icecore verify")
	switch {
	case errors.Is(err, store.ErrLocked):
		return nil, fmt.Errorf("%w; a server that runs is checked without --data, by --server URL", err)
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w; name the directory of icecore serve, which is %s unless --data said otherwise", err, defaultData)
	case err != nil:
		return nil, err
	}
	report, err := verify.Run(ctx, verify.Source{Control: control, Warehouse: warehouse, ThroughBatch: drained}, verify.Options{})
	return report, errors.Join(err, closeAll())
}
