package torture

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// loader sends what a world holds to a server until told to stop, the server
// dies, or everything is acknowledged.
type loader struct {
	w      *world
	client *http.Client
	url    string
	// lenient lets a server answer 5xx: faults are being injected.
	lenient bool
	// acks counts answers that acknowledged something.
	acks atomic.Int64
	mu   sync.Mutex
	errs []error
	// busy503 counts answers that asked to send again.
	again map[string]int
}

func newLoader(w *world, url string) *loader {
	return &loader{w: w, client: newClient(), url: url, again: map[string]int{}}
}

func (l *loader) fail(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errs = append(l.errs, fmt.Errorf(format, args...))
}

func (l *loader) faults() []error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.errs
}

// answers is the body of an ingest answer.
type answers struct {
	Items []struct {
		Index   int
		ID      string
		Status  string
		Code    string
		Message string
	}
	Ack string
}

// run sends from several goroutines.
func (l *loader) run(ctx context.Context, workers int) {
	defer l.client.CloseIdleConnections()
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for ctx.Err() == nil && len(l.faults()) == 0 {
				more, alive := l.once(ctx)
				if !more || !alive {
					return
				}
			}
		})
	}
	wg.Wait()
}

// once sends one request.
func (l *loader) once(ctx context.Context) (more, alive bool) {
	l.w.mu.Lock()
	r := rand.New(rand.NewPCG(l.w.r.Uint64(), 1))
	l.w.mu.Unlock()
	if r.IntN(3) == 0 {
		if s := l.w.takeSmall(); s != nil {
			return true, l.sendSmall(ctx, s)
		}
	}
	if b := l.w.take(1 + r.IntN(1+r.IntN(12))); b != nil {
		return true, l.sendTraces(ctx, r, b)
	}
	if s := l.w.takeSmall(); s != nil {
		return true, l.sendSmall(ctx, s)
	}
	// Others may give back what they took.
	time.Sleep(time.Millisecond)
	return l.w.unsettled(), true
}

// post sends and gives the answer's status; 0: no answer came.
func (l *loader) do(ctx context.Context, method, path, media, encoding string, body []byte) (int, []byte) {
	req, err := http.NewRequestWithContext(ctx, method, l.url+path, bytes.NewReader(body))
	if err != nil {
		l.fail("make request: %w", err)
		return 0, nil
	}
	req.Header.Set("Content-Type", media)
	if encoding != "" {
		req.Header.Set("Content-Encoding", encoding)
	}
	resp, err := l.client.Do(req)
	if err != nil {
		return 0, nil
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, nil
	}
	return resp.StatusCode, answer
}

// retry handles the answers that acknowledge nothing.
func (l *loader) retry(status int, answer []byte) (settled, alive bool) {
	switch status {
	case 0:
		return true, false
	case 429, 503:
		var p struct{ Code string }
		_ = json.Unmarshal(answer, &p)
		l.mu.Lock()
		l.again[p.Code]++
		l.mu.Unlock()
		if !l.lenient && p.Code != "shutting_down" {
			l.fail("answered %d: %s", status, answer)
		}
		if p.Code == "shutting_down" {
			return true, false
		}
		time.Sleep(2 * time.Millisecond)
		return true, true
	}
	return false, true
}

func (l *loader) sendTraces(ctx context.Context, r *rand.Rand, batch []*item) (alive bool) {
	defer l.w.giveBack(batch)
	traces, before := l.w.encode(r, batch)
	media, body := encodeBatch(r, traces)
	encoding := ""
	if r.IntN(4) == 0 {
		var z bytes.Buffer
		g := gzip.NewWriter(&z)
		_, _ = g.Write(body)
		_ = g.Close()
		body, encoding = z.Bytes(), "gzip"
	}
	path := "/v1/traces"
	if r.IntN(10) == 0 {
		path += "?ack=queryable"
	}
	status, answer := l.do(ctx, "POST", path, media, encoding, body)
	if settled, alive := l.retry(status, answer); settled {
		return alive
	}
	var a answers
	if err := json.Unmarshal(answer, &a); err != nil || len(a.Items) != len(batch) || status != 200 {
		l.fail("%d traces as %s were answered %d: %s", len(batch), media, status, answer)
		return true
	}
	l.acks.Add(1)
	for i, it := range batch {
		got := a.Items[i]
		if got.ID != it.t.TraceID {
			l.fail("item %d is %s, answered as %s", i, it.t.TraceID, got.ID)
		}
		if fault := l.w.ack(&it.state, before[i], got.Status); fault != "" {
			l.fail("trace %s: %s (%s)", it.t.TraceID, fault, got.Message)
		}
	}
	return true
}

func (l *loader) sendSmall(ctx context.Context, s *small) (alive bool) {
	before := l.w.sending(&s.state)
	defer l.w.giveBackSmall(s)
	status, answer := l.do(ctx, s.method, s.path, "application/json", "", []byte(s.body))
	if settled, alive := l.retry(status, answer); settled {
		return alive
	}
	if status != 200 {
		l.fail("%s %s %s was answered %d: %s", s.method, s.path, s.body, status, answer)
		return true
	}
	var a struct {
		answers
		Status string
	}
	if err := json.Unmarshal(answer, &a); err != nil {
		l.fail("%s %s was answered %s", s.method, s.path, answer)
		return true
	}
	got := a.Status
	if len(a.Items) == 1 {
		got = a.Items[0].Status
	}
	if s.patch != nil || s.intent != "" {
		// Setting again is "stored" again, and the trace may have come before
		// its announcement.
		before.acked, before.sent = 0, 1
	}
	l.acks.Add(1)
	if fault := l.w.ack(&s.state, before, got); fault != "" {
		l.fail("%s %s %s: %s: %s", s.method, s.path, s.body, fault, answer)
	}
	return true
}

// ack takes an answer in. before is what was known when the request was sent.
func (w *world) ack(s *state, before state, status string) (fault string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case status != "stored" && status != "duplicate":
		return "answered " + status
	case before.acked != 0 && status != "duplicate":
		return "was acknowledged before, and is now " + status
	case before.sent == 0 && status != "stored":
		return "was never sent before, and is " + status
	}
	if s.acked == 0 {
		w.clock++
		s.acked = w.clock
	}
	return ""
}

func (w *world) sending(s *state) (before state) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before = *s
	if before.gone {
		before.sent, before.gone = 0, false
	}
	w.clock++
	if s.sent == 0 || s.gone {
		s.sent, s.gone = w.clock, false
	}
	return before
}
