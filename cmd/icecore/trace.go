package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"
)

type traceCmd struct {
	ID       string        `arg:"" help:"The trace's id." name:"id"`
	Server   string        `help:"The server." default:"http://127.0.0.1:7470" placeholder:"URL"`
	Policy   string        `help:"Merge policy." default:"strict_tree"`
	Window   int           `help:"Tokens shown at both ends and around a difference." default:"8" env:"ICECORE_TRACE_WINDOW"`
	Format   string        `help:"table or json." default:"table" enum:"table,json" env:"ICECORE_TRACE_FORMAT"`
	RetryFor time.Duration `help:"How long to wait for a server that is busy or away." default:"30s"`
}

// Help is shown by trace --help.
func (traceCmd) Help() string {
	return `Follows one sampled response through every station: the engine's body, the trace, the tape, the merge and the
row as it is delivered. Token ids, log-probabilities, mask and context are compared token by token.

The exit status is 0 when everything agrees, 2 when something differs, and 1 when the question could not be answered.`
}

// Run implements the command.
func (c traceCmd) Run(ctx context.Context) error {
	if c.Window < 0 {
		return fmt.Errorf("trace: --window %d is less than 0", c.Window)
	}
	raw, err := c.fetch(ctx)
	if err != nil {
		return fmt.Errorf("trace: %w", err)
	}
	var b boundary
	if err := json.Unmarshal(raw, &b); err != nil {
		return fmt.Errorf("trace: read answer: %w", err)
	}
	if c.Format == "json" {
		_, err = os.Stdout.Write(raw)
	} else {
		err = b.print(os.Stdout, c.Window)
		b.hint(os.Stderr)
	}
	if err != nil {
		return fmt.Errorf("trace: %w", err)
	}
	if !b.OK {
		return errDiffers
	}
	return nil
}

func (c traceCmd) fetch(ctx context.Context) ([]byte, error) {
	q := url.Values{"policy": {c.Policy}, "window": {strconv.Itoa(c.Window)}}
	if c.Format == "table" {
		q.Set("tokens", "full")
	}
	cl := newClient(c.Server, c.RetryFor)
	if err := cl.reachable(ctx); err != nil {
		return nil, err
	}
	resp, err := cl.send(ctx, http.MethodGet, "/v1/traces/"+url.PathEscape(c.ID)+"/boundary?"+q.Encode(), "", nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	if resp.StatusCode != http.StatusOK {
		return nil, readRefusal(resp)
	}
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	return raw, nil
}
