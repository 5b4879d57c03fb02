package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"time"
)

// load is one number of streams at once. An engine gives each a token every pace, the
// slower the more there are; full has it sample as fast as it can instead.
type load struct {
	streams, rounds, calls int
	pace                   time.Duration
}

var loads = []load{
	{1, 4, 25, 5 * time.Millisecond},
	{64, 4, 4, 20 * time.Millisecond},
	{512, 3, 3, 40 * time.Millisecond},
}

const (
	answerTokens = 64
	atFullSpeed  = "fast"
)

func (l load) model() string { return fmt.Sprintf("paced-%d", l.pace.Milliseconds()) }

func scripts() map[string]any {
	answer := []any{map[string]any{"text": "I look.", "length": answerTokens}}
	out := map[string]any{
		atFullSpeed: map[string]any{"turns": answer},
		held:        map[string]any{"turns": []any{map[string]any{"text": "I"}}, "time": map[string]any{"never_ends": true}},
	}
	for _, l := range loads {
		out[l.model()] = map[string]any{"turns": answer, "time": map[string]any{"token_ms": l.pace.Milliseconds()}}
	}
	return out
}

// gateway measures what the gateway adds to the calls that it captures: the real binary
// before a test engine in another process, against that engine called directly, by turns.
func (b *bench) gateway() error {
	engine, err := b.startEngine(scripts())
	if err != nil {
		return err
	}
	s, err := b.startGateway(engine)
	if err != nil {
		return err
	}
	sides := sidesOf(engine, s)
	var calls atomic.Int64
	next := func() int64 { return calls.Add(1) }
	for i := range sides { // connections, the engine's dialect, caches
		if _, _, err := sides[i].round(atFullSpeed, 8, 4, 0, next); err != nil {
			return err
		}
	}
	if b.profile {
		return errors.Join(s.profiled(&sides[1], loads[len(loads)-1], next), s.stop(), engine.stopEngine())
	}
	for _, l := range loads {
		if err := measure(sides, l, engine, s, next); err != nil {
			return err
		}
	}
	if err := fullSpeed(sides, engine, s, next); err != nil {
		return err
	}
	if err := s.stop(); err != nil {
		return err
	}
	return engine.stopEngine()
}

// measure compares the sides at one load.
func measure(sides []side, l load, engine, gateway *server, next func() int64) error {
	seen := make([][]told, len(sides))
	took, announced := make([]time.Duration, len(sides)), make([]float64, len(sides))
	floor, err := syncTime(engine.dir)
	if err != nil {
		return err
	}
	for range l.rounds {
		for i := range sides {
			before, err := gateway.metric("icecore_gateway_begin_seconds_sum")
			if err != nil {
				return err
			}
			all, d, err := sides[i].round(l.model(), l.streams, l.calls, answerTokens*l.pace, next)
			if err != nil {
				return err
			}
			after, err := gateway.metric("icecore_gateway_begin_seconds_sum")
			if err != nil {
				return err
			}
			announced[i] += after - before
			seen[i] = append(seen[i], all...)
			took[i] += d
			if err := engine.tell(http.MethodDelete, "/_ledger", ""); err != nil {
				return err
			}
		}
	}
	fmt.Printf("%d stream(s) at once, a token every %s, %d calls each; write + fsync of 4 KB just before: p50 %.2f, p99 %.2f ms\n", l.streams, l.pace, len(seen[0]), ms(floor[len(floor)/2]), ms(floor[len(floor)*99/100]))
	for i := range sides {
		fmt.Printf("  %-9s", sides[i].name)
		for _, of := range []struct {
			name string
			at   func(told) time.Duration
		}{{"first token", func(t told) time.Duration { return t.first }}, {"token", func(t told) time.Duration { return t.gap }}, {"call", func(t told) time.Duration { return t.whole }}} {
			p50, p99 := quantiles(seen[i], of.at)
			fmt.Printf("  %s p50 %8.3f p99 %8.3f ms", of.name, ms(p50), ms(p99))
			if i > 0 {
				q50, q99 := quantiles(seen[0], of.at)
				fmt.Printf(" (%+.3f, %+.3f; ratio %.3f, %.3f)", ms(p50-q50), ms(p99-q99), p50.Seconds()/q50.Seconds(), p99.Seconds()/q99.Seconds())
			}
		}
		rate := tokensPerSecond(seen[i], took[i])
		fmt.Printf("  %.0f tokens/s", rate)
		if i > 0 {
			fmt.Printf(" (ratio %.3f); the intent's commit took %.2f ms on average", rate/tokensPerSecond(seen[0], took[0]), 1e3*announced[i]/float64(len(seen[i])))
		}
		fmt.Println()
	}
	return nil
}

// syncTime is what the disk takes for one small commit: nothing that is durable before
// the first token can be faster.
func syncTime(dir string) ([]time.Duration, error) {
	var all []time.Duration
	for range 200 {
		took, err := writeSynced(dir, [][]byte{make([]byte, 4096)})
		if err != nil {
			return nil, err
		}
		all = append(all, took)
	}
	slices.Sort(all)
	return all, nil
}

func quantiles(all []told, of func(told) time.Duration) (p50, p99 time.Duration) {
	d := make([]time.Duration, len(all))
	for i := range all {
		d[i] = of(all[i])
	}
	slices.Sort(d)
	return d[len(d)/2], d[int(.99*float64(len(d)-1))]
}

func tokensPerSecond(all []told, took time.Duration) float64 {
	n := 0
	for i := range all {
		n += all[i].tokens
	}
	return float64(n) / took.Seconds()
}

// fullSpeed has everything busy: then engine, gateway, store and client share the
// processors, and the processor time of each is what tells.
func fullSpeed(sides []side, engine, gateway *server, next func() int64) error {
	const workers, calls = 64, 20
	seen := make([][]told, len(sides))
	took, ours, its := make([]time.Duration, len(sides)), make([]time.Duration, len(sides)), make([]time.Duration, len(sides))
	for range 3 {
		for i := range sides {
			g, e := gateway.processor(), engine.processor()
			all, d, err := sides[i].round(atFullSpeed, workers, calls, 0, next)
			if err != nil {
				return err
			}
			seen[i] = append(seen[i], all...)
			took[i] += d
			ours[i] += gateway.processor() - g
			its[i] += engine.processor() - e
			if err := engine.tell(http.MethodDelete, "/_ledger", ""); err != nil {
				return err
			}
		}
	}
	fmt.Printf("%d streams at once from an engine that does not wait: everything shares the processors\n", workers)
	for i := range sides {
		rate, n := tokensPerSecond(seen[i], took[i]), float64(len(seen[i]))
		fmt.Printf("  %-9s %7.0f tokens/s (ratio %.2f); processor time a call of %d tokens: engine %.2f ms, icecore %.2f ms\n", sides[i].name, rate,
			rate/tokensPerSecond(seen[0], took[0]), answerTokens, ms(its[i])/n, ms(ours[i])/n)
	}
	return nil
}

// profiled writes a processor profile of the server, with many streams open, to
// gateway.pprof.
func (s *server) profiled(load *side, l load, next func() int64) error {
	done := make(chan error, 1)
	go func() {
		resp, err := http.Get(s.base + "/debug/pprof/profile?seconds=8")
		if err != nil {
			done <- fmt.Errorf("profile: %w", err)
			return
		}
		defer resp.Body.Close() //nolint:errcheck // it is read whole
		f, err := os.Create("gateway.pprof")
		if err == nil {
			_, err = io.Copy(f, resp.Body)
			err = errors.Join(err, f.Close())
		}
		done <- err
	}()
	if _, _, err := load.round(l.model(), l.streams, l.calls, answerTokens*l.pace, next); err != nil {
		return err
	}
	fmt.Println("profile of the server: go tool pprof gateway.pprof")
	return <-done
}
