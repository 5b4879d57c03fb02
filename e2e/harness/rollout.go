package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// patience bounds one run of a harness. It is a net: they take seconds.
const patience = 5 * time.Minute

// rollout is one harness at the task, in one variant.
type rollout struct {
	*suite
	harness *harness
	variant *variant
	id      string
	// script is the model's name at the engine; model what the harness asks for.
	script, model string
	// base is where the gateway is for this rollout.
	base            string
	dir, home, work string
	// compactAt is how many tokens of context make the harness compact; 0: it shall not.
	compactAt int64
	agent     *agent
	// since is the ledger's last entry before it.
	since int64
}

// write makes a file below the harness's home.
func (r *rollout) write(name, text string) error {
	path := filepath.Join(r.home, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

func (r *rollout) writeJSON(name string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return r.write(name, string(text))
}

func (r *rollout) output() string { return filepath.Join(r.dir, "output.txt") }

// run does the task, and tells icecore how it went. The result holds what must not be.
func (r *rollout) run(ctx context.Context) *result {
	res := &result{rollout: r}
	started := time.Now()
	if err := r.attempt(ctx, res); err != nil {
		res.fault("%v", err)
	}
	res.took = time.Since(started)
	return res
}

func (r *rollout) attempt(ctx context.Context, res *result) error {
	if err := makeTask(ctx, r.work); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(r.home, "tmp"), 0o755); err != nil {
		return fmt.Errorf("make home: %w", err)
	}
	r.engine.Script(r.script, r.variant.script(r.agent))
	if before := r.engine.Calls(); len(before) > 0 {
		r.since = before[len(before)-1].Seq
	}
	version, err := r.harness.version(r.modules)
	if err != nil {
		return err
	}
	err = r.server.call(ctx, "PUT", "/v1/rollouts/"+r.id, map[string]any{
		"task_id": "fix-sum", "group_id": r.harness.name, "split": "train", "harness": r.harness.name, "harness_version": version,
	}, nil)
	if err != nil {
		return err
	}
	if err := r.exec(ctx); err != nil {
		res.fault("%v", err)
	}
	done := solved(ctx, r.work)
	if !done {
		res.fault("the task's test does not pass")
	}
	if err := r.finish(ctx, done); err != nil {
		return err
	}
	return r.check(ctx, res)
}

// exec runs the harness to its end.
func (r *rollout) exec(ctx context.Context) error {
	args, env, err := r.harness.start(r)
	if err != nil {
		return err
	}
	out, err := os.Create(r.output())
	if err != nil {
		return fmt.Errorf("run %s: %w", r.harness.name, err)
	}
	defer out.Close() //nolint:errcheck // nothing is lost that is needed
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = r.work
	cmd.Stdout, cmd.Stderr = io.Writer(out), io.Writer(out)
	// Nothing of the caller's environment but where programs are: keys and settings in
	// it must not reach the harness.
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + r.home, "TMPDIR=" + filepath.Join(r.home, "tmp"), "LANG=C.UTF-8", "TERM=dumb", "NO_COLOR=1",
		"CI=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
	}, env...)
	// Its children end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	err = cmd.Run()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // usually none is left
	}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("run %s: it had not ended after %s", r.harness.name, patience)
	case err != nil:
		return fmt.Errorf("run %s: %w", r.harness.name, err)
	}
	return nil
}

func (r *rollout) finish(ctx context.Context, done bool) error {
	status, value := "failed", 0
	if done {
		status, value = "succeeded", 1
	}
	if err := r.server.call(ctx, "POST", "/v1/rollouts/"+r.id+"/finish", map[string]string{"status": status}, nil); err != nil {
		return err
	}
	return r.server.call(ctx, "POST", "/v1/rewards", map[string]any{"reward_id": r.id, "rollout_id": r.id, "value": value}, nil)
}

// describe tells where to look when something is wrong.
func (r *rollout) describe() string {
	return fmt.Sprintf("  rollout %s, directory %s\n  its output ends with:\n    %s", r.id, r.dir,
		strings.ReplaceAll(tail(r.output(), 15), "\n", "\n    "))
}
