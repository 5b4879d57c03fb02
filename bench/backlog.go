package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// backlogs are how many groups a consumer has before it when planning is measured.
var backlogs = []int{1_000, 10_000, 100_000}

// backlog measures how long a small lease of many groups takes.
func (b *bench) backlog() error {
	s, err := b.start("--group-quiet=0s")
	if err != nil {
		return err
	}
	stored := 0
	for _, n := range backlogs {
		began := time.Now()
		if err := s.storeBacklog(stored, n); err != nil {
			return err
		}
		if err := s.merged(); err != nil {
			return err
		}
		fmt.Printf("%d groups of one rollout stored and merged in %.0f s\n", n-stored, time.Since(began).Seconds())
		stored = n
		for _, body := range []string{`{"max_groups":16}`, `{"max_groups":16,"seed":7}`, `{"max_groups":16,"where":{"task_id":"task-99"}}`, `{"max_groups":16,"where":{"task_id":"none"}}`} {
			if err := s.drainBacklog(n, body); err != nil {
				return err
			}
		}
	}
	return s.stop()
}

// drainBacklog takes some leases, one after the other, and acknowledges each.
func (s *server) drainBacklog(n int, body string) error {
	var times []time.Duration
	for i := range 21 {
		took, id, err := s.small(fmt.Sprint("/v1/consumers/b", n, "/lease"), body)
		if err != nil {
			return err
		}
		if i == 0 {
			fmt.Printf("%6d groups: %-50s first %7.1f ms", n, body, ms(took))
			continue
		}
		times = append(times, took)
		if id == "" {
			continue
		}
		if err := s.post("/v1/leases/"+id+"/ack", "application/json", []byte(`{}`)); err != nil {
			return err
		}
	}
	fmt.Printf(", then median %7.1f ms, worst %7.1f ms\n", ms(median(times)), ms(times[len(times)-1]))
	return nil
}

// small leases and reads it away.
func (s *server) small(path, body string) (took time.Duration, id string, err error) {
	began := time.Now()
	resp, err := s.http.Post(s.base+path, "application/json", strings.NewReader(body))
	if err != nil {
		return 0, "", fmt.Errorf("lease: %w", err)
	}
	defer resp.Body.Close() //nolint:errcheck // it is read whole
	if _, err = io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusNoContent {
		return 0, "", fmt.Errorf("lease: %s %w", resp.Status, err)
	}
	return time.Since(began), resp.Header.Get("Icecore-Lease-Id"), nil
}

// storeBacklog stores groups until there are so many.
func (s *server) storeBacklog(from, until int) error {
	const together = 100
	var wait sync.WaitGroup
	errs := make(chan error, 16)
	for worker := range cap(errs) {
		wait.Go(func() {
			for first := from + worker*together; first < until; first += cap(errs) * together {
				if err := s.storeSingles(first, together); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wait.Wait()
	close(errs)
	return <-errs
}

// storeSingles stores n groups of one rollout with one call.
func (s *server) storeSingles(first, n int) error {
	var traces, rewards []map[string]any
	for i := first; i < first+n; i++ {
		id := fmt.Sprint("b", i)
		traces = append(traces, map[string]any{"trace_id": id, "rollout_id": id, "group_id": id, "task_id": fmt.Sprint("task-", i%100), "seq": 0, "policy_version": 1,
			"prompt_token_ids": []int{i, 1, 2}, "response_token_ids": []int{3, 4}, "response_logprobs": []float64{-1, -2}})
		rewards = append(rewards, map[string]any{"reward_id": id, "rollout_id": id, "value": i % 2})
	}
	for path, list := range map[string]any{"/v1/traces": traces, "/v1/rewards": rewards} {
		body, err := json.Marshal(list)
		if err != nil {
			return fmt.Errorf("encode: %w", err)
		}
		if err := s.post(path, "application/json", body); err != nil {
			return err
		}
	}
	for i := first; i < first+n; i++ {
		if err := s.post(fmt.Sprintf("/v1/rollouts/b%d/finish", i), "application/json", []byte(`{"status":"succeeded"}`)); err != nil {
			return err
		}
	}
	return nil
}
