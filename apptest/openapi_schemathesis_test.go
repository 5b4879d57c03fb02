package apptest

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSchemathesis: requests made from the OpenAPI document, well and badly, are
// answered as it says. schemathesis/schemathesis.toml says how, and what is
// relaxed.
func TestSchemathesis(t *testing.T) {
	t.Parallel()
	require.NotEmpty(t, python(), noPython)
	tool := filepath.Join(filepath.Dir(python()), "schemathesis")
	_, err := os.Stat(tool)
	require.NoError(t, err, "there is no schemathesis beside %s: run `make venv`", python())
	// It writes beside its configuration.
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("schemathesis")))
	s := start(t)
	cmd := exec.CommandContext(t.Context(), tool, "--no-color", "run", s.url+"/openapi.json")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", shortLines(string(out)))
	// Something was asked, of everything.
	m := regexp.MustCompile(`(\d+) generated, (\d+) passed`).FindStringSubmatch(string(out))
	require.NotNil(t, m, "%s", shortLines(string(out)))
	generated, err := strconv.Atoi(m[1])
	require.NoError(t, err)
	require.Greater(t, generated, 1000, "%s", shortLines(string(out)))
	for _, phase := range []string{"Examples", "Coverage", "Fuzzing", "Stateful"} {
		require.Regexp(t, `✅\s+`+phase, string(out))
	}
	s.healthy()
}

// shortLines cuts what was sent: it can be megabytes.
func shortLines(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		if len(line) > 600 {
			line = line[:600] + "…\n"
		}
		out.WriteString(line)
	}
	return out.String()
}
