package sqlapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"icecore/store/warehouse"
)

type asked struct {
	ctx  context.Context
	sql  string
	goOn chan struct{}
}

// held is a warehouse whose statements wait until the test lets them go on.
func held() (*fake, chan *asked) {
	arrived := make(chan *asked, 100)
	return &fake{ask: func(ctx context.Context, a warehouse.Ask, each func(arrow.RecordBatch) error) (warehouse.Reply, error) {
		me := &asked{ctx: ctx, sql: a.SQL, goOn: make(chan struct{})}
		arrived <- me
		select {
		case <-me.goOn:
			return numbers(1)(ctx, a, each)
		case <-ctx.Done():
			return warehouse.Reply{}, ctx.Err()
		}
	}}, arrived
}

// TestGate: so many run, so many wait in the order in which they came, the next
// is told to come back.
func TestGate(t *testing.T) {
	t.Parallel()
	f, arrived := held()
	a := serve(t, f, Options{Running: 2, Waiting: 3})
	var all sync.WaitGroup
	defer all.Wait()
	for i := range 5 {
		all.Go(func() {
			status, body, _, err := a.post(t.Context(), "/v1/sql", fmt.Sprintf(`{"sql":"%d"}`, i))
			if err != nil || status != http.StatusOK {
				t.Errorf("%d %s %v", status, body, err)
			}
		})
		eventually(t, "statement "+strconv.Itoa(i), func() bool { return a.gate.running.Load()+a.gate.waiting.Load() == int64(i+1) })
	}
	status, body, header, err := a.post(t.Context(), "/v1/sql", `{"sql":"too many"}`)
	require.NoError(t, err)
	require.Equal(t, http.StatusTooManyRequests, status, body)
	require.Contains(t, body, "too_many_queries")
	require.NotEmpty(t, header.Get("Retry-After"))

	first, second := <-arrived, <-arrived
	require.ElementsMatch(t, []string{"0", "1"}, []string{first.sql, second.sql})
	last := first
	for i := 2; i < 5; i++ {
		require.Empty(t, arrived)
		close(last.goOn)
		last = <-arrived
		require.Equal(t, strconv.Itoa(i), last.sql)
	}
	close(second.goOn)
	close(last.goOn)
}

// TestBodyHoldsAPlace: a body that is still coming holds a place, and no more
// bodies are read than there are places.
func TestBodyHoldsAPlace(t *testing.T) {
	t.Parallel()
	a := serve(t, &fake{ask: numbers(1)}, Options{Running: 1, Waiting: -1})
	body, rest := io.Pipe()
	var all sync.WaitGroup
	defer all.Wait()
	defer rest.Close() //nolint:errcheck // a pipe's never fails
	all.Go(func() {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, a.url+"/v1/sql", body)
		if err != nil {
			t.Error(err)
			return
		}
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}).Do(req)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close() //nolint:errcheck // only the status counts
		if resp.StatusCode != http.StatusOK {
			t.Errorf("status %d", resp.StatusCode)
		}
	})
	_, err := rest.Write([]byte(`{"sql":`))
	require.NoError(t, err)
	eventually(t, "the first has its place", func() bool { return a.gate.taken.Load() == 1 })
	status, answer, _, err := a.post(t.Context(), "/v1/sql", `{"sql":"s"}`)
	require.NoError(t, err)
	require.Equal(t, http.StatusTooManyRequests, status, answer)
	_, err = rest.Write([]byte(`"s"}`))
	require.NoError(t, err)
	require.NoError(t, rest.Close())
	all.Wait()
	eventually(t, "the place is free", func() bool { return a.gate.taken.Load() == 0 })
	status, answer, _, err = a.post(t.Context(), "/v1/sql", `{"sql":`)
	require.NoError(t, err)
	require.Equal(t, http.StatusBadRequest, status, answer)
	require.Zero(t, a.gate.taken.Load(), "a body at fault gives its place back")
}

// TestLeaving: a client that leaves gives back its turn, or its place in the
// queue.
func TestLeaving(t *testing.T) {
	t.Parallel()
	f, arrived := held()
	a := serve(t, f, Options{Running: 1, Waiting: 1})
	var all sync.WaitGroup
	defer all.Wait()
	post := func() context.CancelFunc {
		ctx, cancel := context.WithCancel(t.Context())
		all.Go(func() {
			_, _, _, err := a.post(ctx, "/v1/sql", `{"sql":"s"}`)
			if !errors.Is(err, context.Canceled) {
				t.Errorf("the request ended with %v", err)
			}
		})
		return cancel
	}
	leave := post()
	running := <-arrived
	leaveQueue := post()
	eventually(t, "one waits", func() bool { return a.gate.waiting.Load() == 1 })
	leaveQueue()
	eventually(t, "none waits", func() bool { return a.gate.waiting.Load() == 0 && a.gate.taken.Load() == 1 })
	leave()
	<-running.ctx.Done()
	eventually(t, "none runs", func() bool { return a.gate.running.Load() == 0 && a.gate.taken.Load() == 0 })
	require.Empty(t, arrived)

	f.ask = numbers(1)
	status, body, _, err := a.post(t.Context(), "/v1/sql", `{"sql":"s"}`)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, body)
}

// TestTimeouts: waiting counts; but what never ran may be sent again.
func TestTimeouts(t *testing.T) {
	t.Parallel()
	f, arrived := held()
	a := serve(t, f, Options{Running: 1, Waiting: 1})
	status, body, header, err := a.post(t.Context(), "/v1/sql", `{"sql":"s","timeout_ms":20}`)
	require.NoError(t, err)
	require.Equal(t, http.StatusUnprocessableEntity, status, body)
	require.Contains(t, body, "sql_timeout")
	require.Contains(t, body, "20ms")
	require.Empty(t, header.Get("Retry-After"))
	<-arrived

	var all sync.WaitGroup
	all.Go(func() { _, _, _, _ = a.post(t.Context(), "/v1/sql", `{"sql":"s"}`) })
	running := <-arrived
	status, body, _, err = a.post(t.Context(), "/v1/sql", `{"sql":"s","timeout_ms":20}`)
	require.NoError(t, err)
	require.Equal(t, http.StatusTooManyRequests, status, body)
	close(running.goOn)
	all.Wait()
	require.Empty(t, arrived)
}

func TestFaults(t *testing.T) {
	t.Parallel()
	const sql = "SELECT 'ü',\n  nix"
	for _, c := range []struct {
		err    error
		status int
		code   string
		place  string
	}{
		{&warehouse.Fault{Code: warehouse.FaultSyntax, Message: "m", Position: 0}, 422, "sql_syntax", "0 1 1"},
		{&warehouse.Fault{Code: warehouse.FaultBinding, Message: "m", Position: 15}, 422, "sql_binding", "15 2 3"},
		{&warehouse.Fault{Code: warehouse.FaultRefused, Message: "m", Position: 10}, 422, "sql_refused", "10 1 10"},
		{&warehouse.Fault{Code: warehouse.FaultFailed, Message: "m", Position: -1}, 422, "sql_failed", ""},
		{&warehouse.Fault{Code: warehouse.FaultFailed, Message: "m", Position: 99}, 422, "sql_failed", ""},
		{&warehouse.Fault{Code: warehouse.FaultMemory, Message: "m", Position: -1}, 422, "sql_out_of_memory", ""},
		{&warehouse.Fault{Code: warehouse.FaultCrashed, Message: "m", Position: -1}, 422, "sql_crashed", ""},
		{&warehouse.Fault{Code: warehouse.FaultInterrupted, Message: "m", Position: -1}, 503, "sql_interrupted", ""},
		{fmt.Errorf("ask: %w", warehouse.ErrOutOfOrder), 503, "warehouse_behind", ""},
		{warehouse.ErrClosed, 503, "shutting_down", ""},
		{errors.New("secret"), 500, "internal", ""},
	} {
		a := serve(t, &fake{ask: func(context.Context, warehouse.Ask, func(arrow.RecordBatch) error) (warehouse.Reply, error) {
			return warehouse.Reply{}, c.err
		}}, Options{})
		status, body, header, err := a.post(t.Context(), "/v1/sql", sql, "Content-Type", "text/plain")
		require.NoError(t, err)
		require.Equal(t, c.status, status, body)
		require.Equal(t, c.status == 503, header.Get("Retry-After") != "")
		require.NotContains(t, body, "secret")
		var p struct {
			Code         string
			Position     *int
			Line, Column int
		}
		require.NoError(t, json.Unmarshal([]byte(body), &p))
		require.Equal(t, c.code, p.Code)
		if c.place == "" {
			require.Nil(t, p.Position)
			continue
		}
		require.NotNil(t, p.Position, body)
		require.Equal(t, c.place, fmt.Sprint(*p.Position, p.Line, p.Column))
	}
	require.Equal(t, "disk_full", outcome(fault(t.Context(), t.Context(), &statement{}, &spoolError{syscall.ENOSPC})))
}

// TestResult: counts are said in headers, and the rows come whole, from memory
// and from a file that leaves nothing behind.
func TestResult(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 600_000} {
		dir := t.TempDir()
		a := serve(t, &fake{ask: numbers(n)}, Options{TempDir: dir})
		status, body, header, err := a.post(t.Context(), "/v1/sql", `{"sql":"s"}`)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status, body)
		require.Equal(t, strconv.Itoa(n), header.Get("Icecore-Row-Count"))
		require.Equal(t, "false", header.Get("Icecore-Truncated"))
		var result struct {
			Columns []struct{ Name, Type string }
			Rows    [][]int
		}
		require.NoError(t, json.Unmarshal([]byte(body), &result))
		require.Equal(t, "BIGINT", result.Columns[0].Type)
		require.Len(t, result.Rows, n)
		for i, row := range result.Rows {
			require.Equal(t, i, row[0])
		}
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, left)
		require.Zero(t, a.gate.taken.Load())
	}
}

// TestSlowReader: a reader that takes nothing holds no turn, and is given up.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	a := serve(t, &fake{ask: numbers(2_000_000)}, Options{Running: 1, Waiting: 1, MaxRows: 1 << 40, Patience: 200 * time.Millisecond})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, a.url+"/v1/sql", strings.NewReader(`{"sql":"s"}`))
	require.NoError(t, err)
	req.Header.Set("Accept", "text/csv")
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(req) // the body is not read
	require.NoError(t, err)
	defer resp.Body.Close() //nolint:errcheck // that it is broken is tested
	require.Zero(t, a.gate.running.Load())
	eventually(t, "the reader is given up", func() bool { return a.gate.taken.Load() == 0 })
}

// TestSpool: batches come back as they were added, whatever lies in memory.
func TestSpool(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.IntRange(0, 300), 1, 6).Draw(t, "batches")
		s := newSpool(dir, rapid.IntRange(0, 8000).Draw(t, "memory"))
		defer s.close()
		at := 0
		for _, n := range sizes {
			rec := batch(at, at+n)
			require.NoError(t, s.add(rec))
			rec.Release()
			at += n
		}
		require.NoError(t, s.finish())
		got := 0
		require.NoError(t, s.each(func(rec arrow.RecordBatch) error {
			for i := range int(rec.NumRows()) {
				require.Equal(t, int64(got), rec.Column(0).(*array.Int64).Value(i))
				got++
			}
			return nil
		}))
		require.Equal(t, at, got)
	})
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}
