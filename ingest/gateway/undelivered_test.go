package gateway

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"icecore/trace"
)

// watched tells the contexts of requests.
type watched struct {
	*fixed
	asked chan context.Context
}

func (w watched) Known(ctx context.Context, id string) (bool, string, bool, error) {
	w.asked <- ctx
	return w.fixed.Known(ctx, id)
}

// A harness that leaves while its trace is being stored leaves an ok that nobody has read:
// the trace is what it was, and log and metric tell. One that reads its answer is none of
// them.
func TestAnAnswerThatDoesNotArriveIsTold(t *testing.T) {
	t.Parallel()
	for _, leaves := range []bool{true, false} {
		for _, stream := range []bool{true, false} {
			ctx, leave := context.WithCancel(t.Context())
			storing, left := make(chan struct{}), make(chan struct{})
			asked := make(chan context.Context, 1)
			r := newFakeRig(t, &fakeEngine{pieces: []string{"x"}}, func(o *Options, f *fixed, m *memory) {
				m.before = func([]*trace.Trace) { close(storing); <-left }
				o.Rollouts = watched{f, asked}
			})
			body := hello + `}`
			if stream {
				body = streamed(body)
			}
			answered := make(chan error, 1)
			go func() {
				a, err := r.call(ctx, "r/v1/chat/completions", body)
				if err == nil {
					_, err = io.ReadAll(a.Body)
					_ = a.Body.Close()
				}
				answered <- err
			}()
			<-storing
			if leaves {
				leave()
				require.ErrorIs(t, <-answered, context.Canceled)
				<-(<-asked).Done() // the gateway's own side knows it too
			}
			close(left)
			if !leaves {
				require.NoError(t, <-answered)
			}
			leave()
			require.NoError(t, r.gateway.Stop(t.Context()))
			require.Equal(t, trace.StatusOK, r.store.wait(t, 1)[0].Status)
			want := 0.0
			if leaves {
				want = 1
				require.Eventually(t, func() bool { return testutil.ToFloat64(r.gateway.metrics.undelivered) > 0 }, 20*time.Second, time.Millisecond)
				require.Contains(t, r.log.String(), "answer not delivered")
			}
			require.InDelta(t, want, testutil.ToFloat64(r.gateway.metrics.undelivered), 0)
		}
	}
}
