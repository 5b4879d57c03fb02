package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"icecore/ingest"
	"icecore/merge"
	"icecore/trace"
	"icecore/wire"
)

// defaultData is where serve keeps everything unless it is told otherwise.
const defaultData = "./icecore-data"

// config is what a server can be told. It is shared by serve and demo.
type config struct {
	Data   string `help:"Data directory; made when absent (${default})." default:"./icecore-data" placeholder:"DIR"`
	Listen string `help:"Address to listen on; port 0 picks a free one and prints it (${default})." default:"127.0.0.1:7470" placeholder:"HOST:PORT"`
	// There are no API keys yet, so whoever reaches the port may write.
	AllowRemote bool `help:"Allow listening on an address that other machines reach. There is no authentication."`

	MergePolicies []string      `help:"Merge policies that are published unasked: strict_tree, per_request, polar_compat, polar_compat(end_of_turn=ID) (${default})." default:"strict_tree" sep:";" placeholder:"POLICY"`
	MergeQuiet    time.Duration `help:"How long a rollout must bring nothing new before it is merged unasked." default:"1s"`
	MergeWait     time.Duration `help:"How long a changed rollout waits for a moment without requests to be merged unasked." default:"10s"`

	GroupQuiet     time.Duration `help:"How long a group that declares no size must bring no new rollout before it is delivered whole." default:"60s"`
	IncompleteWait time.Duration `help:"How long a finished rollout waits for announced calls that have not come before it is delivered, or left out, without them." default:"5s"`

	MemoryLimit     string        `help:"Memory for DuckDB, as 4GiB; empty: half of what the machine or its cgroup has." placeholder:"SIZE"`
	WarehouseMemory string        `help:"Resident memory at which the warehouse's process is ended while a user's statement runs; empty: the memory limit and a quarter, at least 1GiB, more." placeholder:"SIZE"`
	Threads         int           `help:"Threads for DuckDB; 0: the processors of the machine or its cgroup." default:"0"`
	TempDir         string        `help:"Where DuckDB spills; empty: tmp in the data directory." placeholder:"DIR"`
	SpillLimit      string        `help:"Most that DuckDB spills; empty, and at most: half of what is free beyond the disk floor at its start, at least 256MiB." placeholder:"SIZE"`
	DiskFloor       string        `help:"Free space below which nothing is taken in; 0B: no floor (${default})." default:"256MiB" placeholder:"SIZE"`
	DrainEvery      time.Duration `help:"How long a stored trace may wait until SQL sees it." default:"200ms"`
	CheckpointEvery time.Duration `help:"How long drained traces may wait for a checkpoint of the warehouse." default:"30s"`
	CheckpointBytes string        `help:"Drained journal that makes the warehouse checkpoint at once (${default})." default:"128MiB" placeholder:"SIZE"`
	RebuildIndex    bool          `help:"Rebuild the trace index from warehouse and journal before serving."`

	MaxRequest  string        `help:"Largest request, inflated (${default})." default:"64MiB" placeholder:"SIZE"`
	MaxItems    int           `help:"Most items in one request." default:"10000"`
	MaxTokens   int           `help:"Most tokens in one trace." default:"1048576"`
	MaxBody     string        `help:"Largest request or response body kept with a trace (${default})." default:"16MiB" placeholder:"SIZE"`
	MaxOpen     int           `help:"Most ingest requests served at once; more are answered 429." default:"64"`
	MaxBuffered string        `help:"Most request bytes held at once over all requests (${default})." default:"512MiB" placeholder:"SIZE"`
	ReadTimeout time.Duration `help:"How long a client may send nothing, or take nothing of a result of SQL or of a lease." default:"30s"`
	sqlConfig
	gatewayConfig
	LogLevel    string        `help:"debug, info, warn or error." default:"info" enum:"debug,info,warn,error"`
	LogFormat   string        `help:"text or json." default:"text" enum:"text,json"`
	Profile     bool          `help:"Serve Go profiles at /debug/pprof/."`
	StopTimeout time.Duration `help:"How long a stop waits for requests and streams." default:"30s"`
}

type serveCmd struct{ config }

// Help is shown by serve --help.
func (serveCmd) Help() string {
	return `The server keeps everything in the data directory: a control database (SQLite) that makes
acknowledgements durable, and a warehouse (DuckDB). One process may use a directory at a time.

With --engine URL harnesses can be pointed at http://HOST:PORT/gateway/ROLLOUT_ID: the gateway calls the engine
for them, and keeps each answer as a trace.

Stop it with an interrupt: it refuses new requests, finishes those in work, drains, and closes.
A second interrupt ends it at once; nothing that was acknowledged is lost by that either.`
}

func (c serveCmd) Run(ctx context.Context) error {
	log, err := c.logger(os.Stderr)
	if err != nil {
		return err
	}
	s, err := startServer(ctx, c.config, log)
	if err != nil {
		return err
	}
	fmt.Printf("icecore listens on http://%s\n", s.addr)
	<-ctx.Done()
	log.Info("stopping: refusing new requests, draining", "data", c.Data)
	if err := s.stop(); err != nil {
		return err
	}
	log.Info("stopped", "data", c.Data)
	return nil
}

func (c *config) logger(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return nil, fmt.Errorf("--log-level: %w", err)
	}
	opts := &slog.HandlerOptions{Level: level}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	}
	return slog.New(slog.NewTextHandler(w, opts)), nil
}

func (c *config) policies() ([]merge.Policy, error) {
	var out []merge.Policy
	for _, name := range c.MergePolicies {
		p, err := merge.ParsePolicy(name)
		if err != nil {
			return nil, fmt.Errorf("--merge-policies: %w", err)
		}
		out = append(out, p)
	}
	return out, nil
}

func (c *config) ingestOptions(log *slog.Logger) (ingest.Options, error) {
	sizes, err := parseSizes(map[string]string{"--max-request": c.MaxRequest, "--max-body": c.MaxBody, "--max-buffered": c.MaxBuffered})
	if err != nil {
		return ingest.Options{}, err
	}
	if sizes["--max-buffered"] < sizes["--max-request"] {
		return ingest.Options{}, fmt.Errorf("--max-buffered %s is less than --max-request %s: a request between the two could never be taken",
			c.MaxBuffered, c.MaxRequest)
	}
	return ingest.Options{
		Limits: wire.Limits{Limits: trace.Limits{MaxTokens: c.MaxTokens, MaxBodyBytes: int(sizes["--max-body"])},
			MaxItems: c.MaxItems, MaxBytes: sizes["--max-request"]},
		MaxRequestBytes: sizes["--max-request"], MaxOpen: c.MaxOpen, MaxBufferedBytes: sizes["--max-buffered"],
		ReadTimeout: c.ReadTimeout, Log: log,
	}, nil
}
