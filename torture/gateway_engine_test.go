package torture

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/enginetest"
)

// engineProcess is a test engine in a process of its own, at the same address each time
// that it is started. Each start has a ledger of its own, since each counts from 1.
type engineProcess struct {
	dir     string
	address string
	starts  int
	cmd     *exec.Cmd
}

func newEngine(t *testing.T) *engineProcess {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a moment
	require.NoError(t, err)
	e := &engineProcess{dir: t.TempDir(), address: l.Addr().String()}
	require.NoError(t, l.Close())
	script := `{"agent": "echo", "think": "Well.", "sampling": {"drift": true, "by_attempt": true}, "chunks": {"sizes": [1, 3, 2]}}`
	require.NoError(t, os.WriteFile(filepath.Join(e.dir, "script.json"), []byte(script), 0o600))
	t.Cleanup(e.kill)
	return e
}

// start runs it until kill, and comes back when it listens.
func (e *engineProcess) start(t *testing.T) {
	t.Helper()
	e.starts++
	e.cmd = exec.Command(icecore, "test-engine", "--listen", e.address, "--delay", "400us", "--seed", fmt.Sprint(e.starts),
		"--script", filepath.Join(e.dir, "script.json"), "--ledger", filepath.Join(e.dir, fmt.Sprintf("%d.ledger", e.starts)))
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	e.cmd.Stderr = os.Stderr
	out, err := e.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, e.cmd.Start())
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.Contains(lines.Text(), "/vllm") {
	}
	require.Contains(t, lines.Text(), e.address)
	go func() { // what it still has to say
		for lines.Scan() {
		}
	}()
}

// kill is kill -9.
func (e *engineProcess) kill() {
	if e.cmd != nil {
		_ = e.cmd.Process.Kill() // it may have ended already
		_ = e.cmd.Wait()
		e.cmd = nil
	}
}

// ledger gives what all starts noted, by the id that icecore gave a call. A call may
// have been asked for twice, when the first time came to nothing.
func (e *engineProcess) ledger(t *testing.T) map[string][]enginetest.Entry {
	t.Helper()
	all := map[string][]enginetest.Entry{}
	for n := range e.starts {
		f, err := os.Open(filepath.Join(e.dir, fmt.Sprintf("%d.ledger", n+1)))
		require.NoError(t, err)
		for _, entry := range enginetest.ReadLedger(f) {
			if len(entry.Choices) > 0 {
				all[entry.RequestID] = append(all[entry.RequestID], entry)
			}
		}
		require.NoError(t, f.Close())
	}
	return all
}

// sampledAs says whether a trace holds what one of the entries sampled: a part of it
// from the beginning, or all when the trace says that it ended well.
func (c *gatewayCall) sampledAs(entries []enginetest.Entry) bool {
	at := 0
	if c.Index != nil {
		at = int(*c.Index)
	}
	return slices.ContainsFunc(entries, func(entry enginetest.Entry) bool {
		if c.Prompt != nil && !slices.Equal(c.Prompt, entry.PromptIDs) || at >= len(entry.Choices) {
			return false
		}
		truth := entry.Choices[at]
		n := len(c.Response)
		if n > len(truth.IDs) || !slices.Equal(c.Response, truth.IDs[:n]) || len(c.Logprobs) > n {
			return false
		}
		for i, p := range c.Logprobs {
			if p == nil || *p != truth.Logprobs[i] {
				return false
			}
		}
		return c.Status != "ok" || n == len(truth.IDs) && len(c.Logprobs) == n && c.Prompt != nil
	})
}
