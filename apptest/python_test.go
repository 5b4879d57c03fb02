package apptest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// python is the interpreter that has pyarrow, found once.
var python = sync.OnceValue(func() string {
	candidates := []string{os.Getenv("ICECORE_PYTHON")}
	if venv, err := filepath.Abs(filepath.Join(root, ".venv", "bin", "python")); err == nil {
		candidates = append(candidates, venv)
	}
	for _, path := range append(candidates, "python3") {
		if path != "" && exec.Command(path, "-c", "import pyarrow").Run() == nil { //nolint:noctx // a moment
			return path
		}
	}
	return ""
})

const noPython = "no Python with pyarrow was found: run `make venv`, or name one in ICECORE_PYTHON"

// py runs a program; what it prints is the answer.
func py(t *testing.T, program string, stdin []byte, args ...string) string {
	t.Helper()
	out, stderr, err := tryPy(t, program, stdin, args...)
	require.NoError(t, err, "%s", stderr)
	return out
}

// leave ends the interpreter without taking pyarrow's threads down: after a
// Parquet file was read from a Python object that sometimes aborts, or hangs,
// though all was read (apache/arrow #34314, #50482).
const leave = "\nimport os, sys\nsys.stdout.flush()\nos._exit(0)\n"

func tryPy(t *testing.T, program string, stdin []byte, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	require.NotEmpty(t, python(), noPython)
	var out, log bytes.Buffer
	cmd := exec.CommandContext(t.Context(), python(), append([]string{"-c", program + leave}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &out, &log
	err = cmd.Run()
	return out.String(), log.String(), err
}
