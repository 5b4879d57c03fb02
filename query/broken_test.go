package query

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"icecore/merge"
	"icecore/merge/pass"
	"icecore/problem"
	"icecore/store"
	"icecore/trace"
)

var errInjected = errors.New("injected")

// breaking fails or changes what is read when the n-th load of an export asks
// for it.
type breaking struct {
	Store
	at    int64
	loads atomic.Int64
	// lie drops a call instead of failing: the rows come out other than planned.
	lie bool
}

func (b *breaking) LoadCalls(ctx context.Context, keys []int64, through int64) ([]*store.RolloutCalls, error) {
	calls, err := b.Store.LoadCalls(ctx, keys, through)
	if b.loads.Add(1) == b.at {
		if !b.lie {
			return nil, errInjected
		}
		calls[0].Calls = nil
	}
	return calls, err
}

// loadRollouts is how many rollouts an export reads at once.
const loadRollouts = 64

// serveBroken serves three loads of rollouts from a real store whose at-th load
// goes wrong.
func serveBroken(t *testing.T, at int64, lie bool) string {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	s, err := store.Open(t.Context(), store.Options{Dir: t.TempDir(), Log: log, MemoryLimit: 256 << 20, Threads: 1, DiskFloor: -1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close(context.WithoutCancel(t.Context()))) })
	var ts []*trace.Trace
	for i := range 3 * loadRollouts {
		one := &trace.Trace{TraceID: fmt.Sprintf("t%03d", i), RolloutID: fmt.Sprintf("r%03d", i), PromptIDs: trace.TokensOf([]int32{int32(i)}), ResponseIDs: []int32{1, 2}}
		require.Nil(t, one.Validate(trace.Limits{}))
		ts = append(ts, one)
	}
	_, _, err = s.PutTraces(t.Context(), ts)
	require.NoError(t, err)
	runner, err := pass.New(t.Context(), s, pass.Options{Policies: []merge.Policy{{Name: merge.StrictTree}}, Log: log})
	require.NoError(t, err)
	t.Cleanup(runner.Close)
	e := echo.New()
	e.HTTPErrorHandler = problem.Handler(log)
	New(&breaking{Store: s, at: at, lie: lie}, runner, s, log).Register(e)
	h := httptest.NewUnstartedServer(e)
	h.Config.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelDebug)
	h.Start()
	t.Cleanup(h.Close)
	return h.URL
}

// fetch reads an answer as far as it goes.
func fetch(t *testing.T, url string) (*http.Response, []byte, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close() //nolint:errcheck // read as far as it goes
	body, err := io.ReadAll(resp.Body)
	return resp, body, err
}

// An export that cannot go on says so thrice: poison that no Arrow reader takes
// for an end, a broken connection, and fewer rows than were promised.
func TestBrokenExport(t *testing.T) {
	t.Parallel()
	for _, lie := range []bool{false, true} {
		for at := int64(1); at <= 3; at++ {
			url := serveBroken(t, at, lie) + "/v1/trajectories"
			resp, body, err := fetch(t, url)
			require.ErrorIs(t, err, io.ErrUnexpectedEOF, "the connection is broken")
			require.Equal(t, http.StatusOK, resp.StatusCode)
			require.Equal(t, "192", resp.Header.Get("Icecore-Rows"))
			require.Empty(t, resp.Trailer.Get("Icecore-Complete"))
			require.True(t, bytes.HasSuffix(body, []byte{0xff, 0xff, 0xff, 0xff, 0, 0, 1, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}), "the poison came")

			// The bytes alone, as from a connection that closed well.
			rows, err := arrowRows(body)
			require.Error(t, err)
			require.Less(t, rows, 192)
		}
	}
}

func arrowRows(body []byte) (n int, err error) {
	r, err := ipc.NewReader(bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	defer r.Release()
	for r.Next() {
		n += int(r.RecordBatch().NumRows())
	}
	return n, r.Err()
}

func TestBrokenLines(t *testing.T) {
	t.Parallel()
	resp, body, err := fetch(t, serveBroken(t, 2, false)+"/v1/trajectories?format=ndjson")
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Empty(t, resp.Trailer.Get("Icecore-Complete"))
	require.True(t, bytes.HasSuffix(body, []byte(`{"broken":`)), "%s", body[max(0, len(body)-40):])
}

// The sink itself failing (a client that went away) ends the work.
func TestClientGone(t *testing.T) {
	t.Parallel()
	url := serveBroken(t, 0, false) + "/v1/trajectories"
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	cancel()
	_ = resp.Body.Close()
	_, body, err := fetch(t, url)
	require.NoError(t, err)
	rows, err := arrowRows(body)
	require.NoError(t, err)
	require.Equal(t, 192, rows)
}
