package torture

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// home is where the server is to be found at the moment. Those who ask go on
// through its deaths.
type home struct {
	url    atomic.Pointer[string]
	client *http.Client
	mu     sync.Mutex
	errs   []error
	// dead counts requests that were not answered.
	dead atomic.Int64
}

func newHome() *home {
	h := &home{client: newClient()}
	h.moved("")
	return h
}

func (h *home) moved(url string) { h.url.Store(&url) }

func (h *home) fail(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.errs = append(h.errs, fmt.Errorf(format, args...))
}

func (h *home) faults() []error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.errs
}

// answered is a response, read as far as it came.
type answered struct {
	status int
	header http.Header
	body   []byte
	// whole: it ended as HTTP says, and with the trailer that says so.
	whole bool
	code  string
}

// once sends a request; nil: no server answered it, or it asks to come again.
func (h *home) once(ctx context.Context, q request) *answered {
	req, err := http.NewRequestWithContext(ctx, q.method, *h.url.Load()+q.path, bytes.NewReader(q.body))
	if err != nil {
		return nil // there is no server just now
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := h.client.Do(req)
	if err != nil {
		h.dead.Add(1)
		return nil
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	a := &answered{status: resp.StatusCode, header: resp.Header}
	if a.body, err = io.ReadAll(resp.Body); err != nil {
		h.dead.Add(1)
		return nil
	}
	a.whole = resp.Trailer.Get("Icecore-Complete") == "true"
	var p struct{ Code string }
	if a.status >= 400 {
		_ = json.Unmarshal(a.body, &p) // what is no problem has no code
		a.code = p.Code
	}
	if a.status == http.StatusServiceUnavailable {
		return nil
	}
	return a
}

// ask sends a request until it is answered; nil: ctx ended before.
func (h *home) ask(ctx context.Context, q request) *answered {
	for ctx.Err() == nil && len(h.faults()) == 0 {
		if a := h.once(ctx, q); a != nil {
			return a
		}
		time.Sleep(3 * time.Millisecond)
	}
	return nil
}

// until is ask for what must be taken.
func (h *home) until(ctx context.Context, q request) bool {
	a := h.ask(ctx, q)
	if a == nil {
		return false
	}
	if a.status != http.StatusOK {
		h.fail("%s %s %s was answered %d: %s", q.method, q.path, q.body, a.status, a.body)
		return false
	}
	return true
}
