package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// held is the model whose answer does not come: its engine waits until it is left.
const held = "held"

// idle measures what a stream costs that waits for its engine. As many are held at once
// as the limit of open files allows: a stream takes two in the server.
func (b *bench) idle() error {
	files, err := openFiles(uint64(2*b.streams + 4096))
	if err != nil {
		return err
	}
	streams := min(b.streams, (int(files)-400)/2)
	if streams < b.streams {
		fmt.Printf("the limit of %d open files allows %d streams, not %d\n", files, streams, b.streams)
	}
	engine, err := b.startEngine(scripts())
	if err != nil {
		return err
	}
	s, err := b.startGateway(engine)
	if err != nil {
		return err
	}
	chat := &sidesOf(engine, s)[1]
	var calls atomic.Int64
	next := func() int64 { return int64(streams) + calls.Add(1) }
	alone, _, err := chat.round(loads[0].model(), 1, 40, 0, next)
	if err != nil {
		return err
	}
	before, err := s.memory()
	if err != nil {
		return err
	}
	began := time.Now()
	leave, err := chat.hold(streams)
	if err != nil {
		return err
	}
	defer leave()
	opened := time.Since(began)
	after, err := s.memory()
	if err != nil {
		return err
	}
	fmt.Printf("%d streams opened in %.1f s; the server's memory %.0f → %.0f MB, %.1f KB a stream, of which %.1f KB are the request's body\n",
		streams, opened.Seconds(), float64(before)/1e6, float64(after)/1e6, float64(after-before)/1e3/float64(streams), float64(len(chat.body(held, history)))/1e3)
	const quiet = 30 * time.Second // two heartbeats
	used := s.processor()
	time.Sleep(quiet)
	used = s.processor() - used
	if open, err := s.openCalls(); err != nil || open != streams {
		return fmt.Errorf("%d of %d streams are open still: %w", open, streams, err)
	}
	after, err = s.memory()
	if err != nil {
		return err
	}
	fmt.Printf("%.0f s later all are open; %.2f of a processor for their heartbeats, %.1f KB a stream\n", quiet.Seconds(), used.Seconds()/quiet.Seconds(), float64(after-before)/1e3/float64(streams))
	beside, _, err := chat.round(loads[0].model(), 1, 40, 0, next)
	if err != nil {
		return err
	}
	first := func(t told) time.Duration { return t.first }
	a50, a99 := quantiles(alone, first)
	b50, b99 := quantiles(beside, first)
	fmt.Printf("first token of a call alone: p50 %.2f, p99 %.2f ms; beside the idle streams: p50 %.2f, p99 %.2f ms\n", ms(a50), ms(a99), ms(b50), ms(b99))
	began = time.Now()
	leave()
	for open := streams; open > 0; time.Sleep(20 * time.Millisecond) {
		if open, err = s.openCalls(); err != nil {
			return err
		}
	}
	fmt.Printf("all left at once: their traces are durable after %.1f s\n", time.Since(began).Seconds())
	if err := s.stop(); err != nil {
		return err
	}
	return engine.stopEngine()
}

// hold opens streams and reads the first token of each. leave closes them all.
func (s *side) hold(streams int) (leave func(), err error) {
	ctx, cancel := context.WithCancel(context.Background())
	var next atomic.Int64
	var wait sync.WaitGroup
	errs := make(chan error, 64)
	for range cap(errs) {
		wait.Go(func() {
			for n := next.Add(1); n <= int64(streams); n = next.Add(1) {
				if err := s.opened(ctx, n); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wait.Wait()
	close(errs)
	if err := <-errs; err != nil {
		cancel()
		return nil, err
	}
	return cancel, nil
}

// opened makes a call and comes back once its answer has begun; ctx ends it.
func (s *side) opened(ctx context.Context, n int64) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url(n), bytes.NewReader(s.body(held, history)))
	if err != nil {
		return fmt.Errorf("hold: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.http.Do(req) //nolint:bodyclose // ctx ends it
	if err != nil {
		return fmt.Errorf("hold: %w", err)
	}
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	if err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("hold: %s %.300s: %w", resp.Status, line, err)
	}
	return nil
}

func (s *server) openCalls() (int, error) {
	var status struct {
		Gateway struct {
			OpenCalls int `json:"open_calls"`
		} `json:"gateway"`
	}
	err := s.into("/v1/status", &status)
	return status.Gateway.OpenCalls, err
}
