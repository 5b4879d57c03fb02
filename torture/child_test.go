package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// childDeaths are the places where the warehouse's process dies alone.
var childDeaths = []death{
	{"child.apply.before_commit", 6}, {"child.apply.after_commit", 6}, {"child.checkpoint", 3}, {"child.query", 20},
	{"any moment", 0},
}

// TestChildKilled kills the warehouse's process over and over under load. No
// request to store something is answered otherwise because of it, and everything
// is there once.
func TestChildKilled(t *testing.T) {
	t.Parallel()
	dir := scratch(t)
	r := rand.New(rand.NewPCG(*seed, 12))
	m, w := newMaker(*seed, "c"), newWorld(*seed)
	deaths := map[string]int{}
	for range *rounds {
		for _, i := range r.Perm(len(childDeaths)) {
			d := childDeaths[i]
			w.grow(m, 6**load, 6)
			failpoint := ""
			if d.most > 0 {
				failpoint = fmt.Sprintf("%s=kill@%d", d.point, 1+r.IntN(d.most))
			}
			s, err := launch(dir, failpoint, busy...)
			require.NoError(t, err, "start with %q", failpoint)
			t.Cleanup(s.kill)
			l := newLoader(w, s.url)
			done := make(chan struct{})
			go func() { defer close(done); l.run(t.Context(), 4) }()
			if d.most == 0 {
				// The second may meet a process that has only just come back.
				for range 2 {
					time.Sleep(time.Duration(r.IntN(60)) * time.Millisecond)
					if pid := childOf(s); pid != 0 {
						_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended already
					}
				}
			}
			<-done
			require.NoError(t, errors.Join(l.faults()...), "%s: server said: %s", d.point, s.stderr)
			require.Empty(t, l.again, "nobody was asked to send again")
			require.Zero(t, w.left())
			check(t, w, s, 10)
			deaths[d.point] += strings.Count(s.stderr.String(), "the warehouse's process was lost")
			childComplaints(t, s)
			if r.IntN(2) == 0 {
				s.stop(t)
				verified(t, dir)
				continue
			}
			endsTogether(t, s)
		}
	}
	t.Logf("the warehouse's process was lost: %v", deaths)
	finishAll(t, dir, w)
}

// endsTogether kills a server and waits until its warehouse's process is gone.
func endsTogether(t *testing.T, s *server) {
	t.Helper()
	child := childOf(s)
	s.kill()
	if child == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for {
		// What is left of it until somebody asks how it ended has no command line.
		line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(child), "cmdline"))
		if err != nil || len(line) == 0 {
			return
		}
		require.NoError(t, ctx.Err(), "the warehouse's process outlives its server")
		time.Sleep(time.Millisecond)
	}
}

// childOf is the warehouse's process of a server; 0: there is none now.
func childOf(s *server) int {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", s.cmd.Process.Pid)) // the pattern is good
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if fields := strings.Fields(string(text)); err == nil && len(fields) > 0 {
			pid, err := strconv.Atoi(fields[0])
			if err == nil {
				return pid
			}
		}
	}
	return 0
}

// childComplaints are complaints but for those over the process's death.
func childComplaints(t *testing.T, s *server) {
	t.Helper()
	for line := range strings.SplitSeq(s.stderr.String(), "\n") {
		if !strings.Contains(line, "level=ERROR") && !strings.Contains(line, "panic") && !strings.Contains(line, "DATA RACE") {
			continue
		}
		if strings.Contains(line, "the warehouse's process was lost") ||
			strings.Contains(line, "the warehouse's process cannot be started") && strings.Contains(line, "signal: killed") ||
			strings.Contains(line, "merge failed; it will be tried again") && strings.Contains(line, "its process ended") {
			continue
		}
		t.Errorf("the server said: %s", line)
	}
}
