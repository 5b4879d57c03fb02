package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"icecore/query/analytics"
)

// questions are asked of the server, over its views, and of DuckDB itself, over
// the tables of a copy of the same file, as somebody would write them who knows
// how they are made.
var questions = []struct{ name, sql, bare string }{
	{"harness summary", `SELECT harness, count(*) AS calls, count(DISTINCT rollout_id) AS rollouts, sum(prompt_length) AS prompt, sum(response_length) AS sampled,
		quantile_cont(epoch_us(finished_at) - epoch_us(started_at), 0.95) AS p95 FROM traces GROUP BY harness ORDER BY harness`,
		`SELECT r.harness, count(*), count(DISTINCT t.rollout_id), sum(t.prompt_length), sum(t.response_length),
		quantile_cont(epoch_us(t.finished_at) - epoch_us(t.started_at), 0.95) FROM ice.traces t
		LEFT JOIN (SELECT rollout_key, arg_max(harness, batch) AS harness FROM ice.rollouts GROUP BY rollout_key) r USING (rollout_key)
		GROUP BY r.harness ORDER BY r.harness`},
	{"uplift", `WITH task AS (SELECT harness, task_id, avg((reward >= 1)::INTEGER) FILTER (policy_version < 5) AS before,
		avg((reward >= 1)::INTEGER) FILTER (policy_version >= 15) AS after FROM rollouts WHERE reward IS NOT NULL GROUP BY ALL)
		SELECT harness, count(*) AS tasks, 100 * avg(after - before) AS points, 100 * 1.96 * stddev_samp(after - before) / sqrt(count(*)) AS half
		FROM task WHERE before IS NOT NULL AND after IS NOT NULL GROUP BY harness ORDER BY harness`,
		`WITH state AS (SELECT rollout_key, arg_max(harness, batch) AS harness, arg_max(task_id, batch) AS task_id, arg_max(policy_version, batch) AS version
			FROM ice.rollouts GROUP BY rollout_key),
		reward AS (SELECT rollout_key, arg_max(value, revision) AS reward FROM ice.rewards WHERE name = 'outcome' AND trace_id IS NULL GROUP BY rollout_key),
		task AS (SELECT harness, task_id, avg((reward >= 1)::INTEGER) FILTER (version < 5) AS before,
			avg((reward >= 1)::INTEGER) FILTER (version >= 15) AS after FROM state JOIN reward USING (rollout_key) GROUP BY ALL)
		SELECT harness, count(*), 100 * avg(after - before), 100 * 1.96 * stddev_samp(after - before) / sqrt(count(*))
		FROM task WHERE before IS NOT NULL AND after IS NOT NULL GROUP BY harness ORDER BY harness`},
	{"one rollout's page", `SELECT trace_id, seq, status, prompt_length, response_length, started_at, finished_at FROM traces WHERE rollout_id = 's77' ORDER BY seq`,
		`SELECT trace_id, seq, status, prompt_length, response_length, started_at, finished_at FROM ice.traces WHERE rollout_id = 's77' ORDER BY seq`},
	{"log-prob by decile, from traces", `SELECT (10 * place // n)::INTEGER AS decile, count(*) AS tokens, avg(logprob) AS mean
		FROM (SELECT response_length AS n, unnest(response_logprobs) AS logprob, generate_subscripts(response_logprobs, 1) - 1 AS place FROM traces)
		GROUP BY decile ORDER BY decile`, bareDeciles},
	{"log-prob by decile", `SELECT (10 * place // n)::INTEGER AS decile, count(*) AS tokens, avg(logprob) AS mean
		FROM (SELECT response_length AS n, unnest(logprobs) AS logprob, start + generate_subscripts(logprobs, 1) - 1 AS place FROM logprob_chunks)
		GROUP BY decile ORDER BY decile`, bareDeciles},
}

const bareDeciles = `SELECT (10 * place // n)::INTEGER AS decile, count(*) AS tokens, avg(logprob) AS mean
		FROM (SELECT t.response_length AS n, unnest(c.logprobs) AS logprob, c.start + generate_subscripts(c.logprobs, 1) - 1 AS place
			FROM ice.traces t JOIN ice.logprob_chunks c ON c.trace_key = t.trace_key)
		GROUP BY decile ORDER BY decile`

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
	bare, err := bareCopy(s)
	if err != nil {
		return err
	}
	defer bare.close()
	for _, q := range questions {
		err := compare("POST /v1/sql: "+q.name, func() error { return s.ask(q.sql) }, func() error { return bare.each(context.Background(), q.bare) })
		if err != nil {
			return err
		}
	}
	ctx := context.Background()
	err = compare("GET /v1/analytics/summary, by harness", func() error { return s.fetch("/v1/analytics/summary?by=harness") }, func() error {
		_, err := analytics.Summarise(ctx, bare, analytics.SummaryQuestion{By: []string{analytics.KeyHarness}, Policy: "strict_tree", SolvedAt: 1, Ks: []int64{1, 2, 4, 8}, Limit: 1000})
		return err
	})
	if err != nil {
		return err
	}
	err = compare("GET /v1/analytics/uplift, by harness", func() error { return s.fetch("/v1/analytics/uplift?base=0-4&against=15-99") }, func() error {
		_, err := analytics.Compare(ctx, bare, analytics.UpliftQuestion{By: []string{analytics.KeyHarness}, SolvedAt: 1, Limit: 1000,
			Base: rangeOf(0, 4), Against: rangeOf(15, 99)})
		return err
	})
	if err != nil {
		return err
	}
	for _, path := range []string{"/v1/rollouts/s77", "/v1/rollouts/s77/traces"} {
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
	if err := s.merged(); err != nil {
		return 0, err
	}
	return time.Since(started), nil
}

// merged waits until everything that is stored is drained and merged.
func (s *server) merged() error {
	for {
		var status struct {
			Drained int64 `json:"drained_batch"`
			Newest  int64 `json:"newest_batch"`
			Waiting int   `json:"merge_waiting_rollouts"`
		}
		if err := s.into("/v1/status", &status); err != nil {
			return err
		}
		if status.Drained == status.Newest && status.Waiting == 0 {
			return nil
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

// ask posts a statement and reads its answer away.
func (s *server) ask(text string) error {
	req, err := http.NewRequest(http.MethodPost, s.base+"/v1/sql", strings.NewReader(text))
	if err != nil {
		return fmt.Errorf("ask: %w", err)
	}
	req.Header.Set("Content-Type", "text/plain")
	return s.done(req)
}

func (s *server) fetch(path string) error {
	_, _, _, err := s.get(path)
	return err
}

// compare times two things by turns, so that a noisy moment hits both.
func compare(name string, ours, bare func() error) error {
	var there, here []time.Duration
	for range 7 {
		for _, side := range []struct {
			do   func() error
			took *[]time.Duration
		}{{ours, &there}, {bare, &here}} {
			started := time.Now()
			if err := side.do(); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			*side.took = append(*side.took, time.Since(started))
		}
	}
	t, h := median(there), median(here)
	fmt.Printf("%-40s %8.1f ms, bare DuckDB %8.1f ms   ratio %.2f\n", name, ms(t), ms(h), t.Seconds()/h.Seconds())
	return nil
}

// besideQuery compares acknowledgements with and without a heavy statement
// running, by turns.
func (s *server) besideQuery(from int) error {
	var quiet, busy []time.Duration
	var failed error // of the heavy statement; read when it has ended
	heavy := 0
	for round := range 6 {
		var stop atomic.Bool
		var wait sync.WaitGroup
		if round%2 == 1 {
			wait.Go(func() {
				for !stop.Load() && failed == nil {
					failed = s.ask(questions[len(questions)-1].sql)
					heavy++
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
		if failed != nil {
			return fmt.Errorf("the heavy statement: %w", failed)
		}
	}
	slices.Sort(quiet)
	slices.Sort(busy)
	at := func(d []time.Duration, q float64) float64 { return ms(d[int(q*float64(len(d)-1))]) }
	fmt.Printf("acknowledgement of 20 traces: p50 %.2f, p99 %.2f ms; with a heavy statement running (%d of them): p50 %.2f, p99 %.2f ms   ratio of p99 %.2f\n",
		at(quiet, .5), at(quiet, .99), heavy, at(busy, .5), at(busy, .99), at(busy, .99)/at(quiet, .99))
	return nil
}
