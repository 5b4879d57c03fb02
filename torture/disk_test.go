package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// inNamespace marks the test process that unshare started.
const inNamespace = "ICECORE_TORTURE_NAMESPACE"

// smallDisk mounts a file system of its own for a test. Who may not mount runs
// the test again in a namespace where he may; where that is forbidden too the
// test is skipped. The second result says that the other process did the test.
func smallDisk(t *testing.T, mib int) (dir string, done bool) {
	t.Helper()
	dir = t.TempDir()
	err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", mib))
	if err == nil {
		t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
		return dir, false
	}
	if os.Getenv(inNamespace) != "" || exec.Command("unshare", "-rm", "true").Run() != nil {
		t.Skipf("NOT TESTED: what happens when the disk is full. A small file system can be mounted neither directly (%v) nor under unshare -rm", err)
	}
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command("unshare", "-rm", self, "-test.v", "-test.run", "^"+t.Name()+"$",
		fmt.Sprintf("-torture.seed=%d", *seed), fmt.Sprintf("-torture.rounds=%d", *rounds))
	cmd.Env = append(os.Environ(), inNamespace+"=1")
	out, err := cmd.CombinedOutput()
	t.Logf("in a namespace: %s", out)
	require.NoError(t, err)
	return dir, true
}

// filler takes space away and gives it back.
type filler struct{ path string }

// leave fills the file system until only free bytes are left.
func (f *filler) leave(t *testing.T, free int64) {
	t.Helper()
	var st syscall.Statfs_t
	require.NoError(t, syscall.Statfs(filepath.Dir(f.path), &st))
	n := int64(st.Bavail)*st.Bsize - free
	if n <= 0 {
		return
	}
	out, err := os.OpenFile(f.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	require.NoError(t, err)
	block := make([]byte, 64<<10)
	for n > 0 {
		k, err := out.Write(block[:min(n, int64(len(block)))])
		n -= int64(k)
		if err != nil {
			break // full before we thought
		}
	}
	require.NoError(t, out.Close())
}

func (f *filler) free(t *testing.T) {
	t.Helper()
	require.NoError(t, ignoreMissing(os.Remove(f.path)))
}

// TestDiskFull runs out of space for real, in whichever database it hits.
func TestDiskFull(t *testing.T) { diskFull(t, "--disk-floor=0B", 0) }

// TestDiskFloor stops taking in before that.
func TestDiskFloor(t *testing.T) { diskFull(t, "--disk-floor=6MiB", 6<<20) }

func diskFull(t *testing.T, flag string, floor int64) {
	t.Parallel()
	disk, done := smallDisk(t, 160)
	if done {
		return
	}
	r := rand.New(rand.NewPCG(*seed, 7))
	m, w := newMaker(*seed, "d"), newWorld(*seed)
	dir, f := filepath.Join(disk, "data"), &filler{filepath.Join(disk, "filler")}
	s := startFull(t, dir, flag)
	times := 0
	for round := range *rounds {
		w.grow(m, 3, 5)
		store(t, w, s)
		// From none at all to enough for a few commits.
		f.leave(t, floor+int64(r.IntN(r.IntN(1200)+1))<<10)
		l := newLoader(w, s.url)
		l.lenient = true
		ctx, cancel := context.WithCancel(context.Background())
		loaded := make(chan struct{})
		go func() {
			defer close(loaded)
			for ctx.Err() == nil && s.alive() && len(l.faults()) == 0 {
				l.run(ctx, 3)
				time.Sleep(time.Millisecond)
			}
		}()
		full := fillUp(l, w, m)
		times += full
		require.Empty(t, l.faults(), "%s", s.stderr)
		time.Sleep(time.Duration(r.IntN(1500)) * time.Millisecond)
		require.True(t, s.alive(), "the server ended on a full disk: %v\n%s", s.err, s.stderr)
		said := s.stderr
		// Half of the time it dies like this, and half of those times it has to
		// start like this.
		if r.IntN(2) == 0 {
			s.kill()
			cancel()
			<-loaded
			if r.IntN(2) == 0 {
				if early, err := launch(dir, "", append(busy, flag)...); err == nil {
					early.kill()
				} else {
					require.False(t, early.killedBySignal(), "%v", err)
				}
			}
			f.free(t)
			s = startFull(t, dir, flag)
			require.Empty(t, l.faults())
			store(t, w, s)
		} else {
			f.free(t)
			for until := time.Now().Add(30 * time.Second); w.unsettled() && time.Now().Before(until) && len(l.faults()) == 0; {
				time.Sleep(10 * time.Millisecond)
			}
			cancel()
			<-loaded
			require.NoError(t, errors.Join(l.faults()...))
			require.Zero(t, w.left(), "round %d: space is there again, and nothing is stored; answers %v\n%s", round, l.answered(), s.stderr)
		}
		check(t, w, s, 30)
		for code := range l.answered() {
			require.Equal(t, "disk_full", code, "%s", said)
		}
		t.Logf("round %d: answers %v", round, l.answered())
	}
	require.NotZero(t, times, "the disk never was full")
	s.stop(t)
	verified(t, dir)
	finishAll(t, dir, w)
}

func startFull(t *testing.T, dir, flag string) *server {
	t.Helper()
	s, err := launch(dir, "", append(busy[:len(busy):len(busy)], flag)...)
	require.NoError(t, err)
	t.Cleanup(s.kill)
	return s
}

// fillUp makes more until the server has said several times that its disk is
// full.
func fillUp(l *loader, w *world, m *maker) (full int) {
	// Files that were larger once go on for a while without growing.
	until := time.Now().Add(6 * time.Second)
	for time.Now().Before(until) && len(l.faults()) == 0 {
		if l.answered()["disk_full"] > 20 {
			return 1
		}
		if w.left() < 60 {
			w.grow(m, 4, 6)
		}
		time.Sleep(2 * time.Millisecond)
	}
	return 0
}

func (l *loader) answered() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]int{}
	for k, n := range l.again {
		out[k] = n
	}
	return out
}

// TestFaults makes single writes fail: the server goes on, and what was not
// acknowledged can be sent again.
func TestFaults(t *testing.T) {
	t.Parallel()
	dir := scratch(t)
	r := rand.New(rand.NewPCG(*seed, 8))
	m, w := newMaker(*seed, "f"), newWorld(*seed)
	for i, point := range []string{"commit.before", "commit.after", "drain.inside", "drain.after", "checkpoint.before",
		"checkpoint.after", "publish.inside"} {
		for j, fault := range []string{"enospc", "eio"} {
			if *rounds < 4 && (i+j+int(*seed))%2 == 0 {
				continue // the short form makes one of them
			}
			w.grow(m, 3, 5)
			armed := fmt.Sprintf("%s=%s@%d", point, fault, 1+r.IntN(3))
			s, err := launch(dir, armed, busy...)
			require.NoError(t, err)
			t.Cleanup(s.kill)
			l := newLoader(w, s.url)
			l.lenient = true
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			l.run(ctx, 3)
			cancel()
			require.NoError(t, errors.Join(l.faults()...), "%s: %s", armed, s.stderr)
			require.Zero(t, w.left(), "%s: not everything could be stored: %v\n%s", armed, l.answered(), s.stderr)
			check(t, w, s, 20)
			if !strings.Contains(s.stderr.String(), "level=ERROR") && len(l.answered()) == 0 {
				t.Logf("%s was not reached", armed)
			}
			s.stop(t)
		}
	}
	verified(t, dir)
	finishAll(t, dir, w)
}
