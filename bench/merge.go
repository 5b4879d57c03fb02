package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"icecore/merge"
	"icecore/wire"
)

// linking measures the merge by itself, against one hash pass over the ids.
func (b *bench) linking() error {
	calls := map[string][]merge.Call{}
	tokens := 0
	for _, l := range b.lines {
		items, err := wire.TracesNDJSON(l, wire.Limits{})
		if err != nil {
			return err
		}
		t := items[0].Value
		calls[t.RolloutID] = append(calls[t.RolloutID], merge.CallOf(t))
		tokens += t.PromptIDs.Len() + len(t.ResponseIDs)
	}
	best := func(do func()) float64 {
		d := time.Duration(1 << 62)
		for range 15 {
			started := time.Now()
			do()
			d = min(d, time.Since(started))
		}
		return float64(tokens) / 1e6 / d.Seconds()
	}
	var sum uint64
	hash := best(func() {
		for _, cs := range calls {
			for _, c := range cs {
				for _, ids := range [][]int32{c.Prompt.Flat(), c.Response.Flat()} {
					h := uint64(14695981039346656037)
					for _, id := range ids {
						h = (h ^ uint64(uint32(id))) * 1099511628211
					}
					sum += h
				}
			}
		}
	})
	link := best(func() {
		for _, cs := range calls {
			merge.Run(cs, merge.Policy{Name: merge.StrictTree})
		}
	})
	written := 0
	output := best(func() {
		written = 0
		for _, cs := range calls {
			t := merge.NewTree()
			for _, c := range cs {
				t.Add(c)
			}
			r := t.Run(merge.Policy{Name: merge.StrictTree})
			for i := range r.Trajectories {
				written += len(t.Tokens(r, i).Flat())
			}
		}
	})
	fmt.Printf("%.1f M tokens of %d rollouts (check %x)\n", float64(tokens)/1e6, len(calls), sum&0xff)
	fmt.Printf("64-bit multiply hash over the ids  %7.0f Mtok/s\n", hash)
	fmt.Printf("strict_tree, linked                %7.0f Mtok/s   ratio to hash %.1f\n", link, link/hash)
	fmt.Printf("strict_tree, with %.1f M ids out    %7.0f Mtok/s\n", float64(written)/1e6, output)
	return nil
}

// delivery measures an Arrow export against the same bytes from a file.
func (b *bench) delivery() error {
	s, err := b.start()
	if err != nil {
		return err
	}
	for i := range b.rounds {
		if _, err := s.send("/v1/traces?ack=queryable", "application/x-ndjson", requests(b.fresh(i)), 4, nil); err != nil {
			return err
		}
	}
	const path = "/v1/trajectories?format=arrow"
	_, _, cold, err := s.get(path) // merges
	if err != nil {
		return err
	}
	file := filepath.Join(s.dir, "same")
	if err := s.save(path, file); err != nil {
		return err
	}
	plain, stopPlain, err := serveFile(file)
	if err != nil {
		return err
	}
	defer stopPlain()
	best := func(from *server, path string) (n int64, first, whole time.Duration, err error) {
		whole = 1 << 62
		for range 5 {
			size, f, w, err := from.get(path)
			if err != nil {
				return 0, 0, 0, err
			}
			if w < whole {
				n, first, whole = size, f, w
			}
		}
		return n, first, whole, nil
	}
	n, _, fileTook, err := best(plain, "/")
	if err != nil {
		return err
	}
	m, first, took, err := best(s, path)
	if err != nil {
		return err
	}
	fmt.Printf("a file of the same bytes           %7.0f MB/s (%.1f MB)\n", rate(int(n), fileTook), float64(n)/1e6)
	fmt.Printf("GET /v1/trajectories, Arrow        %7.0f MB/s   ratio %.2f, first byte after %.0f ms (first time, with merging: %.0f ms in all)\n",
		rate(int(m), took), fileTook.Seconds()/took.Seconds(), first.Seconds()*1000, cold.Seconds()*1000)
	return s.stop()
}

func (s *server) save(path, file string) error {
	resp, err := s.http.Get(s.base + path)
	if err != nil {
		return fmt.Errorf("get: %w", err)
	}
	defer resp.Body.Close() //nolint:errcheck // it is read whole
	var buf bytes.Buffer
	if _, err := io.Copy(&buf, resp.Body); err != nil {
		return fmt.Errorf("get: %w", err)
	}
	if err := os.WriteFile(file, buf.Bytes(), 0o600); err != nil {
		return fmt.Errorf("save: %w", err)
	}
	return nil
}

// serveFile serves one file as a static server would.
func serveFile(file string) (*server, func(), error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, fmt.Errorf("serve file: %w", err)
	}
	h := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, file) }),
		ReadHeaderTimeout: time.Minute}
	go h.Serve(l) //nolint:errcheck // it ends with the close below
	return &server{base: "http://" + l.Addr().String(), http: &http.Client{}}, func() { _ = h.Close() }, nil
}
