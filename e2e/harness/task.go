package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// The task: sum.sh subtracts. Its texts hold what gateways like to spoil: quotes,
// dollars, a backslash, letters that are not ASCII.
const (
	wrongLine = `echo $(( $1 - $2 )) # "Summe", größer \ kleiner`
	rightLine = `echo $(( $1 + $2 )) # "Summe", größer \ kleiner`

	// A script's source must not hold the words that its output is known by.
	testSource = `#!/bin/sh
if [ "$(sh sum.sh 2 3)" = 5 ]; then
	echo ICE-TEST-"OK"
else
	echo ICE-TEST-"FAILED"
	exit 1
fi
`
	prompt      = "The test in test.sh fails. Find out why, fix sum.sh, and show that the test passes."
	secondWords = "Thank you. Say once more what was wrong."
)

// What the agent knows its own way by.
const (
	failedMark = "ICE-TEST-FAILED"
	passedMark = "ICE-TEST-OK"
	editedMark = "ICE-EDITED"
	reportMark = "ICE-REPORT"
	subtaskTag = "ICE-SUBTASK"
)

// makeTask makes dir a small git repository with a test that fails.
func makeTask(ctx context.Context, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make task: %w", err)
	}
	files := map[string]string{"sum.sh": "#!/bin/sh\n" + wrongLine + "\n", "test.sh": testSource}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("make task: %w", err)
		}
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"commit", "-q", "-m", "A sum, and its test"}} {
		args = append([]string{"-c", "user.name=e2e", "-c", "user.email=e2e@localhost", "-c", "init.defaultBranch=main"}, args...)
		cmd := exec.CommandContext(ctx, "git", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("make task: git %s: %w: %s", args[len(args)-1], err, out)
		}
	}
	return nil
}

// solved says whether the task's test passes in dir.
func solved(ctx context.Context, dir string) bool {
	cmd := exec.CommandContext(ctx, "sh", "test.sh")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return err == nil && strings.TrimSpace(string(out)) == passedMark
}
