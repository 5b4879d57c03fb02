package apptest

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// nowhere makes a server have a gateway, of an engine that is not there.
const nowhere = "--engine=http://127.0.0.1:1"

// TestDocumentHasTheRoutes: docs/api.md has the routes of the code (docs/doctest
// sees to that), and the document those of docs/api.md.
func TestDocumentHasTheRoutes(t *testing.T) {
	t.Parallel()
	s := start(t, "--profile", nowhere)
	d, err := describe(s.get("/openapi.json").is(200).body)
	require.NoError(t, err)
	var documented []string
	for path, item := range d.root["paths"].(object) {
		for method := range item.(object) {
			documented = append(documented, strings.ToUpper(method)+" "+path)
		}
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "api.md"))
	require.NoError(t, err)
	var listed []string
	for _, m := range regexp.MustCompile("(?m)^#{2,4} `((?:GET|POST|PUT|DELETE|PATCH) [^`]+)`").FindAllStringSubmatch(string(text), -1) {
		listed = append(listed, strings.Replace(m[1], "/*", "/{page}", 1))
	}
	slices.Sort(documented)
	slices.Sort(listed)
	require.Equal(t, listed, documented)
	require.Greater(t, len(listed), 15)
}

// TestDocumentedPathsAreServed: whatever the document has, the server knows.
func TestDocumentedPathsAreServed(t *testing.T) {
	t.Parallel()
	s := start(t, "--profile", nowhere)
	d, err := describe(s.get("/openapi.json").is(200).body)
	require.NoError(t, err)
	for path, item := range d.root["paths"].(object) {
		at := strings.NewReplacer("{page}", "goroutine", "{rollout_id}", "r-1", "{trace_id}", "t-1", "{name}", "learner", "{lease_id}", "ls_1", "{key_id}", "key_1", "{model}", "m").Replace(path)
		for method := range item.(object) {
			a := s.send(strings.ToUpper(method), at, nil)
			require.NotEqual(t, http.StatusMethodNotAllowed, a.status, "%s %s", method, path)
			require.False(t, a.status == http.StatusNotFound && strings.Contains(string(a.body), "no_such_path"), "%s %s", method, path)
			// The gateway has words of its own for what it does not have.
			require.NotContains(t, string(a.body), "nothing at this path", "%s %s", method, path)
		}
	}
}

func TestDocumentIsTheRunningServers(t *testing.T) {
	t.Parallel()
	s := start(t, "--max-items=7", "--max-tokens=99", "--max-request=3MiB", "--max-body=2MiB", "--max-buffered=5MiB", "--max-open=11", "--read-timeout=9s")
	d, err := describe(s.get("/openapi.json").is(200).body)
	require.NoError(t, err)
	about := d.root["info"].(object)["description"]
	for _, says := range []string{"inflated | 3 MiB |", "items in one request | 7 |", "tokens of one trace | 99 |", "each | 2 MiB |", "bytes of all requests at once | 5 MiB |",
		"ingest requests at once | 11 |", "while it sends | 9s |"} {
		require.Contains(t, about, says)
	}
	version, _, err := command(t, nil, "version")
	require.NoError(t, err)
	require.Contains(t, version, d.root["info"].(object)["version"])
	// The page is of the same server.
	page := s.get("/docs").is(200)
	require.Equal(t, "text/html; charset=UTF-8", page.header.Get("Content-Type"))
	require.Contains(t, string(page.body), "<td>3 MiB</td>")
	require.Contains(t, string(page.body), s.url+"/v1/traces")
	require.Contains(t, page.header.Get("Content-Security-Policy"), "default-src 'none'")
}
