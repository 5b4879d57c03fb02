package store

import (
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

type machineSize struct {
	memory int64
	cpus   int
}

// Memory says how many bytes of memory this process may use: of the machine, or of its
// cgroup.
func Memory() int64 { return machine().memory }

// machine says how much memory and how many processors this process may use: a
// container's limits where there are any, else the machine's own.
func machine() machineSize {
	m := machineSize{memory: 2 << 30, cpus: runtime.NumCPU()}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err == nil {
		m.memory = int64(info.Totalram) * int64(info.Unit)
	}
	return m.limited(os.ReadFile)
}

// limited applies the limits of cgroup v2 or v1 as files say them.
func (m machineSize) limited(read func(string) ([]byte, error)) machineSize {
	number := func(path string) (int64, bool) {
		b, err := read(path)
		if err != nil {
			return 0, false
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
		return n, err == nil && n > 0
	}
	for _, path := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		if n, ok := number(path); ok {
			m.memory = min(m.memory, n)
			break
		}
	}
	quota, period := int64(0), int64(0)
	if b, err := read("/sys/fs/cgroup/cpu.max"); err == nil {
		if f := strings.Fields(string(b)); len(f) == 2 {
			quota, _ = strconv.ParseInt(f[0], 10, 64) // "max" parses to 0: no limit
			period, _ = strconv.ParseInt(f[1], 10, 64)
		}
	} else if q, ok := number("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"); ok {
		quota = q
		period, _ = number("/sys/fs/cgroup/cpu/cpu.cfs_period_us")
	}
	if quota > 0 && period > 0 {
		m.cpus = min(m.cpus, int((quota+period-1)/period))
	}
	m.cpus = max(m.cpus, 1)
	return m
}
