package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// question is the body of POST /v1/sql.
type question struct {
	SQL       string `json:"sql"`
	Params    any    `json:"params,omitempty"`
	Limit     int64  `json:"limit,omitempty"`
	TimeoutMS int64  `json:"timeout_ms,omitempty"`
}

var mediaTypes = map[string]string{"table": "application/json", "json": "application/json", "csv": "text/csv",
	"ndjson": "application/x-ndjson", "parquet": "application/vnd.apache.parquet", "arrow": "application/vnd.apache.arrow.stream"}

// queryClient asks a server.
type queryClient struct {
	base     string
	patience time.Duration
}

func newQueryClient(base string, patience time.Duration) *queryClient {
	return &queryClient{base: base, patience: patience}
}

func (q *queryClient) reachable(ctx context.Context) error {
	return newClient(q.base, q.patience).reachable(ctx)
}

// wanting says in each request what is accepted.
type wanting string

// RoundTrip implements http.RoundTripper.
func (w wanting) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Accept", string(w))
	return http.DefaultTransport.RoundTrip(r) //nolint:wrapcheck // http.Client wraps it
}

// ask runs a statement. The caller closes the answer. A refusal is a *sqlRefusal.
func (q *queryClient) ask(ctx context.Context, what question, format string) (*queryAnswer, error) {
	body, err := json.Marshal(what)
	if err != nil {
		return nil, fmt.Errorf("encode statement: %w", err)
	}
	cl := newClient(q.base, q.patience)
	cl.http = &http.Client{Transport: wanting(mediaTypes[format])}
	resp, err := cl.send(ctx, http.MethodPost, "/v1/sql", "application/json", body) //nolint:bodyclose // the answer's close does
	if err != nil {
		return nil, err
	}
	a := &queryAnswer{resp: resp}
	if resp.StatusCode != http.StatusOK {
		defer a.close()
		return nil, readSQLRefusal(resp, what.SQL)
	}
	a.rows, err = strconv.ParseInt(resp.Header.Get("Icecore-Row-Count"), 10, 64)
	if err != nil {
		a.close()
		return nil, fmt.Errorf("read answer: it does not say how many rows it has: %w", err)
	}
	a.truncated = resp.Header.Get("Icecore-Truncated") == "true"
	return a, nil
}

// tables fetches the list of tables.
func (q *queryClient) tables(ctx context.Context) (list tableList, err error) {
	err = newClient(q.base, q.patience).call(ctx, http.MethodGet, "/v1/sql/tables", nil, &list)
	return list, err
}

type tableList struct {
	Schema string `json:"schema"`
	Tables []struct {
		Name    string `json:"name"`
		Comment string `json:"comment"`
		Columns []struct {
			Name    string `json:"name"`
			Type    string `json:"type"`
			Comment string `json:"comment"`
		} `json:"columns"`
	} `json:"tables"`
}

// queryAnswer is a result that is still to be read.
type queryAnswer struct {
	resp      *http.Response
	rows      int64
	truncated bool
}

func (a *queryAnswer) close() { _ = a.resp.Body.Close() } // what was needed of it was read

var errBrokenOff = errors.New("the answer broke off before its end; ask again")

// copyTo hands the answer on as it comes, and says whether it was whole.
func (a *queryAnswer) copyTo(w io.Writer) error {
	if _, err := io.Copy(w, a.resp.Body); err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	return a.whole()
}

// whole is asked after the last byte. A proxy may have taken the trailer away,
// and its announcement with it.
func (a *queryAnswer) whole() error {
	const trailer = "Icecore-Complete"
	if _, announced := a.resp.Trailer[trailer]; announced && a.resp.Trailer.Get(trailer) != "true" {
		return errBrokenOff
	}
	return nil
}

// result is a JSON answer. Its values stay JSON: they are shown, not computed
// with.
type result struct {
	Columns []struct {
		Name string `json:"name"`
		Type string `json:"type"`
	} `json:"columns"`
	Rows      [][]json.RawMessage `json:"rows"`
	Truncated bool                `json:"truncated"`
}

func (a *queryAnswer) result() (*result, error) {
	raw, err := io.ReadAll(a.resp.Body)
	if err == nil {
		err = a.whole()
	}
	if err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	var r result
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	return &r, nil
}

// sqlRefusal is a problem, and the statement that had it.
type sqlRefusal struct {
	refusal
	Position *int `json:"position"`
	Line     int  `json:"line"`
	Column   int  `json:"column"`
	sql      string
}

func readSQLRefusal(resp *http.Response, sql string) error {
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20)) // what came of it is shown
	r := &sqlRefusal{sql: sql}
	if json.Unmarshal(raw, r) != nil || r.Code == "" {
		r.Code, r.Detail = http.StatusText(resp.StatusCode), strings.TrimSpace(string(raw))
	}
	r.Status = resp.StatusCode
	return r
}

// shownWidth is how much of a line of a statement an error shows.
const shownWidth = 72

// Error tells the detail, and shows the place in the statement.
func (r *sqlRefusal) Error() string {
	text := plainText(r.Detail, true) + " (" + r.Code + ")"
	lines := strings.Split(r.sql, "\n")
	if r.Position == nil || r.Line < 1 || r.Line > len(lines) {
		return text
	}
	line := []rune(strings.TrimRight(lines[r.Line-1], "\r"))
	at := min(max(r.Column-1, 0), len(line))
	from, to := 0, len(line)
	before, behind := "", ""
	if len(line) > shownWidth {
		from = max(0, min(at-shownWidth/2, len(line)-shownWidth))
		to = from + shownWidth
		if from > 0 {
			before = "…"
		}
		if to < len(line) {
			behind = "…"
		}
	}
	head := fmt.Sprintf("LINE %d: ", r.Line) + before
	shown := func(part []rune) string { return plainText(strings.ReplaceAll(string(part), "\t", " "), false) }
	indent := displayWidth(head + shown(line[from:at]))
	return text + "\n" + head + shown(line[from:to]) + behind + "\n" + strings.Repeat(" ", indent) + "^"
}
