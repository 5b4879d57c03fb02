package apptest

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// icecore is the binary under test.
var icecore string

// root is the repository.
const root = ".."

func TestMain(m *testing.M) {
	flag.Parse()
	// A failure prints its seed; no file is left in the repository.
	_ = flag.Set("rapid.nofailfile", "true")
	os.Exit(run(m))
}

func run(m *testing.M) int {
	race := os.Getenv("APPTEST_RACE") == "1"
	if icecore = os.Getenv("ICECORE_BINARY"); icecore != "" && !race {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "icecore-apptest-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a leftover in the temporary directory
	icecore = filepath.Join(dir, "icecore")
	args := []string{"build", "-buildvcs=false", "-tags", "duckdb_arrow", "-o", icecore}
	if race {
		args = append(args, "-race")
	}
	out, err := exec.Command("go", append(args, "icecore/cmd/icecore")...).CombinedOutput() //nolint:noctx // the tests wait for it
	if err != nil {
		fmt.Fprintf(os.Stderr, "build icecore: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}
