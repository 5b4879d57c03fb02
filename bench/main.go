// Command bench measures icecore against what bounds it: decoding against the
// JSON scanner, durable writes against the disk, delivery against a file. Each
// pair is measured in one run, because only ratios survive a noisy machine.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
)

func main() {
	bin := flag.String("bin", "bin/icecore", "the server's binary")
	captures := flag.String("captures", "testdata/captures", "captured rollouts")
	only := flag.String("only", "", "run only the parts whose names contain this")
	rounds := flag.Int("rounds", 6, "copies of the captures that are sent")
	traces := flag.Int("traces", 1_000_000, "traces of the synthetic warehouse that is asked")
	interpreter := flag.String("python", ".venv/bin/python", "a Python with what clients/python needs")
	profile := flag.Bool("profile", false, "write a processor profile of the gateway with many streams to gateway.pprof, and measure nothing")
	streams := flag.Int("streams", 10_000, "idle streams that the gateway holds open")
	flag.Parse()
	b := &bench{bin: *bin, rounds: *rounds, traces: *traces, interpreter: *interpreter, profile: *profile, streams: *streams}
	if err := b.run(*captures, *only); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// bench is one run over one set of captures.
type bench struct {
	bin    string
	rounds int
	traces int
	// interpreter runs the client's benchmark.
	interpreter string
	profile     bool
	streams     int
	lines       [][]byte
}

func (b *bench) run(captures, only string) error {
	var err error
	if b.lines, err = readCaptures(captures); err != nil {
		return err
	}
	size := 0
	for _, l := range b.lines {
		size += len(l)
	}
	fmt.Printf("icecore bench: %d processors, %s, %d captured traces of %.1f MB JSON\n",
		runtime.NumCPU(), runtime.Version(), len(b.lines), float64(size)/1e6)
	for _, part := range []struct {
		name string
		run  func() error
	}{
		{"decode and ingest as NDJSON", b.ingestJSON},
		{"ingest as Arrow", b.ingestArrow},
		{"acknowledgement", b.acknowledge},
		{"bytes on disk", b.disk},
		{"growth", b.growth},
		{"linking", b.linking},
		{"delivery", b.delivery},
		{"delivery under leases", b.leases},
		{"delivery of a backlog", b.backlog},
		{"asking", b.asking},
		{"gateway", b.gateway},
		{"gateway, idle streams", b.idle},
	} {
		if !strings.Contains(part.name, only) {
			continue
		}
		fmt.Printf("\n== %s\n", part.name)
		if err := part.run(); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return nil
}
