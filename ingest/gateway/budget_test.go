package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"icecore/ingest/gateway/engine"
	"icecore/ingest/gateway/settings"
	"icecore/ingest/gateway/turn"
	"icecore/trace"
)

// withHeld bounds what requests hold, and has others wait for that no longer than needed.
func withHeld(most int64) change {
	return func(o *Options, _ *fixed, _ *memory) { o.Settings.Limits.MaxHeld = most }
}

// empty says whether nothing is held.
func (b *budget) empty() bool {
	return b.inUse() == 0
}

// Many small bodies that inflate to large ones hold no more than is allowed: those for
// which there is no room are told to come again, and what was held is given back.
func TestBombsAreBounded(t *testing.T) {
	t.Parallel()
	const most, size, bombs = 64 << 20, 4 << 20, 24
	plain := []byte(`{"model":"policy","messages":[{"role":"user","content":"` + strings.Repeat("a", size) + `"}]}`)
	for _, coding := range []string{"gzip", "zstd", "deflate", "raw deflate"} {
		t.Run(coding, func(t *testing.T) {
			t.Parallel()
			// Every bomb is answered 503, or waits at the engine until all of them are one of both.
			var settled atomic.Int64
			release := make(chan struct{})
			settle := func() {
				if settled.Add(1) == bombs {
					close(release)
				}
			}
			f := &fakeEngine{pieces: []string{"x"}, do: func(context.Context, *engine.Call) error { settle(); <-release; return nil }}
			r := newFakeRig(t, f, withHeld(most))
			r.gateway.budget.wait = 20 * time.Millisecond
			bomb := string(packed(t, coding, plain))
			require.Less(t, len(bomb), size/100)
			var highest, refused, answered atomic.Int64
			watch, stop := context.WithCancel(t.Context())
			var watching, all sync.WaitGroup
			watching.Go(func() {
				for watch.Err() == nil {
					highest.Store(max(highest.Load(), r.gateway.budget.inUse()))
					runtime.Gosched()
				}
			})
			for i := range bombs {
				all.Go(func() {
					a, err := r.call(t.Context(), fmt.Sprintf("r-%d/v1/chat/completions", i), bomb)
					if err != nil {
						t.Error(err)
						return
					}
					text, _ := io.ReadAll(a.Body)
					_ = a.Body.Close()
					switch a.StatusCode {
					case http.StatusOK:
						answered.Add(1)
					case http.StatusServiceUnavailable:
						if a.Header.Get("Retry-After") == "" || !strings.Contains(string(text), "overloaded") {
							t.Errorf("%v %s", a.Header, text)
						}
						refused.Add(1)
						settle()
					default:
						t.Errorf("%d %.200s", a.StatusCode, text)
					}
				})
			}
			all.Wait()
			stop()
			watching.Wait()
			require.LessOrEqual(t, highest.Load(), int64(most))
			require.GreaterOrEqual(t, highest.Load(), waiting.of(size, 0))
			require.Positive(t, answered.Load())
			require.Equal(t, int64(bombs), answered.Load()+refused.Load())
			require.Eventually(t, r.gateway.budget.empty, 20*time.Second, time.Millisecond)
			require.Len(t, r.store.all(), int(answered.Load()), "what is refused leaves nothing behind")
		})
	}
}

// A request that all of the memory would not do for is too large, and waits for nothing.
func TestLargerThanTheBudget(t *testing.T) {
	t.Parallel()
	r := newFakeRig(t, &fakeEngine{pieces: []string{"x"}}, withHeld(1<<20))
	r.gateway.budget.wait = time.Hour
	text := `{"model":"policy","messages":[{"role":"user","content":"` + strings.Repeat("a", 1<<20) + `"}]}`
	values := `{"model":"policy","messages":[` + strings.Repeat("1,", 20_000) + `1]}`
	for name, body := range map[string]string{"declared": text, "inflated": string(packed(t, "gzip", []byte(text))), "values": values} {
		status, says, err := r.post("r/v1/chat/completions", body)
		require.NoError(t, err, name)
		require.Equal(t, http.StatusRequestEntityTooLarge, status, "%s: %s", name, says)
		require.Contains(t, says, "max_held", name)
	}
	require.True(t, r.gateway.budget.empty())
	status, _, err := r.post("r/v1/chat/completions", hello+`}`)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)
}

// One that finds no room waits for it.
func TestRoomIsWaitedFor(t *testing.T) {
	t.Parallel()
	b := newBudget(100, 0)
	b.wait = time.Hour
	one, two := b.share(), b.share()
	require.NoError(t, one.atLeast(t.Context(), 60))
	got := make(chan error, 1)
	go func() { got <- two.atLeast(t.Context(), 60) }()
	one.use()
	one.drop()
	require.Equal(t, int64(60), b.inUse(), "somebody uses it still")
	one.drop()
	require.NoError(t, <-got)
	two.drop()
	require.True(t, b.empty())
	require.Equal(t, int64(3<<30), newBudget(0, 24<<30).most)
	require.Equal(t, int64(leastHeld), newBudget(0, 1<<30).most)
	require.Equal(t, int64(leastHeld), newBudget(0, 0).most)
	require.Greater(t, int64(leastHeld), takenIn.of(settings.Default().Limits.MaxRequest, 1<<20))
}

// A request that is small goes ahead of a large one that has to wait.
func TestSmallOnesPass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(100, 0)
		b.wait = time.Hour
		one, large, small := b.share(), b.share(), b.share()
		require.NoError(t, one.atLeast(t.Context(), 60))
		got := make(chan error, 1)
		go func() { got <- large.atLeast(t.Context(), 80) }()
		synctest.Wait()
		require.NoError(t, small.atLeast(t.Context(), 40))
		one.drop()
		synctest.Wait()
		require.Empty(t, got, "there is not room enough yet")
		small.drop()
		require.NoError(t, <-got)
		large.drop()
		require.True(t, b.empty())
	})
}

// Of those that hold something and want more, one waits; the others are refused at once,
// and what they give back is its own.
func TestOneGrows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(100, 0)
		b.wait = time.Hour
		got := make(chan error, 3)
		for range 3 {
			s := b.share()
			require.NoError(t, s.atLeast(t.Context(), 30))
			go func() {
				err := s.atLeast(t.Context(), 70)
				s.drop()
				got <- err
			}()
		}
		failed := 0
		for range 3 {
			if err := <-got; err != nil {
				require.ErrorIs(t, err, errGrowing)
				failed++
			}
		}
		require.Less(t, failed, 3)
		require.True(t, b.empty())
	})
}

// A body that was only promised holds next to nothing.
func TestPromisesHoldLittle(t *testing.T) {
	t.Parallel()
	r := newFakeRig(t, &fakeEngine{pieces: []string{"x"}}, withHeld(256<<20))
	c, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	_, err = fmt.Fprintf(c, "POST /gateway/r/v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n{", 42<<20)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return r.gateway.budget.inUse() > 0 }, 20*time.Second, time.Millisecond)
	require.LessOrEqual(t, r.gateway.budget.inUse(), takenIn.of(firstRead, 0))
	status, text, err := r.post("other/v1/chat/completions", hello+`}`)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, text)
}

// However calls end, alone or many at once, nothing stays held.
func TestNothingStaysHeld(t *testing.T) {
	t.Parallel()
	f := &fakeEngine{pieces: []string{"x", "y"}}
	r := newFakeRig(t, f, withHeld(1<<20), func(o *Options, _ *fixed, _ *memory) { o.Settings.Limits.MaxRequest = 64 << 10 })
	r.gateway.budget.wait = 5 * time.Millisecond
	f.do = func(_ context.Context, c *engine.Call) error {
		switch c.Request.Messages[0].Text() {
		case "refuse":
			return &turn.Fault{Status: 400, Code: turn.CodeInvalidRequest, Message: "no"}
		case "panic":
			panic("engine")
		}
		return nil
	}
	r.gateway.providers[apiMessages] = panicking{r.gateway.providers[apiMessages], "decode"}
	r.gateway.providers[apiGenerate] = panicking{r.gateway.providers[apiGenerate], "end"}
	says := func(what string) string {
		return `{"model":"policy","messages":[{"role":"user","content":"` + what + `"}]}`
	}
	const chat = "v1/chat/completions"
	endings := map[string]func(){
		"ok":             func() { r.tolerant(chat, says("ok")) },
		"ok, compressed": func() { r.tolerant(chat, string(packed(t, "zstd", []byte(says(strings.Repeat("ok", 9999)))))) },
		"ok, streamed":   func() { r.tolerant(chat, streamed(says("ok"))) },
		"engine refuses": func() { r.tolerant(chat, says("refuse")) },
		"engine panics":  func() { r.tolerant(chat, streamed(says("panic"))) },
		"decode panics":  func() { r.tolerant("v1/messages", says("ok")) },
		"end panics":     func() { r.tolerant("v1beta/models/policy:streamGenerateContent", bodies[3].stream) },
		"malformed":      func() { r.tolerant(chat, `{"model":`) },
		"cut coding":     func() { r.tolerant(chat, string(packed(t, "gzip", []byte(says("ok")))[:20])) },
		"not a model":    func() { r.tolerant("v1/responses", `{"model":7}`) },
		"too large":      func() { r.tolerant(chat, strings.Repeat("a", 80<<10)) },
		"bomb":           func() { r.tolerant(chat, string(packed(t, "gzip", []byte(says(strings.Repeat("a", 80<<10)))))) },
		"counted":        func() { r.tolerant("v1/messages/count_tokens", says("ok")) },
		"leaves early":   func() { r.leaves(says("ok"), 10) },
		"leaves at once": func() { r.leaves(says("ok"), len(says("ok"))) },
		"leaves a bomb": func() {
			b := string(packed(t, "gzip", []byte(says(strings.Repeat("a", 60<<10)))))
			r.leaves(b, len(b)-1)
		},
		"unknown model": func() { r.tolerant(chat, strings.Replace(says("ok"), "policy", "nobody", 1)) },
	}
	names := make([]string, 0, len(endings))
	for name, end := range endings {
		names = append(names, name)
		end()
		require.Eventually(t, r.gateway.budget.empty, 20*time.Second, time.Millisecond, name)
	}
	rapid.Check(t, func(t *rapid.T) {
		var all sync.WaitGroup
		for _, name := range rapid.SliceOfN(rapid.SampledFrom(names), 1, 8).Draw(t, "endings") {
			all.Go(endings[name])
		}
		all.Wait()
		require.Eventually(t, r.gateway.budget.empty, 20*time.Second, time.Millisecond)
		require.Eventually(t, func() bool { return r.gateway.Status().OpenCalls == 0 }, 20*time.Second, time.Millisecond)
	})
}

// What is being stored is held, also when its handler has ended.
func TestHeldUntilStored(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	r := newFakeRig(t, &fakeEngine{pieces: []string{"x"}}, func(o *Options, _ *fixed, m *memory) {
		o.Settings.Limits.CaptureWait = time.Millisecond
		m.before = func([]*trace.Trace) { <-release }
	})
	status, text, err := r.post("r/v1/chat/completions", hello+`}`)
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, status, text)
	r.client.CloseIdleConnections()
	require.Never(t, r.gateway.budget.empty, 50*time.Millisecond, time.Millisecond)
	close(release)
	require.Eventually(t, r.gateway.budget.empty, 20*time.Second, time.Millisecond)
}

// tolerant makes a call that may end in any way.
func (r *rig) tolerant(path, body string) {
	a, err := r.call(context.Background(), "r/"+path, body)
	if err != nil {
		return
	}
	_, _ = io.ReadAll(a.Body)
	_ = a.Body.Close()
}

// leaves sends so many bytes of a call, and leaves.
func (r *rig) leaves(body string, after int) {
	c, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		r.t.Error(err)
		return
	}
	_, err = fmt.Fprintf(c, "POST /gateway/r/v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body[:after])
	if err = errors.Join(err, c.Close()); err != nil {
		r.t.Error(err)
	}
}

// A body is not inflated before there is room for it.
//
// It runs alone, ahead of those in parallel: it measures memory.
func TestNoRoomBeforeInflating(t *testing.T) {
	for _, coding := range []string{"gzip", "zstd", "deflate", "raw deflate"} {
		bomb := packed(t, coding, []byte(`{"model":"`+strings.Repeat("a", 24<<20)+`"}`))
		b := newBudget(maxWindow+(4<<20), 0)
		held := b.share()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := receive(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", strings.NewReader(string(bomb))), 0, 64<<20, held)
		runtime.ReadMemStats(&after)
		require.ErrorContains(t, err, "max_held", coding)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(b.most), coding)
		held.drop()
		require.True(t, b.empty())
	}
}

// What requests are said to weigh is what they take while they wait for their engine,
// whatever they are made of.
//
// It runs alone, ahead of those in parallel: it measures memory.
func TestWeightsAreTrue(t *testing.T) {
	const size = 2 << 20
	many := func(s string) string { return strings.TrimSuffix(strings.Repeat(s+",", size/(len(s)+1)), ",") }
	for name, c := range map[string]struct{ path, body string }{
		"text":     {"v1/chat/completions", `{"model":"policy","messages":[{"role":"user","content":"` + strings.Repeat("hello there, ", size/13) + `"}]}`},
		"contents": {"v1beta/models/policy:generateContent", `{"contents":[` + many(`{"parts":[{"text":"a"}]}`) + `]}`},
		"echoed":   {"v1/responses", `{"model":"policy","input":"x","instructions":"` + strings.Repeat("hello there, ", size/13) + `"}`},
	} {
		t.Run(name, func(t *testing.T) {
			asked, release := make(chan struct{}), make(chan struct{})
			away := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				_, _ = io.Copy(io.Discard, q.Body)
				if strings.HasSuffix(q.URL.Path, "completions") {
					asked <- struct{}{}
					<-release
				}
				w.WriteHeader(http.StatusNotFound)
			}))
			defer away.Close()
			r := newRig(t, "", says(""), withHeld(8<<30), func(o *Options, _ *fixed, _ *memory) {
				o.Settings.Engines = []settings.Engine{{URL: away.URL, Name: "away", Kind: "vllm", Models: []string{"policy"}}}
				o.Settings.DefaultModel = "policy"
			})
			defer close(release)
			before := footprint()
			go r.tolerant(c.path, c.body)
			<-asked
			live, held := int64(footprint())-int64(before), r.gateway.budget.inUse()
			t.Logf("a body of %d bytes with %d values holds %d and counts %d", len(c.body), values([]byte(c.body)), live, held)
			require.LessOrEqual(t, live, held+held/8)
			require.Less(t, held, 5*live, "no call is refused for memory that it does not take")
		})
	}
}
