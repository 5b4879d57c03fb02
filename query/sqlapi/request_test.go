package sqlapi

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/require"

	"icecore/store/warehouse"
)

// TestRequests: what a request says arrives, or is refused by name.
func TestRequests(t *testing.T) {
	t.Parallel()
	var got warehouse.Ask
	var left time.Duration
	f := &fake{ask: func(ctx context.Context, a warehouse.Ask, each func(arrow.RecordBatch) error) (warehouse.Reply, error) {
		got = a
		deadline, _ := ctx.Deadline()
		left = time.Until(deadline)
		return numbers(1)(ctx, a, each)
	}}
	a := serve(t, f, Options{MaxRows: 100, MaxBytes: 7})
	for _, c := range []struct {
		kind, path, body string
		want             warehouse.Ask
		timeout          time.Duration
	}{
		{"application/json", "/v1/sql", `{"sql":"SELECT 1"}`, warehouse.Ask{SQL: "SELECT 1", MaxRows: 100, MaxBytes: 7}, time.Minute},
		{"", "/v1/sql", ` {"sql":"s","params":null,"limit":null,"timeout_ms":null} `, warehouse.Ask{SQL: "s", MaxRows: 100, MaxBytes: 7}, time.Minute},
		{"application/json; charset=UTF-8", "/v1/sql", `{"sql":"s","params":[null,true,9223372036854775807,-9223372036854775808,1.5,1e2,"x\u0000"],"limit":100,"timeout_ms":600000}`,
			warehouse.Ask{SQL: "s", Params: []any{nil, true, int64(1<<63 - 1), int64(-1 << 63), 1.5, 100.0, "x\x00"}, MaxRows: 100, MaxBytes: 7}, 10 * time.Minute},
		{"application/json", "/v1/sql", `{"params":{"a":1,"b":"x"},"sql":"s"}`,
			warehouse.Ask{SQL: "s", Named: map[string]any{"a": int64(1), "b": "x"}, MaxRows: 100, MaxBytes: 7}, time.Minute},
		{"text/plain; charset=utf-8", "/v1/sql?limit=3&timeout_ms=2000", "SELECT 'ü'", warehouse.Ask{SQL: "SELECT 'ü'", MaxRows: 3, MaxBytes: 7}, 2 * time.Second},
	} {
		status, body, _, err := a.post(t.Context(), c.path, c.body, "Content-Type", c.kind)
		require.NoError(t, err)
		require.Equal(t, 200, status, body)
		require.Equal(t, c.want, got)
		require.InDelta(t, c.timeout.Seconds(), left.Seconds(), 1.9)
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	f := &fake{ask: func(context.Context, warehouse.Ask, func(arrow.RecordBatch) error) (warehouse.Reply, error) {
		t.Error("a bad request was asked")
		return warehouse.Reply{}, nil
	}}
	a := serve(t, f, Options{MaxRows: 100})
	plain := []string{"Content-Type", "text/plain"}
	for _, c := range []struct {
		path, body, code, field, detail string
		headers                         []string
	}{
		{"", `{"sql":"s"`, "invalid_json", "", "byte 10", nil},
		{"", `{"sql":x}`, "invalid_json", "", "byte 7", nil},
		{"", `{"sql":"s"} {}`, "invalid_json", "", "byte 12", nil},
		{"", "{\"sql\":\"\xff\"}", "invalid_json", "", "byte 8", nil},
		{"", `["s"]`, "not_an_object", "", "", nil},
		{"", `null`, "not_an_object", "", "", nil},
		{"", `{}`, "missing_field", "sql", "", nil},
		{"", `{"sql":" \n"}`, "missing_field", "sql", "", nil},
		{"", `{"sql":7}`, "invalid_field", "sql", "", nil},
		{"", `{"sql":null}`, "invalid_field", "sql", "", nil},
		{"", `{"sql":"a\u0000b"}`, "invalid_field", "sql", "NUL", nil},
		{"", `{"sql":"s","SQL":"t"}`, "invalid_field", "SQL", "", nil},
		{"", `{"sql":"s","sql":"t"}`, "duplicate_field", "sql", "", nil},
		{"", `{"sql":"s","params":{"a":1,"a":2}}`, "duplicate_field", "a", "", nil},
		{"", `{"sql":"s","params":7}`, "invalid_field", "params", "", nil},
		{"", `{"sql":"s","params":[1,[2]]}`, "invalid_field", "params[1]", "cast", nil},
		{"", `{"sql":"s","params":{"x":{}}}`, "invalid_field", "params.x", "cast", nil},
		{"", `{"sql":"s","params":{"":1}}`, "invalid_field", "params.", "name", nil},
		{"", `{"sql":"s","params":[9223372036854775808]}`, "invalid_field", "params[0]", "64 bits", nil},
		{"", `{"sql":"s","params":[1` + strings.Repeat(",1", 10_000) + `]}`, "invalid_field", "params", "10000", nil},
		{"", `{"sql":"s","params":{` + manyNames(10_001) + `}}`, "invalid_field", "params", "10000", nil},
		{"", `{` + manyNames(10_001) + `}`, "invalid_field", "body", "10000", nil},
		{"", `{"sql":"s","params":[1e999]}`, "invalid_field", "params[0]", "float64", nil},
		{"", `{"sql":"s","limit":0}`, "invalid_field", "limit", "1 to 100 (--sql-max-rows)", nil},
		{"", `{"sql":"s","limit":101}`, "invalid_field", "limit", "", nil},
		{"", `{"sql":"s","limit":1.5}`, "invalid_field", "limit", "", nil},
		{"", `{"sql":"s","limit":"5"}`, "invalid_field", "limit", "", nil},
		{"", `{"sql":"s","timeout_ms":600001}`, "invalid_field", "timeout_ms", "--sql-max-timeout", nil},
		{"?limit=5", `{"sql":"s"}`, "invalid_parameter", "limit", "", nil},
		{"?limit=0", "s", "invalid_parameter", "limit", "", plain},
		{"?limit=1&limit=2", "s", "invalid_parameter", "limit", "", plain},
		{"?colour=red", "s", "invalid_parameter", "colour", "", plain},
		{"", "", "missing_field", "sql", "", plain},
		{"", "\xff", "invalid_field", "sql", "byte 0", plain},
		{"", "s", "unsupported_media_type", "", "", []string{"Content-Type", "application/x-www-form-urlencoded"}},
		{"", "s", "unsupported_media_type", "", "", []string{"Content-Type", "text/plain; charset=utf-16"}},
		{"", "s", "unsupported_encoding", "", "", []string{"Content-Encoding", "br"}},
		{"", `{"sql":"s"}`, "not_acceptable", "", "text/csv", []string{"Accept", "image/png"}},
		{"", `{"sql":"` + strings.Repeat("s", maxBody) + `"}`, "request_too_large", "", "", nil},
	} {
		status, body, _, err := a.post(t.Context(), "/v1/sql"+c.path, c.body, c.headers...)
		require.NoError(t, err)
		var p struct{ Code, Field, Detail string }
		require.NoError(t, json.Unmarshal([]byte(body), &p), "%d %s", status, body)
		require.Equal(t, c.code, p.Code, "%.100s: %s", c.body, body)
		require.Equal(t, c.field, p.Field, "%.100s: %s", c.body, body)
		require.Contains(t, p.Detail, c.detail)
	}
}

// manyNames are the inner members of an object of n.
func manyNames(n int) string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf(`"p%d":1`, i)
	}
	return strings.Join(out, ",")
}
