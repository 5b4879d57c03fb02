package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// The lease that is measured: rows of about 8,000 tokens, each of a rollout whose
// calls extend each other.
const (
	leaseRows     = 1000
	leaseGroup    = 8
	leaseCalls    = 8
	leasePrompt   = 1100
	leaseSampled  = 600
	leaseTool     = 300
	leaseArrow    = "application/vnd.apache.arrow.stream"
	leaseRequest  = `{"key":"k","max_groups":1000,"max_trajectories":100000,"max_tokens":1000000000}`
	leaseConsumer = "/v1/consumers/c%d/lease"
)

// leases measures what a learner waits for, against a file of the same bytes and
// against the same rows as JSON.
func (b *bench) leases() error {
	s, err := b.start("--group-quiet=0s")
	if err != nil {
		return err
	}
	if err := s.storeLeased(); err != nil {
		return err
	}
	// Each consumer is given everything anew; what is merged stays merged.
	consumer := 0
	fresh := func(codec string) (taken, error) {
		consumer++
		return s.takeLease(fmt.Sprintf(leaseConsumer, consumer), codec)
	}
	first, err := fresh("")
	if err != nil {
		return err
	}
	file := filepath.Join(s.dir, "lease")
	if err := os.WriteFile(file, first.body, 0o600); err != nil {
		return fmt.Errorf("save lease: %w", err)
	}
	plain, stop, err := serveFile(file)
	if err != nil {
		return err
	}
	defer stop()
	fmt.Printf("first lease of all, with merging  %7.0f ms, first byte after %.0f ms\n", ms(first.whole), ms(first.first))
	var of [5][]taken // a file, a new lease, the same again, with zstd, as NDJSON
	for range 7 {
		for i, take := range []func() (taken, error){
			func() (taken, error) { return plain.takeFile("/") },
			func() (taken, error) { return fresh("") },
			func() (taken, error) { return s.takeLease(fmt.Sprintf(leaseConsumer, consumer), "") },
			func() (taken, error) { return fresh(`; codecs="zstd"`) },
			func() (taken, error) { return s.takeFile("/v1/trajectories?format=ndjson") },
		} {
			before := s.processor()
			t, err := take()
			if err != nil {
				return err
			}
			t.processor = s.processor() - before
			of[i] = append(of[i], t)
		}
	}
	file0 := middle(of[0])
	for i, name := range []string{"a file of the same bytes", "lease, planned anew", "lease, its key again", "lease, planned anew, zstd", "NDJSON export of the same rows"} {
		t := middle(of[i])
		fmt.Printf("%-32s %7.1f MB in %6.0f ms, first byte after %4.0f ms: %6.0f MB/s, %6.2f M tokens/s; processor time of the server %5.0f ms   ratio to the file %.2f\n",
			name, float64(t.size)/1e6, ms(t.whole), ms(t.first), rate(t.size, t.whole), leaseTokens/1e6/t.whole.Seconds(), ms(t.processor),
			file0.whole.Seconds()/t.whole.Seconds())
	}
	if err := s.stop(); err != nil {
		return err
	}
	return b.python()
}

const leaseTokens = float64(leaseRows * (leasePrompt + leaseCalls*leaseSampled + (leaseCalls-1)*leaseTool))

// taken is an answer that was read: the times to its first byte and to its last.
type taken struct {
	first, whole time.Duration
	size         int
	// processor is what the server and its warehouse used meanwhile.
	processor time.Duration
	// body is kept of leases without a codec only.
	body []byte
}

// middle is the one of median time.
func middle(list []taken) taken {
	var times []time.Duration
	for _, t := range list {
		times = append(times, t.whole)
	}
	m := median(times)
	for _, t := range list {
		if t.whole == m {
			return t
		}
	}
	panic("the median is one of them")
}

// takeFile reads an answer away.
func (s *server) takeFile(path string) (taken, error) {
	n, first, whole, err := s.get(path)
	return taken{first: first, whole: whole, size: int(n)}, err
}

// takeLease reads a lease away, and keeps the bytes of the first.
func (s *server) takeLease(path, codec string) (t taken, err error) {
	req, err := http.NewRequest(http.MethodPost, s.base+path, bytes.NewReader([]byte(leaseRequest)))
	if err != nil {
		return t, fmt.Errorf("lease: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", leaseArrow+codec)
	began := time.Now()
	resp, err := s.http.Do(req)
	if err != nil {
		return t, fmt.Errorf("lease: %w", err)
	}
	defer resp.Body.Close() //nolint:errcheck // it is read whole
	t.first = time.Since(began)
	var kept bytes.Buffer
	to := io.Writer(struct{ io.Writer }{io.Discard})
	if !s.kept {
		to = &kept
	}
	n, err := io.CopyBuffer(to, resp.Body, make([]byte, 1<<20))
	t.whole, t.size, t.body = time.Since(began), int(n), kept.Bytes()
	if err != nil || resp.StatusCode != http.StatusOK || resp.Header.Get("Icecore-Rows") != fmt.Sprint(leaseRows) {
		return t, fmt.Errorf("lease: %s, %s rows %w", resp.Status, resp.Header.Get("Icecore-Rows"), err)
	}
	s.kept = true
	return t, nil
}

// storeLeased stores the groups, ready to be leased.
func (s *server) storeLeased() error {
	for first := 0; first < leaseRows; first += leaseGroup {
		var lines []byte
		rewards := []byte{'['}
		system := rand.New(rand.NewPCG(uint64(first), 11)) // a group has one prompt
		prompt := drawIDs(system, leasePrompt)
		for n := first; n < first+leaseGroup; n++ {
			lines = appendRollout(lines, n, first, prompt)
			if n > first {
				rewards = append(rewards, ',')
			}
			rewards = fmt.Appendf(rewards, `{"reward_id":"w%d","rollout_id":"l%d","value":%d}`, n, n, n%2)
		}
		if err := s.post("/v1/traces", "application/x-ndjson", lines); err != nil {
			return err
		}
		if err := s.post("/v1/rewards", "application/json", append(rewards, ']')); err != nil {
			return err
		}
		for n := first; n < first+leaseGroup; n++ {
			if err := s.post(fmt.Sprintf("/v1/rollouts/l%d/finish", n), "application/json", []byte(`{"status":"succeeded"}`)); err != nil {
				return err
			}
		}
	}
	return nil
}

func drawIDs(r *rand.Rand, n int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = r.Uint32N(150_000)
	}
	return out
}

func appendRollout(lines []byte, n, group int, prompt []uint32) []byte {
	r := rand.New(rand.NewPCG(uint64(n), 13))
	history := append([]uint32(nil), prompt...)
	for k := range leaseCalls {
		if k > 0 {
			history = append(history, drawIDs(r, leaseTool)...)
		}
		lines = fmt.Appendf(lines, `{"trace_id":"l%d-%d","rollout_id":"l%d","group_id":"lg%d","seq":%d,"policy_version":3,"finish_reason":"stop","prompt_token_ids":[`, n, k, n, group, k)
		lines = append(appendIDs(lines, history), `],"response_token_ids":[`...)
		sampled := drawIDs(r, leaseSampled)
		lines = append(appendIDs(lines, sampled), `],"response_logprobs":[`...)
		for i := range sampled {
			if i > 0 {
				lines = append(lines, ',')
			}
			lines = fmt.Appendf(lines, "-%.4f", r.ExpFloat64()/4)
		}
		lines = append(lines, "]}\n"...)
		history = append(history, sampled...)
	}
	return lines
}

func appendIDs(out []byte, list []uint32) []byte {
	for i, id := range list {
		if i > 0 {
			out = append(out, ',')
		}
		out = fmt.Appendf(out, "%d", id)
	}
	return out
}

// python measures the client's way from bytes to arrays.
func (b *bench) python() error {
	out, err := exec.Command(b.interpreter, "clients/python/bench/torch_path.py", "--rows", fmt.Sprint(leaseRows), "--tokens", "8000").Output()
	if err != nil {
		fmt.Printf("the Python path was not measured (make venv): %v\n", err)
		return nil
	}
	var got struct {
		Bytes   int
		Seconds map[string]float64
	}
	if err := json.Unmarshal(out, &got); err != nil {
		return fmt.Errorf("read %s: %w", out, err)
	}
	for _, way := range []struct{ name, what string }{
		{"touch", "pyarrow.ipc.open_stream, every byte summed"}, {"numpy", "icecore rows, numpy arrays of each"}, {"torch_view", "to_tensors, copy=False"},
		{"torch", "to_tensors"}, {"pack", "packed to 65,536 tokens"},
	} {
		took, ok := got.Seconds[way.name]
		if !ok {
			continue
		}
		fmt.Printf("Python: %-44s %6.1f ms, %7.0f MB/s   ratio to summing %.2f\n", way.what, took*1e3, float64(got.Bytes)/1e6/took, got.Seconds["touch"]/took)
	}
	fmt.Printf("Python: pyarrow.ipc.open_stream from memory, untouched: %.2f ms\n", got.Seconds["stream"]*1e3)
	return nil
}
