package doctest

import (
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/problem"
)

// source is all Go code that is not a test.
func source(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, dir := range []string{"cmd", "ingest", "openapi", "problem", "query", "store", "trace", "wire"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			all.Write(text)
			return err
		})
		require.NoError(t, err)
	}
	return all.String()
}

func read(t *testing.T, elem ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{root}, elem...)...))
	require.NoError(t, err)
	return string(text)
}

// found gives the first group of every match, sorted, each once.
func found(text string, patterns ...string) []string {
	var out []string
	for _, p := range patterns {
		for _, m := range regexp.MustCompile(p).FindAllStringSubmatch(text, -1) {
			out = append(out, m[1])
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// TestErrorsListed: docs/errors.md has exactly the codes of the catalogue. That
// no other is answered is package problem's matter.
func TestErrorsListed(t *testing.T) {
	var inCode []string
	for i := range problem.Catalogue {
		inCode = append(inCode, string(problem.Catalogue[i].Code))
	}
	slices.Sort(inCode)
	require.NotEmpty(t, inCode)
	require.Equal(t, inCode, found(read(t, "docs", "errors.md"), `(?m)^### ([a-z_]+)$`))
}

// TestRoutesListed: docs/api.md has exactly the routes that the code has.
func TestRoutesListed(t *testing.T) {
	inCode := found(source(t), `(?m)^\s*e\.((?:GET|POST|PUT|DELETE|PATCH)\("[^"]+)"`)
	for i, r := range inCode {
		r = strings.Replace(r, `("`, " ", 1)
		inCode[i] = regexp.MustCompile(`:(\w+)`).ReplaceAllString(r, "{$1}")
	}
	slices.Sort(inCode)
	listed := found(read(t, "docs", "api.md"), "(?m)^#{2,4} `((?:GET|POST|PUT|DELETE|PATCH) [^`]+)`")
	// The gateway finds its routes itself; apptest asks for each that is documented.
	listed = slices.DeleteFunc(listed, func(r string) bool { return strings.Contains(r, " /gateway/") })
	require.Equal(t, inCode, listed)
}

// TestFlagsListed: docs/operations.md has exactly the flags of serve.
func TestFlagsListed(t *testing.T) {
	help, err := exec.CommandContext(t.Context(), binary(t), "serve", "--help").Output()
	require.NoError(t, err)
	flags := found(string(help), `(?m)^\s+(?:-\w, )?--([a-z-]+)`)
	flags = slices.DeleteFunc(flags, func(f string) bool { return f == "help" })
	require.Equal(t, flags, found(read(t, "docs", "operations.md"), "(?m)^\\| `--([a-z-]+)"))
}

// TestMetricsListed: docs/operations.md has exactly the metrics of the server.
func TestMetricsListed(t *testing.T) {
	s := startServer(t, workDir(t), nil)
	defer s.stop(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.addr+"/metrics", nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close() //nolint:errcheck // it was read
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	for _, name := range found(string(text), `(?m)^# HELP (icecore_\w+)`) {
		require.Contains(t, read(t, "docs", "operations.md"), "| `"+name, "docs/operations.md does not list a metric")
	}
}

// TestGatewayMetricsListed: many of the gateway's are shown by a server only when
// something was counted, so they are looked for in the code.
func TestGatewayMetricsListed(t *testing.T) {
	inCode := found(read(t, "ingest", "gateway", "metrics.go"), `(?:counter|histogram|gauge)\("(\w+)"`)
	require.NotEmpty(t, inCode)
	require.Equal(t, inCode, found(read(t, "docs", "operations.md"), "(?m)^\\| `icecore_gateway_(\\w+)"))
}

// TestColumnsListed: docs/api.md has the columns of the Arrow stream in their
// order.
func TestColumnsListed(t *testing.T) {
	schema := read(t, "trace", "schema.go")
	_, schema, _ = strings.Cut(schema, "var TrajectorySchema")
	schema, _, _ = strings.Cut(schema, "var TraceSchema")
	inOrder := func(text, pattern string) (out []string) {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			out = append(out, m[1])
		}
		return out
	}
	_, api, _ := strings.Cut(read(t, "docs", "api.md"), "### Columns")
	api, _, _ = strings.Cut(api, "### ")
	require.Equal(t, inOrder(schema, `field\("(\w+)"`), inOrder(api, "(?m)^\\| `(\\w+)`"))
}
