package doctest

import (
	"bufio"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fence is one code block of a page.
type fence struct {
	line    int
	kind    string // sh, python, json, text, …
	body    string
	stopped bool   // below <!-- server stopped -->
	want    *fence // what it must print
}

// readFences gives the blocks of a page. An output block belongs to the command
// above it when no heading and at most one line of prose stands between.
func readFences(t *testing.T, path string) []*fence {
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close() //nolint:errcheck // it was only read
	var all []*fence
	var open *fence
	prose, stopped := 0, false
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		info, isFence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case open == nil && isFence:
			open = &fence{line: n, kind: info, stopped: stopped}
			stopped = false
		case isFence:
			all = append(all, open)
			if (open.kind == "json" || open.kind == "text") && len(all) > 1 && prose <= 1 {
				if above := all[len(all)-2]; above.runs() {
					above.want = open
				}
			}
			open, prose = nil, 0
		case open != nil:
			open.body += line + "\n"
		case strings.HasPrefix(line, "#"):
			prose = 2
		case line == "<!-- server stopped -->":
			stopped = true
		case line != "":
			prose++
		}
	}
	require.NoError(t, lines.Err())
	require.Nil(t, open, "%s: a code block is not closed", path)
	return all
}

func (f *fence) runs() bool { return f.kind == "sh" || f.kind == "python" }

// commands gives the lines that are not blank or comments.
func (f *fence) commands() []string {
	var out []string
	for line := range strings.SplitSeq(f.body, "\n") {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			out = append(out, line)
		}
	}
	return out
}
