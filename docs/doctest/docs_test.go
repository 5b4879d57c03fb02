package doctest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// root is the repository.
const root = "../.."

// shown is the address that the pages use.
const shown = "127.0.0.1:7470"

// shownEngine is that of an engine.
const shownEngine = "127.0.0.1:8000"

// patience is how long one example may take.
const patience = 2 * time.Minute

// elsewhere lists commands that are not run as they stand, and why. Of make's
// targets it is checked that they exist.
var elsewhere = map[string]string{
	"make demo":         "its second half runs here: TestDemo",
	"make test":         "this test is part of it",
	"make build":        "it made the binary that is tested here",
	"make run":          "make build and bin/icecore serve",
	"make lint":         "run for every change, before the tests",
	"make fuzz":         "run for every change, before the tests",
	"make torture":      "run for every change, before the tests",
	"make bench":        "takes minutes, and tells nothing that is right or wrong",
	"make fmt":          "make test says whether anything is left to format",
	"make venv":         "make test begins with it",
	"make client":       "make test begins with it",
	"make wheel":        "clients/python/tests/test_wheel.py builds and installs it",
	"make e2e-harness":  "run for every change, before the tests",
	"make e2e-vllm":     "installs gigabytes; run by hand",
	"bin/icecore serve": "the page's own server; with flags it is started and stopped here",
}

func pages(t *testing.T) []string {
	t.Helper()
	docs, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	require.NoError(t, err)
	return append([]string{filepath.Join(root, "README.md"), filepath.Join(root, "CONTRIBUTING.md"),
		filepath.Join(root, "clients", "python", "README.md")}, docs...)
}

// TestExamples runs the examples of every page.
func TestExamples(t *testing.T) {
	for _, path := range pages(t) {
		name := filepath.Base(path)
		if strings.Contains(path, "clients") {
			// A second README.md would bring a # into the path of its data directory,
			// which the server refuses.
			name = "client-" + name
		}
		t.Run(name, func(t *testing.T) {
			fences := readFences(t, path)
			p := &page{path: path, dir: workDir(t)}
			for _, f := range fences {
				if !f.runs() {
					continue
				}
				if f.stopped {
					p.stop(t)
				} else if p.server == nil {
					p.server = startServer(t, p.dir, nil)
				}
				p.run(t, f)
			}
			p.stop(t)
			if p.engine != nil {
				p.engine.stop(t)
			}
		})
	}
}

// page is a document whose examples share a directory and a server, and an engine if
// there is one.
type page struct {
	path   string
	dir    string
	server *server
	engine *server
}

func (p *page) stop(t *testing.T) {
	if p.server != nil {
		p.server.stop(t)
		p.server = nil
	}
}

func (p *page) run(t *testing.T, f *fence) {
	t.Helper()
	if f.kind == "sh" && p.special(t, f) {
		return
	}
	body := p.real(f.body)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", body)
	if f.kind == "python" {
		cmd = exec.CommandContext(ctx, python(t), "-c", body)
	}
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), "PYTHONWARNINGS=error", "PYTHONPATH="+clientSource(t))
	if p.server != nil {
		// Subcommands without --server mean the default address.
		cmd.Env = append(cmd.Env, "ICECORE_SERVER=http://"+p.server.addr)
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s:%d:\n%s\nprinted:\n%s%s", p.path, f.line, f.body, out, stderr.String())
	got := p.asShown(string(out))
	if f.want != nil {
		d := compare(f.want, got)
		require.Empty(t, d, "%s:%d: %s\nshown:\n%s\nprinted:\n%s", p.path, f.want.line, d, f.want.body, got)
	}
}

// real puts the addresses of what runs in the place of those that the pages show.
func (p *page) real(text string) string {
	if p.server != nil {
		text = strings.ReplaceAll(text, shown, p.server.addr)
	}
	if p.engine != nil {
		text = strings.ReplaceAll(text, shownEngine, p.engine.addr)
	}
	return text
}

func (p *page) asShown(text string) string {
	if p.server != nil {
		text = strings.ReplaceAll(text, p.server.addr, shown)
	}
	if p.engine != nil {
		text = strings.ReplaceAll(text, p.engine.addr, shownEngine)
	}
	return text
}

// special takes fences whose commands are named in elsewhere.
func (p *page) special(t *testing.T, f *fence) bool {
	t.Helper()
	done := 0
	lines := f.commands()
	for _, line := range lines {
		words := strings.Fields(line)
		switch {
		case words[0] == "make":
			p.makeTarget(t, f, words)
		case words[0] == "pip":
			p.pip(t, f, words)
		case strings.HasPrefix(line, "bin/icecore test-engine"):
			require.Nil(t, p.engine, "%s:%d: the page has a test engine already", p.path, f.line)
			p.engine = startEngine(t, p.dir, words[2:]...)
		case strings.Contains(line, "bin/icecore serve"):
			p.serves(t, line)
		default:
			continue
		}
		done++
	}
	require.True(t, done == 0 || done == len(lines), "%s:%d: commands that run and such that do not stand in one block", p.path, f.line)
	return done > 0
}

func (p *page) makeTarget(t *testing.T, f *fence, words []string) {
	t.Helper()
	require.Contains(t, elsewhere, strings.Join(words[:2], " "), "%s:%d: say in the table where this is tested", p.path, f.line)
	cmd := exec.CommandContext(t.Context(), "make", append([]string{"--dry-run"}, words[1:]...)...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s:%d: %s", p.path, f.line, out)
}

// pip installs what a page says from the repository, into a directory of its own and
// with what is here already: it needs no network.
func (p *page) pip(t *testing.T, f *fence, words []string) {
	t.Helper()
	to := t.TempDir()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, python(t), append([]string{"-m", "pip", "--disable-pip-version-check"}, append(words[1:],
		"--no-index", "--no-deps", "--no-build-isolation", "--target", to)...)...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s:%d: %s", p.path, f.line, out)
	require.FileExists(t, filepath.Join(to, "icecore", "__init__.py"), "%s:%d: %s", p.path, f.line, out)
}

// serves starts a server with the flags that the page shows, in a directory of
// its own, and stops it again. One with a gateway is the page's from there on.
func (p *page) serves(t *testing.T, line string) {
	t.Helper()
	if p.engine != nil {
		line = strings.ReplaceAll(line, shownEngine, p.engine.addr)
	}
	env, args, _ := strings.Cut(line, "bin/icecore serve")
	if strings.Contains(line, "--engine") || strings.Contains(line, "--gateway") {
		p.stop(t)
		p.server = startServer(t, p.dir, strings.Fields(env), strings.Fields(args)...)
		return
	}
	s := startServer(t, workDir(t), strings.Fields(env), strings.Fields(args)...)
	s.stop(t)
}

// TestDemo runs what `make demo` runs, and looks for what the README says that
// it shows.
func TestDemo(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary(t), "demo", "--once")
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, what := range []string{"598 traces stored", "strict_tree", "polar_compat", "claude-code", "codex", "pi", "qwen-code",
		"abandoned_retry", "dropped_by_policy", "loss_mask", "new_prompt_tokens", "pass@1 %"} {
		require.Contains(t, string(out), what)
	}
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// TestLinks: what a page points to is there.
func TestLinks(t *testing.T) {
	more, err := filepath.Glob(filepath.Join(root, "docs", "decisions", "*.md"))
	require.NoError(t, err)
	for _, path := range append(pages(t), more...) {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			target := path
			if file != "" {
				target = filepath.Join(filepath.Dir(path), file)
			}
			info, err := os.Stat(target)
			require.NoError(t, err, "%s links to %s", path, m[1])
			if anchor != "" && !info.IsDir() {
				require.Contains(t, anchors(t, target), anchor, "%s links to %s", path, m[1])
			}
		}
	}
}

// anchors are the headings of a page, as links name them.
func anchors(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var out []string
	for line := range strings.SplitSeq(string(text), "\n") {
		if title := strings.TrimLeft(line, "#"); title != line {
			out = append(out, regexp.MustCompile(`[^\p{L}\p{N}_ -]`).ReplaceAllString(
				strings.ReplaceAll(strings.ToLower(strings.TrimSpace(title)), " ", "-"), ""))
		}
	}
	return out
}
