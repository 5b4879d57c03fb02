package warehouse

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// niceness is by how much the child yields to its server: a statement that keeps
// all processors busy must not make acknowledgements wait.
const niceness = 5

// yieldToServer lowers the priority of this process. Linux keeps a priority per
// thread; threads that come later have that of the one that starts them.
func yieldToServer() {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return
	}
	for _, t := range tasks {
		if id, err := strconv.Atoi(t.Name()); err == nil {
			_ = unix.Setpriority(unix.PRIO_PROCESS, id, niceness) // it is a courtesy
		}
	}
}
