package main

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// As docs/gateway.md names things.
const (
	shownBase   = "http://127.0.0.1:7470/gateway/r-1"
	shownPrompt = "Mend the test."
)

// ofTheTest are files that only this program needs.
var ofTheTest = map[string]string{
	"pi/settings.json": "says when to compact",
}

// TestDocumented: docs/gateway.md shows for each harness just what is run here, so what
// is shown is what was seen to work.
func TestDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "gateway.md"))
	require.NoError(t, err)
	page := string(text)
	for _, h := range harnesses {
		for _, block := range blocks(t, h) {
			require.Contains(t, page, block, "docs/gateway.md does not show what is run for %s", h.name)
		}
	}
	text, err = os.ReadFile("package.json")
	require.NoError(t, err)
	var pinned struct{ Dependencies map[string]string }
	require.NoError(t, json.Unmarshal(text, &pinned))
	for _, h := range harnesses {
		row := "`" + h.module + "` " + pinned.Dependencies[h.module]
		require.Contains(t, page, row, "docs/gateway.md tells another version of %s than is run", h.name)
	}
}

// blocks are the fences that show how a harness is configured and begun.
func blocks(t *testing.T, h *harness) (out []string) {
	t.Helper()
	home := t.TempDir()
	r := &rollout{suite: &suite{modules: "modules"}, harness: h, variant: &variant{}, base: shownBase, model: "policy", home: home}
	args, env, err := h.start(r)
	require.NoError(t, err)
	require.NoError(t, filepath.WalkDir(home, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(home, path)
		if err != nil {
			return err
		}
		if ofTheTest[name] == "" {
			out = append(out, "`~/"+name+"`:\n\n```"+strings.TrimPrefix(filepath.Ext(name), ".")+"\n"+strings.TrimSpace(string(text))+"\n```\n")
		}
		return nil
	}))
	run := "```bash\n"
	for _, e := range env {
		run += "export " + strings.ReplaceAll(e, home, "$HOME") + "\n"
	}
	args[0] = filepath.Base(args[0])
	return append(out, run+strings.ReplaceAll(strings.Join(args, " "), prompt, `"`+shownPrompt+`"`)+"\n```\n")
}
