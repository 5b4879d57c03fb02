package apptest

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	typeJSON   = "application/json"
	typeNDJSON = "application/x-ndjson"
	typeArrow  = "application/vnd.apache.arrow.stream"
)

func itoa(n int) string { return strconv.Itoa(n) }

func ptr[T any](v T) *T { return &v }

// object is JSON in the making.
type object = map[string]any

// answer is a response that was read to its end.
type answer struct {
	t      testing.TB
	status int
	header http.Header
	// trailer is there only when the body ended as HTTP says.
	trailer http.Header
	body    []byte
}

// try sends a request; headers come in pairs.
func (s *server) try(method, path string, body io.Reader, headers ...string) (*answer, error) {
	req, err := http.NewRequest(method, s.url+path, body) //nolint:noctx // the client has a timeout
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	a := &answer{t: s.t, status: resp.StatusCode, header: resp.Header}
	a.body, err = io.ReadAll(resp.Body)
	a.trailer = resp.Trailer
	return a, err
}

func (s *server) send(method, path string, body []byte, headers ...string) *answer {
	s.t.Helper()
	a, err := s.try(method, path, bytes.NewReader(body), headers...)
	require.NoError(s.t, err, "%s %s", method, path)
	return a
}

func (s *server) get(path string, headers ...string) *answer {
	s.t.Helper()
	return s.send(http.MethodGet, path, nil, headers...)
}

// post sends v as JSON; bytes and text go as they are.
func (s *server) post(path string, v any) *answer {
	s.t.Helper()
	return s.send(http.MethodPost, path, encode(v), "Content-Type", typeJSON)
}

func (s *server) put(path string, v any) *answer {
	s.t.Helper()
	return s.send(http.MethodPut, path, encode(v), "Content-Type", typeJSON)
}

func encode(v any) []byte {
	switch v := v.(type) {
	case string:
		return []byte(v)
	case []byte:
		return v
	}
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}

// is demands a status.
func (a *answer) is(status int) *answer {
	a.t.Helper()
	require.Equal(a.t, status, a.status, "%.2000s", a.body)
	return a
}

// into decodes the JSON body; numbers stay exact in an any.
func (a *answer) into(v any) {
	a.t.Helper()
	d := json.NewDecoder(bytes.NewReader(a.body))
	d.UseNumber()
	require.NoError(a.t, d.Decode(v), "%.500s", a.body)
}

type item struct {
	Index    int
	ID       string
	Status   string
	Code     string
	Message  string
	Warnings []string
}

type items struct {
	Items []item
	Ack   string
}

func (a *answer) items() items {
	a.t.Helper()
	var out items
	a.into(&out)
	for i, item := range out.Items {
		require.Equal(a.t, i, item.Index)
		require.Equal(a.t, item.Status == "refused", item.Code != "", "%+v", item)
		require.Equal(a.t, item.Status == "refused", item.Message != "", "%+v", item)
	}
	return out
}

// one is the only item's outcome: its code when it was refused, else its status.
func (a *answer) one() string {
	a.t.Helper()
	list := a.items()
	require.Len(a.t, list.Items, 1)
	return list.Items[0].outcome()
}

func (i item) outcome() string {
	if i.Status == "refused" {
		return i.Code
	}
	return i.Status
}

// all demands one outcome of every item.
func (a *answer) all(outcome string, n int) {
	a.t.Helper()
	list := a.items()
	require.Len(a.t, list.Items, n)
	for _, i := range list.Items {
		require.Equal(a.t, outcome, i.outcome(), "%+v", i)
	}
}

type problem struct {
	Type   string
	Title  string
	Status int
	Code   string
	Detail string
	Field  string
	Offset *int64
}

// problem demands an answer as RFC 9457 wants it, with the given code.
func (a *answer) problem(status int, code string) problem {
	a.t.Helper()
	a.is(status)
	require.Equal(a.t, "application/problem+json", a.header.Get("Content-Type"), "%.500s", a.body)
	var p problem
	a.into(&p)
	require.Equal(a.t, code, p.Code, p.Detail)
	require.Equal(a.t, status, p.Status)
	require.NotEmpty(a.t, p.Detail)
	require.NotEmpty(a.t, p.Title)
	require.Equal(a.t, "urn:icecore:error:"+code, p.Type)
	return p
}

// path joins escaped ids.
func path(parts ...string) string {
	out := "/v1"
	for _, p := range parts {
		out += "/" + url.PathEscape(p)
	}
	return out
}

// healthy demands that the server lives, is ready and still stores and reads.
func (s *server) healthy() {
	s.t.Helper()
	s.get("/healthz").is(200)
	s.get("/readyz").is(200)
}
