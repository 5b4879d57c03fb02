package gateway

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"icecore/enginetest"
	"icecore/trace"
)

// The intent is durable before the engine is asked, and the trace before the harness
// can take the answer for a whole one. The fakes see the order themselves.
func TestOrderOfDurability(t *testing.T) {
	t.Parallel()
	for _, b := range bodies {
		for _, stream := range []bool{false, true} {
			body := b.whole
			if stream {
				body = b.stream
			}
			t.Run(b.api, func(t *testing.T) {
				t.Parallel()
				var begun, asked atomic.Int64
				reached := make(chan struct{})
				release := make(chan struct{})
				var r *rig
				s := enginetest.Script{Agent: func(*enginetest.Seen) enginetest.Turn {
					asked.Add(1)
					r.store.mu.Lock()
					begun.Store(int64(len(r.store.intents)))
					r.store.mu.Unlock()
					return enginetest.Turn{Text: "done"}
				}}
				r = newRig(t, "vllm", s, func(_ *Options, _ *fixed, m *memory) {
					m.before = func([]*trace.Trace) {
						close(reached)
						<-release
					}
				})
				answered := make(chan string, 1)
				go func() {
					_, text, _ := r.post(paths(b.api, b.path, stream), body)
					answered <- text
				}()
				<-reached
				require.Equal(t, int64(1), asked.Load())
				require.Equal(t, int64(1), begun.Load(), "the engine was asked before the intent was durable")
				select {
				case text := <-answered:
					require.Fail(t, "the answer ended before its trace was durable", text)
				default:
				}
				close(release)
				text := <-answered
				for _, ending := range []string{`"stop"`, `"completed"`, `end_turn`, `STOP`} {
					if strings.Contains(text, ending) {
						return
					}
				}
				require.Fail(t, "no ending", text)
			})
		}
	}
}

// While the trace is being stored a stream has shown no finish reason.
func TestNoFinishBeforeDurable(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	reached := make(chan struct{})
	r := newRig(t, "vllm", says("abc"), func(_ *Options, _ *fixed, m *memory) {
		m.before = func([]*trace.Trace) {
			close(reached)
			<-release
		}
	})
	for _, b := range bodies[:1] {
		a, err := r.call(t.Context(), b.path, b.stream)
		require.NoError(t, err)
		lines := bufio.NewScanner(a.Body)
		seen := ""
		for lines.Scan() {
			seen += lines.Text() + "\n"
			if strings.Contains(seen, `"c"`) {
				break
			}
		}
		<-reached
		require.NotContains(t, seen, `"finish_reason":"stop"`)
		close(release)
		for lines.Scan() {
			seen += lines.Text() + "\n"
		}
		require.NoError(t, lines.Err())
		require.Contains(t, seen, `"finish_reason":"stop"`)
		require.NoError(t, a.Body.Close())
	}
}

// The engine makes token k+1 only when the harness has seen token k: with any stage that
// waited for more, this would stand still.
func TestStreamingIsReal(t *testing.T) {
	t.Parallel()
	for _, b := range bodies {
		t.Run(b.api, func(t *testing.T) {
			t.Parallel()
			gate := &enginetest.Gate{}
			s := says("abcdefgh")
			s.Time.Gate = gate
			r := newRig(t, "vllm", s)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			a, err := r.call(ctx, paths(b.api, b.path, true), b.stream) // headers come before any token
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, a.StatusCode)
			lines := bufio.NewScanner(a.Body)
			for _, letter := range "abcdefgh" {
				gate.Step(1)
				found := false
				for !found && lines.Scan() {
					found = strings.Contains(lines.Text(), `"`+string(letter)+`"`)
				}
				require.True(t, found, "token %c did not come", letter)
			}
			require.Empty(t, r.store.all(), "the call has not ended")
			gate.Open()
			for lines.Scan() {
				continue
			}
			require.NoError(t, lines.Err())
			require.Equal(t, trace.StatusOK, r.store.wait(t, 1)[0].Status)
			require.NoError(t, a.Body.Close())
		})
	}
}
