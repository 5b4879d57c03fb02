package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	_ "github.com/duckdb/duckdb-go/v2" // the bare DuckDB that is compared with
)

// questions are asked of the server, and of DuckDB itself over a copy of the
// same file. bare is the statement there, where it differs: the functions behind
// token columns are the server's own.
var questions = []struct{ name, sql, bare string }{
	{"harness summary", `SELECT harness, count(*) AS calls, count(DISTINCT rollout_id) AS rollouts, sum(prompt_length) AS prompt, sum(response_length) AS sampled,
		quantile_cont(epoch(finished_at - started_at), 0.95) AS p95 FROM traces GROUP BY harness ORDER BY harness`, ""},
	{"rewards by harness", `SELECT harness, count(*) AS rollouts, avg(reward) AS mean, stddev_samp(reward) AS std, count(*) FILTER (reward >= 1) AS solved
		FROM rollouts GROUP BY harness ORDER BY harness`, ""},
	{"uplift", `WITH task AS (SELECT harness, task_id, avg((reward >= 1)::INTEGER) FILTER (policy_version < 5) AS before,
		avg((reward >= 1)::INTEGER) FILTER (policy_version >= 15) AS after FROM rollouts WHERE reward IS NOT NULL GROUP BY ALL)
		SELECT harness, count(*) AS tasks, 100 * avg(after - before) AS points, 100 * 1.96 * stddev_samp(after - before) / sqrt(count(*)) AS half
		FROM task WHERE before IS NOT NULL AND after IS NOT NULL GROUP BY harness ORDER BY harness`, ""},
	{"one rollout's page", `SELECT trace_id, seq, status, prompt_length, response_length, started_at, finished_at FROM traces WHERE rollout_id = 's77' ORDER BY seq`, ""},
	{"log-prob by decile", `SELECT (10 * place // n)::INTEGER AS decile, count(*) AS tokens, avg(logprob) AS mean
		FROM (SELECT response_length AS n, unnest(response_logprobs) AS logprob, generate_subscripts(response_logprobs, 1) - 1 AS place FROM traces)
		GROUP BY decile ORDER BY decile`,
		`SELECT (10 * place // n)::INTEGER AS decile, count(*) AS tokens, avg(logprob) AS mean
		FROM (SELECT t.response_length AS n, unnest(c.logprobs) AS logprob, c.start + generate_subscripts(c.logprobs, 1) - 1 AS place
			FROM ice.traces t JOIN ice.logprob_chunks c ON c.trace_key = t.trace_key)
		GROUP BY decile ORDER BY decile`},
}

// asking measures SQL and analytics over a synthetic warehouse.
func (b *bench) asking() error {
	s, err := b.start("--checkpoint-every=2s")
	if err != nil {
		return err
	}
	rollouts := b.traces / callsPerRollout
	took, err := s.fill(rollouts)
	if err != nil {
		return err
	}
	fmt.Printf("%d traces of %d rollouts stored and merged in %.0f s\n", rollouts*callsPerRollout, rollouts, took.Seconds())
	bare, done, err := b.bareCopy(s)
	if err != nil {
		return err
	}
	defer done()
	for _, q := range questions {
		alone := q.bare
		if alone == "" {
			alone = q.sql
		}
		var there, here []time.Duration
		for range 7 { // by turns: a noisy moment hits both
			d, err := s.askTimed(q.sql)
			if err != nil {
				return fmt.Errorf("%s: %w", q.name, err)
			}
			there = append(there, d)
			if d, err = timed(bare, alone); err != nil {
				return fmt.Errorf("%s, bare: %w", q.name, err)
			}
			here = append(here, d)
		}
		t, h := median(there), median(here)
		fmt.Printf("%-20s POST /v1/sql %8.1f ms, bare DuckDB %8.1f ms   ratio %.2f\n", q.name, ms(t), ms(h), t.Seconds()/h.Seconds())
	}
	for _, path := range []string{"/v1/analytics/summary?by=harness", "/v1/analytics/uplift?base=0-4&against=15-99", "/v1/rollouts/s77", "/v1/rollouts/s77/traces"} {
		var all []time.Duration
		for range 5 {
			_, _, whole, err := s.get(path)
			if err != nil {
				return err
			}
			all = append(all, whole)
		}
		fmt.Printf("%-50s %8.1f ms\n", "GET "+path, ms(median(all)))
	}
	if err := s.besideQuery(rollouts); err != nil {
		return err
	}
	return s.stop()
}

func ms(d time.Duration) float64 { return d.Seconds() * 1000 }

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// fill sends rollouts 0 to n and waits until all are merged.
func (s *server) fill(n int) (time.Duration, error) {
	started := time.Now()
	const together = 50
	var next atomic.Int64
	var wait sync.WaitGroup
	errs := make(chan error, 16)
	for range cap(errs) {
		wait.Go(func() {
			for {
				first := int(next.Add(together)) - together
				if first >= n {
					return
				}
				if err := s.sendSynthetic(first, min(first+together, n)); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wait.Wait()
	close(errs)
	if err := <-errs; err != nil {
		return 0, err
	}
	for {
		var status struct {
			Drained int64 `json:"drained_batch"`
			Newest  int64 `json:"newest_batch"`
			Waiting int   `json:"merge_waiting_rollouts"`
		}
		if err := s.into("/v1/status", &status); err != nil {
			return 0, err
		}
		if status.Drained == status.Newest && status.Waiting == 0 {
			return time.Since(started), nil
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (s *server) sendSynthetic(from, to int) error {
	var lines []byte
	rewards := []byte{'['}
	for n := from; n < to; n++ {
		traces, attributes, reward := synthetic(n)
		lines = append(lines, traces...)
		if n > from {
			rewards = append(rewards, ',')
		}
		rewards = fmt.Appendf(rewards, `{"reward_id":"w%d","rollout_id":"s%d","value":%g}`, n, n, reward)
		if err := s.put(fmt.Sprintf("/v1/rollouts/s%d", n), attributes); err != nil {
			return err
		}
	}
	if err := s.post("/v1/traces", "application/x-ndjson", lines); err != nil {
		return err
	}
	for n := from; n < to; n++ {
		if err := s.post(fmt.Sprintf("/v1/rollouts/s%d/finish", n), "application/json", []byte(`{"status":"succeeded"}`)); err != nil {
			return err
		}
	}
	return s.post("/v1/rewards", "application/json", append(rewards, ']'))
}

func (s *server) put(path, body string) error {
	req, err := http.NewRequest(http.MethodPut, s.base+path, strings.NewReader(body))
	if err != nil {
		return fmt.Errorf("put: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	return s.done(req)
}

// done sends a request and wants a 200.
func (s *server) done(req *http.Request) error {
	resp, err := s.http.Do(req)
	if err != nil {
		return fmt.Errorf("send: %w", err)
	}
	defer resp.Body.Close() //nolint:errcheck // it is read whole
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s %.300s %w", req.Method, req.URL.Path, resp.Status, text, err)
	}
	return nil
}

func (s *server) into(path string, v any) error {
	resp, err := s.http.Get(s.base + path)
	if err != nil {
		return fmt.Errorf("get: %w", err)
	}
	defer resp.Body.Close() //nolint:errcheck // it is read
	if err := json.NewDecoder(resp.Body).Decode(v); err != nil {
		return fmt.Errorf("get %s: %w", path, err)
	}
	return nil
}

func (s *server) askTimed(text string) (time.Duration, error) {
	req, err := http.NewRequest(http.MethodPost, s.base+"/v1/sql", strings.NewReader(text))
	if err != nil {
		return 0, fmt.Errorf("ask: %w", err)
	}
	req.Header.Set("Content-Type", "text/plain")
	started := time.Now()
	err = s.done(req)
	return time.Since(started), err
}

// bareCopy opens a copy of the server's warehouse, with nothing of icecore around it. The views name functions that
// only icecore has; no statement here selects their columns, so anything may
// stand in for them.
func (b *bench) bareCopy(s *server) (*sql.DB, func(), error) {
	to := filepath.Join(s.dir, "copy.duckdb")
	for _, end := range []string{"", ".wal"} { // nothing is written now
		raw, err := os.ReadFile(filepath.Join(s.dir, "data", "warehouse.duckdb"+end))
		if err == nil {
			err = os.WriteFile(to+end, raw, 0o644)
		}
		if err != nil && !os.IsNotExist(err) {
			return nil, nil, fmt.Errorf("copy warehouse: %w", err)
		}
	}
	db, err := sql.Open("duckdb", to)
	if err != nil {
		return nil, nil, fmt.Errorf("open copy: %w", err)
	}
	db.SetMaxOpenConns(1) // what is temporary belongs to a connection
	for _, f := range []string{"ice_tape_ids(a, b, c)", "ice_trace_logprobs(a, b)"} {
		if _, err := db.ExecContext(context.Background(), "CREATE TEMP MACRO "+f+" AS NULL::INTEGER[]"); err != nil {
			return nil, nil, fmt.Errorf("stand in for %s: %w", f, err)
		}
	}
	return db, func() { _ = db.Close() }, nil
}

// timed runs a statement to its last row.
func timed(db *sql.DB, text string) (time.Duration, error) {
	started := time.Now()
	rows, err := db.QueryContext(context.Background(), text)
	if err != nil {
		return 0, fmt.Errorf("query: %w", err)
	}
	defer rows.Close() //nolint:errcheck // read to its end
	for rows.Next() {
	}
	return time.Since(started), rows.Err()
}

// besideQuery compares acknowledgements with and without a heavy statement
// running, by turns.
func (s *server) besideQuery(from int) error {
	var quiet, busy []time.Duration
	for round := range 6 {
		var stop atomic.Bool
		var wait sync.WaitGroup
		if round%2 == 1 {
			wait.Go(func() {
				for !stop.Load() {
					if _, err := s.askTimed(questions[len(questions)-1].sql); err != nil {
						return
					}
				}
			})
		}
		for range 400 {
			lines, _, _ := synthetic(from)
			from++
			started := time.Now()
			if err := s.post("/v1/traces", "application/x-ndjson", lines); err != nil {
				return err
			}
			if round%2 == 1 {
				busy = append(busy, time.Since(started))
			} else {
				quiet = append(quiet, time.Since(started))
			}
		}
		stop.Store(true)
		wait.Wait()
	}
	slices.Sort(quiet)
	slices.Sort(busy)
	at := func(d []time.Duration, q float64) float64 { return ms(d[int(q*float64(len(d)-1))]) }
	fmt.Printf("acknowledgement of 20 traces: p50 %.2f, p99 %.2f ms; with a heavy statement running: p50 %.2f, p99 %.2f ms   ratio of p99 %.2f\n",
		at(quiet, .5), at(quiet, .99), at(busy, .5), at(busy, .99), at(busy, .99)/at(quiet, .99))
	return nil
}
