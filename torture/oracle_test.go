package torture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"icecore/trace"
	"icecore/wire"
)

// oracle holds what a quiet server says against what it acknowledged.
type oracle struct {
	w      *world
	client *http.Client
	url    string
	// share is the percentage of what was looked at before that is looked at
	// again.
	share int
	r     *rand.Rand

	mu   sync.Mutex
	errs []error
}

// check is the whole oracle; share 100 looks at everything.
func check(t *testing.T, w *world, s *server, share int) {
	t.Helper()
	o := oracleOf(w, s)
	o.share = share
	defer o.client.CloseIdleConnections()
	o.each(o.traces)
	o.each(o.rollout)
	o.list()
	if share == 100 || o.r.IntN(8) == 0 {
		o.exports()
	}
	if len(o.errs) > 5 {
		o.errs = append(o.errs[:5], fmt.Errorf("and %d more", len(o.errs)-5))
	}
	require.NoError(t, errors.Join(o.errs...), "server said: %s", s.stderr)
}

func oracleOf(w *world, s *server) *oracle {
	w.mu.Lock()
	defer w.mu.Unlock()
	return &oracle{w: w, client: newClient(), url: s.url, share: 100, r: rand.New(rand.NewPCG(w.r.Uint64(), 2))}
}

// each runs one check over all rollouts, two at a time.
func (o *oracle) each(do func(*rollout)) {
	work := make(chan *rollout)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for ro := range work {
				do(ro)
			}
		})
	}
	for _, ro := range o.w.rollouts {
		work <- ro
	}
	close(work)
	wg.Wait()
}

func (o *oracle) fail(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.errs = append(o.errs, fmt.Errorf(format, args...))
}

func (o *oracle) skips() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.r.IntN(100) >= o.share
}

// patience is how long a server may answer 503 before that is a fault.
const patience = 20 * time.Second

// get reads an answer; only 200 and 404 are expected, and 503 for a while.
func (o *oracle) get(path string, into any) (found bool) {
	for until := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		status, body, err := o.read(path)
		switch {
		case err != nil:
			o.fail("%s: %w", path, err)
		case status == 404:
		case status == 503 && time.Now().Before(until):
			continue
		case status != 200:
			o.fail("%s: %d %s", path, status, body)
		default:
			if err := json.Unmarshal(body, into); err != nil {
				o.fail("%s: %w in %.300s", path, err, body)
				return false
			}
			return true
		}
		return false
	}
}

func (o *oracle) read(path string) (status int, body []byte, err error) {
	req, err := http.NewRequestWithContext(context.Background(), "GET", o.url+path, nil)
	if err != nil {
		return 0, nil, err
	}
	resp, err := o.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}

// traces checks every trace of a rollout, and settles what became of those
// without an answer.
func (o *oracle) traces(ro *rollout) {
	for _, it := range ro.items {
		settled := it.acked != 0 || it.gone || it.sent == 0
		if it.looked && settled && o.skips() {
			continue
		}
		var answer json.RawMessage
		found := o.get("/v1/traces/"+url.PathEscape(it.t.TraceID)+"?include=bodies", &answer)
		switch {
		case !found && it.acked != 0:
			o.fail("trace %s was acknowledged and is gone", it.t.TraceID)
		case found && it.sent == 0:
			o.fail("trace %s was never sent and is there", it.t.TraceID)
		case !found && it.sent != 0:
			it.gone = true
		case found:
			o.same(it, answer)
			if it.acked == 0 {
				o.w.mu.Lock()
				o.w.clock++
				it.acked = o.w.clock
				o.w.mu.Unlock()
			}
			it.looked = true
		}
	}
}

// same compares a stored trace with what was sent.
func (o *oracle) same(it *item, stored []byte) {
	items, err := wire.TracesJSON(stored, wire.Limits{})
	if err != nil || len(items) != 1 || items[0].Err != nil {
		o.fail("trace %s cannot be read back: %v in %.300s", it.t.TraceID, err, stored)
		return
	}
	got, want := *items[0].Value, *it.t
	if !reflect.DeepEqual(got.PromptIDs.Flat(), want.PromptIDs.Flat()) || (got.PromptIDs == nil) != (want.PromptIDs == nil) {
		o.fail("trace %s: prompt ids differ: %d stored, %d sent", it.t.TraceID, got.PromptIDs.Len(), want.PromptIDs.Len())
	}
	if want.PromptIDs != nil && !reflect.DeepEqual(got.PromptHash, hashOf(want.PromptIDs.Flat())) {
		o.fail("trace %s: prompt hash %x", it.t.TraceID, got.PromptHash)
	}
	if !reflect.DeepEqual(bitsOf(got.ResponseLogprobs), bitsOf(want.ResponseLogprobs)) {
		o.fail("trace %s: log-probs differ: %v for %v", it.t.TraceID, got.ResponseLogprobs, want.ResponseLogprobs)
	}
	for _, t := range []*trace.Trace{&got, &want} {
		t.PromptIDs, t.PromptHash, t.ResponseLogprobs = nil, nil, nil
	}
	if !reflect.DeepEqual(got, want) {
		o.fail("trace %s differs:\n got %s\nwant %s", it.t.TraceID, encode(&got), encode(&want))
	}
}

// unknownBits stands for a log-prob that is not known: no float32 has them.
const unknownBits = -1

// bitsOf gives log-probs as bits, all NaN alike.
func bitsOf(l *trace.Logprobs) []int64 {
	if l == nil {
		return nil
	}
	out := make([]int64, l.Len())
	for i := range out {
		v, known := l.At(i)
		out[i] = bits(v, known)
	}
	return out
}

func bits(v float32, known bool) int64 {
	switch {
	case !known:
		return unknownBits
	case v != v:
		return int64(math.Float32bits(float32(math.NaN())))
	}
	return int64(math.Float32bits(v))
}

// present are the traces that are there, in no order.
func (ro *rollout) present() (out []*item) {
	for _, it := range ro.items {
		if it.acked != 0 {
			out = append(out, it)
		}
	}
	return out
}

// exists says that a rollout must be there, or may be.
func (ro *rollout) exists() (must, may bool) {
	for _, it := range ro.items {
		must = must || it.acked != 0
		may = may || it.sent != 0 && !it.gone
	}
	for _, s := range ro.smalls {
		must = must || s.acked != 0
		may = may || s.sent != 0
	}
	return must, may || must
}

// list checks that the list of rollouts holds those, and no others.
func (o *oracle) list() {
	traces := map[string]int64{}
	for path := "/v1/rollouts?limit=1000"; path != ""; {
		var page struct {
			Rollouts []struct {
				RolloutID string `json:"rollout_id"`
				Traces    int64
			}
			Total      int64
			NextCursor *string `json:"next_cursor"`
		}
		if !o.get(path, &page) {
			return
		}
		for _, r := range page.Rollouts {
			if _, twice := traces[r.RolloutID]; twice {
				o.fail("rollout %s is listed twice", r.RolloutID)
			}
			traces[r.RolloutID] = r.Traces
		}
		path = ""
		if page.NextCursor != nil {
			path = "/v1/rollouts?limit=1000&cursor=" + *page.NextCursor
		}
	}
	for _, ro := range o.w.rollouts {
		n, listed := traces[ro.id]
		must, may := ro.exists()
		if listed && !may || !listed && must {
			o.fail("rollout %s: listed %v", ro.id, listed)
		}
		if want := int64(len(ro.present())); n != want {
			o.fail("rollout %s counts %d traces for %d", ro.id, n, want)
		}
		delete(traces, ro.id)
	}
	for id := range traces {
		o.fail("rollout %s was never sent", id)
	}
}
