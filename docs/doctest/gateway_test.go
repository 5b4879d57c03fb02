package doctest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// gatewaySource is the gateway's code without its tests.
func gatewaySource(t *testing.T, dirs ...string) string {
	t.Helper()
	var all strings.Builder
	from := filepath.Join(append([]string{root, "ingest", "gateway"}, dirs...)...)
	require.NoError(t, filepath.WalkDir(from, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		all.Write(text)
		return err
	}))
	return all.String()
}

// firstColumn gives the words of the first column of the table in a section, or of the
// table that has the heading as its first row.
func firstColumn(t *testing.T, page, heading string) []string {
	t.Helper()
	_, section, there := strings.Cut(page, heading)
	require.True(t, there, "the page has no %q", heading)
	end := "\n#"
	if strings.HasPrefix(heading, "|") {
		end = "\n\n"
	}
	section, _, _ = strings.Cut(section, end)
	var out []string
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]*) \\|").FindAllStringSubmatch(section, -1) {
		out = append(out, found(row[1], "`([a-z_]+)`")...)
	}
	slices.Sort(out)
	require.Equal(t, slices.Compact(slices.Clone(out)), out, "%s lists a word twice", heading)
	return out
}

// TestGatewayWordsListed: docs/gateway.md explains the members of metadata.gateway, and
// exactly the words that the code writes into them.
func TestGatewayWordsListed(t *testing.T) {
	t.Parallel()
	page, code := read(t, "docs", "gateway.md"), gatewaySource(t)
	for _, c := range []struct {
		heading  string
		code     string
		patterns []string
		// not are words that no trace holds.
		not []string
	}{
		{heading: "### metadata.gateway", code: between(t, read(t, "ingest", "gateway", "metadata.go"), "type metadata struct", "\n}"),
			patterns: []string{`json:"(\w+)`}},
		{heading: "### Flags", code: code,
			patterns: []string{`\b[fF]lag[A-Z]\w*\s*=\s*"(\w+)"`, `append\([\w.]*[fF]lags, "(\w+)"\)`, `flagged\([\w.]+, "(\w+)"\)`}},
		{heading: "### Rewrites", code: code, patterns: []string{`\bRewrite\("(\w+)"`}},
		{heading: "### Codes", code: code, patterns: []string{`\bCode[A-Z]\w*\s*=\s*"(\w+)"`},
			// Nothing answers 429: Codex gives up at it.
			not: []string{"rate_limited"}},
		{heading: "| `why` | held ids were not used", code: code,
			patterns: []string{`\bWhy[A-Z]\w*\s*=\s*"(\w+)"`, `\.Why = "(\w+)"`, `unsplice\("(\w+)"\)`}},
		{heading: "| label | the prompt |", code: between(t, read(t, "ingest", "gateway", "continuity", "types.go"), "// Kinds of a Label.", "\n)"),
			patterns: []string{`= "(\w+)"`}},
	} {
		inCode := found(c.code, c.patterns...)
		inCode = slices.DeleteFunc(inCode, func(w string) bool { return slices.Contains(c.not, w) })
		require.Greater(t, len(inCode), 5, "%s: the patterns find nothing", c.heading)
		require.Equal(t, inCode, firstColumn(t, page, c.heading), c.heading)
	}
	for _, inner := range found(between(t, read(t, "ingest", "gateway", "drift.go"), "type drift struct", "\n}"), `json:"(\w+)`) {
		require.Contains(t, page, "`"+inner+"`", "docs/gateway.md does not tell of continuity's %s", inner)
	}
	for _, header := range found(code, `Get\("(Icecore-[\w-]+)"\)`) {
		require.Contains(t, page, "`"+header+"`", "docs/gateway.md does not tell of a header")
	}
}

func between(t *testing.T, text, from, to string) string {
	t.Helper()
	_, text, there := strings.Cut(text, from)
	require.True(t, there, "there is no %q", from)
	text, _, there = strings.Cut(text, to)
	require.True(t, there, "there is no %q", to)
	return text
}
