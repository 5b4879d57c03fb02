package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"icecore/enginetest"
)

// suite is what all rollouts share.
type suite struct {
	modules string
	dir     string
	engine  *enginetest.Engine
	server  *server
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := test(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e-harness:", err)
		os.Exit(1)
	}
}

func test(ctx context.Context) (err error) {
	binary := flag.String("binary", "bin/icecore", "the icecore to test")
	modules := flag.String("modules", "e2e/harness/node_modules", "where npm put the harnesses")
	only := flag.String("only", "", "harnesses to run, by commas; default all")
	which := flag.String("variants", "", "variants to run, by commas; default all")
	parallel := flag.Int("parallel", 2, "harnesses at a time")
	keep := flag.Bool("keep", false, "keep the directory also when all is well")
	flag.Parse()
	s := &suite{}
	if s.modules, err = filepath.Abs(*modules); err != nil {
		return fmt.Errorf("find harnesses: %w", err)
	}
	bin, err := filepath.Abs(*binary)
	if err != nil {
		return fmt.Errorf("find binary: %w", err)
	}
	if s.dir, err = os.MkdirTemp("", "icecore-e2e-harness-"); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	failed, err := s.all(ctx, bin, chosen(*only), chosen(*which), *parallel)
	if err == nil && failed > 0 {
		err = fmt.Errorf("%d faults; icecore's own log ends with:\n%s", failed, tail(filepath.Join(s.dir, logName), 10))
	}
	if err != nil || *keep {
		fmt.Println("kept:", s.dir)
		return err
	}
	if err := os.RemoveAll(s.dir); err != nil {
		return fmt.Errorf("remove directory: %w", err)
	}
	return nil
}

func chosen(list string) func(string) bool {
	names := strings.Split(list, ",")
	return func(name string) bool { return list == "" || slices.Contains(names, name) }
}

// all runs everything, prints the report, and gives the number of faults that count.
func (s *suite) all(ctx context.Context, bin string, harness, which func(string) bool, parallel int) (int, error) {
	s.engine = enginetest.New(enginetest.Options{Seed: 5})
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("start engine: %w", err)
	}
	web := &http.Server{Handler: s.engine, ReadHeaderTimeout: time.Minute}
	go func() { _ = web.Serve(listener) }() // it ends when it is closed
	defer web.Close()                       //nolint:errcheck // nothing is lost

	var rollouts []*rollout
	for _, h := range harnesses {
		for _, v := range variants {
			if harness(h.name) && v.suits(h) && wanted(v, which) {
				rollouts = append(rollouts, s.plan(h, v, rollouts))
			}
		}
	}
	s.server, err = startServer(ctx, bin, s.dir, settings("http://"+listener.Addr().String(), rollouts))
	if err != nil {
		return 0, err
	}
	for _, r := range rollouts {
		r.base = s.server.base + "/gateway/" + r.id
	}
	results := s.runAll(ctx, rollouts, parallel)
	streams := s.streamAll(ctx, which)
	text, failed := report(results, streams)
	fmt.Println(text)
	if err := s.verify(ctx); err != nil {
		fmt.Println(err)
		failed++
	}
	return failed, errors.Join(ctx.Err(), s.server.stop())
}

// wanted says whether a variant was chosen, or another one builds on it.
func wanted(v *variant, which func(string) bool) bool {
	return which(v.name) || slices.ContainsFunc(variants, func(other *variant) bool {
		return which(other.name) && (other.again == v.name || other.compact && v.name == "plain")
	})
}

// plan makes a rollout that has not begun. Its script is there from the start on: the
// gateway asks the engine what it serves.
func (s *suite) plan(h *harness, v *variant, before []*rollout) *rollout {
	r := &rollout{suite: s, harness: h, variant: v, id: h.name + "." + v.name, script: fmt.Sprintf("policy-%d", len(before))}
	for _, other := range before {
		if other.harness == h && other.variant.name == v.again {
			r.script = other.script
		}
	}
	r.dir = filepath.Join(s.dir, r.id)
	r.home, r.work = filepath.Join(r.dir, "home"), filepath.Join(r.dir, "work")
	r.agent = &agent{dir: r.work, think: v.think, delegate: v.delegate, bulk: v.compact}
	r.model = r.script
	if v.vendor {
		r.model = h.vendor
	}
	s.engine.Script(r.script, v.script(r.agent))
	return r
}

// settings is the gateway's file: each rollout has a model of its own, so that the
// engine knows whose call it is, on the face that the variant wants.
func settings(engine string, rollouts []*rollout) any {
	models := map[string]any{}
	serves := map[string][]string{vllm: {}, sglext: {}}
	for api := range providers {
		models[streamModel(api)] = map[string]any{}
		serves[vllm] = append(serves[vllm], streamModel(api))
	}
	for _, r := range rollouts {
		if r.variant.again != "" {
			continue // it is there
		}
		m := map[string]any{"continuity": "off", "reasoning_parser": "think", "tool_parser": "hermes"}
		if r.variant.exact {
			m["continuity"] = "exact_text"
		}
		if r.variant.vendor {
			m["aliases"] = []string{r.harness.vendor}
		}
		models[r.script] = m
		serves[r.variant.engine()] = append(serves[r.variant.engine()], r.script)
	}
	var engines []any
	for face, kind := range map[string]string{vllm: "vllm", sglext: "sglang"} {
		if len(serves[face]) > 0 { // no names would mean all
			engines = append(engines, map[string]any{"url": engine + "/" + face, "kind": kind, "name": face, "models": serves[face]})
		}
	}
	return map[string]any{"callers": "declared", "models": models, "engines": engines}
}

// runAll runs the rollouts, those of each harness one after the other: a compaction's
// limit comes from what the plain one needed.
func (s *suite) runAll(ctx context.Context, rollouts []*rollout, parallel int) (results []*result) {
	queue := make(chan *harness, len(harnesses))
	for _, h := range harnesses {
		queue <- h
	}
	close(queue)
	byRollout := map[*rollout]*result{}
	var mu sync.Mutex
	run := func(h *harness) {
		var peak int64
		for _, r := range rollouts {
			if r.harness != h || ctx.Err() != nil {
				continue
			}
			if r.variant.compact {
				r.compactAt = peak + 4000
			}
			res := r.run(ctx)
			if r.variant.name == "plain" {
				peak = res.peak
			}
			mu.Lock()
			byRollout[r] = res
			fmt.Printf("%3d/%d %-28s %3d calls %5.1f s  %s\n", len(byRollout), len(rollouts), r.id, res.calls, res.took.Seconds(), mark(res))
			mu.Unlock()
		}
	}
	var wait sync.WaitGroup
	for range max(parallel, 1) {
		wait.Go(func() {
			for h := range queue {
				run(h)
			}
		})
	}
	wait.Wait()
	for _, r := range rollouts {
		if res := byRollout[r]; res != nil {
			results = append(results, res)
		}
	}
	for _, res := range results {
		res.checkContinuity(results)
	}
	return results
}

// verify has the witness walk over all that is stored.
func (s *suite) verify(ctx context.Context) error {
	var found struct {
		Traces   int64 `json:"traces"`
		Findings []any `json:"findings"`
	}
	if err := s.server.call(ctx, "POST", "/v1/verify", nil, &found); err != nil {
		return err
	}
	if len(found.Findings) > 0 {
		return fmt.Errorf("verify: %d findings, the first: %v", len(found.Findings), found.Findings[0])
	}
	fmt.Printf("verify: %d traces, everything agrees\n", found.Traces)
	return nil
}
