package sqlapi

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"icecore/problem"
	"icecore/store/warehouse"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds what a test waits for.
const patience = time.Minute

// fake is a warehouse whose statements do what the test says.
type fake struct {
	ask func(ctx context.Context, a warehouse.Ask, each func(arrow.RecordBatch) error) (warehouse.Reply, error)
}

func (f *fake) Ask(ctx context.Context, a warehouse.Ask, each func(arrow.RecordBatch) error) (warehouse.Reply, error) {
	return f.ask(ctx, a, each)
}

func (*fake) Query(context.Context, func(arrow.RecordBatch) error, string, ...any) error {
	return warehouse.ErrOutOfOrder
}

// numbers gives n rows in batches.
func numbers(n int) func(context.Context, warehouse.Ask, func(arrow.RecordBatch) error) (warehouse.Reply, error) {
	return func(_ context.Context, _ warehouse.Ask, each func(arrow.RecordBatch) error) (warehouse.Reply, error) {
		for at := 0; at == 0 || at < n; at += 2048 {
			rec := batch(at, min(at+2048, n))
			err := each(rec)
			rec.Release()
			if err != nil {
				return warehouse.Reply{}, err
			}
		}
		return warehouse.Reply{Rows: int64(n), Bytes: int64(8 * n)}, nil
	}
}

func batch(from, to int) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}}, nil))
	defer b.Release()
	for i := from; i < to; i++ {
		b.Field(0).(*array.Int64Builder).Append(int64(i))
	}
	return b.NewRecordBatch()
}

type testAPI struct {
	*API
	t   *testing.T
	url string
}

func serve(t *testing.T, f *fake, opts Options) *testAPI {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	opts.Log = log
	if opts.TempDir == "" {
		opts.TempDir = t.TempDir()
	}
	a := New(f, opts)
	e := echo.New()
	e.HTTPErrorHandler = problem.Handler(log)
	a.Register(e)
	s := httptest.NewServer(e)
	t.Cleanup(s.Close)
	return &testAPI{a, t, s.URL}
}

// post sends a statement; headers come in pairs.
func (a *testAPI) post(ctx context.Context, path, body string, headers ...string) (int, string, http.Header, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url+path, strings.NewReader(body))
	require.NoError(a.t, err)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	raw, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(raw), resp.Header, err
}

// eventually polls for what nobody announces.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}
