package apptest

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
)

// description is a server's OpenAPI document, ready to check by.
type description struct {
	root object
	mu   sync.Mutex
	// compiler and what it made, by place in the document.
	compiler *jsonschema.Compiler
	schemas  map[string]*jsonschema.Schema
}

// descriptions are the documents met so far: most servers have the same.
var descriptions sync.Map

// describe reads a server's document.
func describe(raw []byte) (*description, error) {
	key := sha256.Sum256(raw)
	if have, ok := descriptions.Load(key); ok {
		return have.(*description), nil
	}
	root, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("decode /openapi.json: %w", err)
	}
	shut(root)
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	if err := c.AddResource("openapi.json", root); err != nil {
		return nil, fmt.Errorf("read /openapi.json: %w", err)
	}
	d := &description{root: root.(object), compiler: c, schemas: map[string]*jsonschema.Schema{}}
	have, _ := descriptions.LoadOrStore(key, d)
	return have.(*description), nil
}

// shut closes the objects that the document leaves open. Clients must bear new
// fields; a test must not bear one that is not documented.
func shut(v any) {
	switch v := v.(type) {
	case object:
		_, fields := v["properties"].(object)
		_, said := v["additionalProperties"]
		kind := fmt.Sprint(v["type"])
		if fields && !said && v["$ref"] == nil && strings.Contains(kind, "object") {
			v["additionalProperties"] = false
		}
		for _, inner := range v {
			shut(inner)
		}
	case []any:
		for _, inner := range v {
			shut(inner)
		}
	}
}

// find gives the path of the document that a request is of. One that takes the
// method goes before one that does not (a trace may be called "begin"), one that
// is written out before one with a parameter.
func (d *description) find(method, requested string) (path string, item object) {
	want := strings.Split(requested, "/")
	best := 0
	for template, v := range d.root["paths"].(object) {
		have := strings.Split(template, "/")
		if len(have) != len(want) {
			continue
		}
		match := true
		for i, part := range have {
			parameter := strings.HasPrefix(part, "{")
			match = match && (part == want[i] || parameter && (want[i] != "" || i == len(have)-1))
		}
		rank := 10 - strings.Count(template, "{")
		if v.(object)[strings.ToLower(method)] != nil {
			rank += 10
		}
		if match && rank > best {
			path, item, best = template, v.(object), rank
		}
	}
	return path, item
}

// follow goes where a reference leads.
func (d *description) follow(at string, v any) (string, object) {
	o, _ := v.(object)
	ref, ok := o["$ref"].(string)
	if !ok {
		return at, o
	}
	at = strings.TrimPrefix(ref, "#")
	var to any = d.root
	for part := range strings.SplitSeq(at[1:], "/") {
		to = to.(object)[part]
	}
	return at, to.(object)
}

// escape makes a name part of a JSON pointer in a URL.
func escape(name string) string {
	return url.PathEscape(strings.NewReplacer("~", "~0", "/", "~1").Replace(name))
}

func (d *description) schema(at string) (*jsonschema.Schema, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.schemas[at] == nil {
		schema, err := d.compiler.Compile("openapi.json#" + at)
		if err != nil {
			return nil, fmt.Errorf("compile schema %s: %w", at, err)
		}
		d.schemas[at] = schema
	}
	return d.schemas[at], nil
}

// checkedBytes is how much of a body is kept to be checked.
const checkedBytes = 64 << 10

// checked is a transport that compares whatever passes with the document.
type checked struct {
	t    testing.TB
	base *http.Transport
	by   *description
}

// checkedHTTP is a client for a server of a test.
func checkedHTTP(t testing.TB, at string) *http.Client {
	t.Helper()
	plain := newHTTP()
	resp, err := plain.Get(at + "/openapi.json")
	require.NoError(t, err)
	defer resp.Body.Close() //nolint:errcheck // it was read
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	by, err := describe(raw)
	require.NoError(t, err)
	base := plain.Transport.(*http.Transport)
	base.CloseIdleConnections()
	plain.Transport = &checked{t: t, base: base, by: by}
	return plain
}

// CloseIdleConnections is what http.Client looks for.
func (c *checked) CloseIdleConnections() { c.base.CloseIdleConnections() }

// RoundTrip implements http.RoundTripper.
func (c *checked) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := c.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	x := &exchange{request: req, status: resp.StatusCode, header: resp.Header.Clone()}
	if req.GetBody != nil && req.Header.Get("Content-Encoding") == "" && req.ContentLength <= checkedBytes {
		if body, err := req.GetBody(); err == nil {
			x.sent, _ = io.ReadAll(body)
		}
		media := req.Header.Get("Content-Type")
		switch {
		case strings.HasPrefix(media, typeNDJSON):
			for line := range bytes.Lines(x.sent) {
				if len(bytes.TrimSpace(line)) > 0 && !json.Valid(line) {
					x.sent = nil // NaN as a bare word, which is ours and not JSON's
				}
			}
		case media != "" && !strings.HasPrefix(media, typeJSON), !json.Valid(x.sent):
			x.sent = nil
		}
	}
	resp.Body = &checkedBody{ReadCloser: resp.Body, c: c, x: x}
	return resp, nil
}

// checkedBody keeps what is read, and checks when all is.
type checkedBody struct {
	io.ReadCloser
	c    *checked
	x    *exchange
	done bool
}

func (b *checkedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	room := min(n, checkedBytes-len(b.x.body))
	b.x.body = append(b.x.body, p[:room]...)
	b.x.cut = b.x.cut || room < n
	if err == io.EOF && !b.done {
		b.done = true
		if fault := b.c.by.check(b.x); fault != nil {
			b.c.t.Errorf("the answer is not what /openapi.json says: %v", fault)
		}
	}
	return n, err
}

// TestCheckerFindsWhatIsNotDocumented: a checker that lets everything pass would
// not be noticed otherwise.
func TestCheckerFindsWhatIsNotDocumented(t *testing.T) {
	t.Parallel()
	s := start(t)
	d, err := describe(s.get("/openapi.json").is(200).body)
	require.NoError(t, err)
	good := func() *exchange {
		req, err := http.NewRequest(http.MethodPut, s.url+"/v1/rollouts/r-1?ack=durable", nil) //nolint:noctx // it is not sent
		require.NoError(t, err)
		a := s.put("/v1/rollouts/r-1", object{"task_id": "a"}).is(200)
		return &exchange{request: req, sent: []byte(`{"task_id": "a"}`), status: 200, header: a.header.Clone(), body: slices.Clone(a.body)}
	}
	require.NoError(t, d.check(good()))
	for name, spoil := range map[string]func(x *exchange){
		"status":           func(x *exchange) { x.status = 201 },
		"content type":     func(x *exchange) { x.header.Set("Content-Type", "text/plain") },
		"header":           func(x *exchange) { x.header.Set("Icecore-Mood", "good") },
		"field":            func(x *exchange) { x.body = bytes.Replace(x.body, []byte(`"traces":`), []byte(`"tracks":`), 1) },
		"further field":    func(x *exchange) { x.body = bytes.Replace(x.body, []byte(`"traces":`), []byte(`"a":1,"traces":`), 1) },
		"value":            func(x *exchange) { x.body = bytes.Replace(x.body, []byte(`"durable"`), []byte(`"perhaps"`), 1) },
		"no JSON":          func(x *exchange) { x.body = x.body[1:] },
		"parameter":        func(x *exchange) { x.request.URL.RawQuery = "colour=red" },
		"parameter value":  func(x *exchange) { x.request.URL.RawQuery = "ack=red" },
		"request field":    func(x *exchange) { x.sent = []byte(`{"colour": "red"}`) },
		"request value":    func(x *exchange) { x.sent = []byte(`{"group_size": 0}`) },
		"request type":     func(x *exchange) { x.request.Header.Set("Content-Type", typeNDJSON) },
		"path":             func(x *exchange) { x.request.URL.Path = "/v1/cups" },
		"method":           func(x *exchange) { x.request.Method = http.MethodDelete },
		"missing retry":    func(x *exchange) { x.status, x.header, x.body = 429, problemHeader(), busy("too_many_requests", 429) },
		"code elsewhere":   func(x *exchange) { x.status, x.header, x.body = 400, problemHeader(), busy("invalid_arrow", 400) },
		"status of a code": func(x *exchange) { x.status, x.header, x.body = 400, problemHeader(), busy("invalid_json", 422) },
	} {
		x := good()
		spoil(x)
		require.Error(t, d.check(x), name)
	}
}

func problemHeader() http.Header {
	return http.Header{"Content-Type": {"application/problem+json"}}
}

func busy(code string, status int) []byte {
	return encode(object{"type": "urn:icecore:error:" + code, "title": "x", "status": status, "code": code, "detail": "x"})
}
