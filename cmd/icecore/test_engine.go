package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"icecore/enginetest"
)

// Its variables have names of their own: a machine that serves may run one as well.
type testEngineCmd struct {
	Listen string        `env:"ICECORE_TEST_ENGINE_LISTEN" help:"Address to listen on; port 0 picks a free one and prints it (${default})." default:"127.0.0.1:8000" placeholder:"HOST:PORT"`
	Seed   uint64        `env:"ICECORE_TEST_ENGINE_SEED" help:"The same seed, script and request give the same ids." default:"1"`
	Script string        `env:"ICECORE_TEST_ENGINE_SCRIPT" help:"JSON file with the script of the model policy; absent: a coding agent with a few shell commands." type:"existingfile" placeholder:"FILE"`
	Delay  time.Duration `env:"ICECORE_TEST_ENGINE_DELAY" help:"Pause before each chunk of an answer, as 20ms." default:"0s"`
	Ledger string        `env:"ICECORE_TEST_ENGINE_LEDGER" help:"File that receives what was asked and truly sampled, a line at a call's begin and one before its answer's end." placeholder:"FILE"`
	Key    string        `env:"ICECORE_TEST_ENGINE_KEY" help:"Bearer token that every request must carry; absent: none is needed." placeholder:"KEY"`
}

// Help is shown by test-engine --help.
func (testEngineCmd) Help() string {
	return `An inference server without a model, to try a harness and the gateway without a GPU: byte-level
tokens, a chat template, scripted answers with tool calls, ids and log-probabilities told as vLLM and
SGLang tell them. It is deterministic. What it serves, by path:

  /vllm           vLLM, with ids in streams
  /sglang-0.5.13  /sglang-30917  /sglang-sglext    three generations of SGLang
  /plain          a server that tells no ids

PUT /_scripts/{model} with a script in JSON makes another model; GET /_ledger gives what was asked and
sampled as NDJSON, DELETE /_ledger forgets it; PUT /_health/down and /_health/up; POST /_restart.
A script, as {"turns": [{"text": "hello"}], "sampling": {"drift": true}, "faults": [{"kind":
"cut_broken", "at": 5, "first": 1}]}, has the members that docs/test-engine.md lists.`
}

// Run implements the command.
func (c testEngineCmd) Run(ctx context.Context) error {
	o := enginetest.Options{Seed: c.Seed, Delay: c.Delay, Key: c.Key, LedgerMax: 10_000}
	if c.Script != "" {
		if err := readScript(c.Script, &o.Default); err != nil {
			return err
		}
	}
	if c.Ledger != "" {
		f, err := os.OpenFile(c.Ledger, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return fmt.Errorf("--ledger: %w", err)
		}
		defer f.Close() //nolint:errcheck // each line was written when it came
		o.LedgerTo = f
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("--listen: %w; --listen 127.0.0.1:0 picks a free port", err)
	}
	engine := enginetest.New(o)
	c.greet(os.Stdout, "http://"+l.Addr().String(), engine.Faces())
	server := &http.Server{Handler: engine, ReadHeaderTimeout: 10 * time.Second}
	stopped := make(chan error, 1)
	go func() { stopped <- server.Serve(l) }()
	select {
	case err := <-stopped:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	if err := server.Close(); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	if err := <-stopped; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

func (c testEngineCmd) greet(w io.Writer, base string, faces []string) {
	p := printer{w: w}
	p.f("test engine, seed %d, model %s:\n", c.Seed, enginetest.DefaultModel)
	for _, face := range faces {
		p.f("  %s/%s\n", base, face)
	}
	p.f("what it sampled: %s/_ledger\n", base)
	p.f("a gateway before it:\n  icecore serve --engine %s/%s\n", base, faces[0])
}

func readScript(path string, s *enginetest.Script) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("--script: %w", err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	d := json.NewDecoder(f)
	d.DisallowUnknownFields()
	if err := d.Decode(s); err != nil {
		return fmt.Errorf("--script %s: %w", path, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("--script %s: something follows at byte %d", path, d.InputOffset())
	}
	if err := s.Check(); err != nil {
		return fmt.Errorf("--script %s: %w", path, err)
	}
	return nil
}
