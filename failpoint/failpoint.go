//go:build failpoint

// Package failpoint lets the torture test kill the process, or make a write
// fail, at a named place. Only binaries built with the tag "failpoint" can.
package failpoint

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

var (
	mu    sync.Mutex
	armed = parse(os.Getenv("ICECORE_FAILPOINT"))
)

// point is one armed place: act at the n-th hit.
type point struct {
	left int
	act  string
}

// parse reads "name=kill@3,other=enospc@1": what to do and at which hit.
func parse(spec string) map[string]*point {
	points := map[string]*point{}
	for part := range strings.SplitSeq(spec, ",") {
		name, rest, ok := strings.Cut(part, "=")
		if !ok {
			continue
		}
		act, nth, _ := strings.Cut(rest, "@")
		n, err := strconv.Atoi(nth)
		if err != nil {
			n = 1
		}
		points[name] = &point{left: n, act: act}
	}
	return points
}

// Hit dies, or returns the error armed for this place.
func Hit(name string) error {
	mu.Lock()
	defer mu.Unlock()
	p := armed[name]
	if p == nil {
		return nil
	}
	if p.left--; p.left != 0 {
		return nil
	}
	switch p.act {
	case "enospc":
		return syscall.ENOSPC
	case "eio":
		return syscall.EIO
	default:
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // the signal is on its way; nothing may happen after this line
	}
}
