package warehouse

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// childMode, in the environment, makes this test's program a child: "serve", or
// a way to die before it has opened anything.
const childMode = "ICECORE_TEST_CHILD"

func TestMain(m *testing.M) {
	switch mode := os.Getenv(childMode); mode {
	case "":
		goleak.VerifyTestMain(m)
	case "serve":
		fmt.Fprintln(os.Stderr, serve(Serving{}, testAsk))
	case "crash":
		_ = syscall.Kill(os.Getpid(), syscall.SIGSEGV)
		select {}
	case "killed":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	os.Exit(1)
}

// testAsk stands for Engine.Ask: statements that do what DuckDB does only now
// and then.
func testAsk(ctx context.Context, e *Engine, a Ask, each func(arrow.RecordBatch) error) (Reply, error) {
	var r Reply
	switch a.SQL {
	case "echo":
		return r, each(numbers(1))
	case "crash":
		_ = syscall.Kill(os.Getpid(), syscall.SIGSEGV)
		select {}
	case "hog":
		var held [][]byte
		for ctx.Err() == nil {
			block := make([]byte, 16<<20)
			for i := 0; i < len(block); i += 4096 {
				block[i] = 1
			}
			held = append(held, block)
		}
		return r, fmt.Errorf("held %d blocks: %w", len(held), ctx.Err())
	case "stop when told":
		if err := each(numbers(1)); err != nil {
			return r, err
		}
		<-ctx.Done()
		return r, ctx.Err()
	case "never stop":
		select {}
	case "die":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "fault":
		return r, &Fault{Code: FaultBinding, Message: "no such thing", Position: 7}
	}
	var args []any
	args = append(args, a.Params...)
	err := e.Query(ctx, func(rec arrow.RecordBatch) error {
		r.Rows += rec.NumRows()
		return each(rec)
	}, a.SQL, args...)
	return r, err
}

func testOptions(dir string) Options {
	return Options{MemoryLimit: 256 * mib, Threads: 1, TempDir: filepath.Join(dir, "tmp"), AsItIs: true}
}

// childCommand starts this program in a mode.
func childCommand(mode string) *exec.Cmd {
	cmd := exec.Command(os.Args[0]) //nolint:noctx // it ends with its control socket
	cmd.Env = append(os.Environ(), childMode+"="+mode)
	return cmd
}

// startChild starts a child on a fresh file with the table ice.numbers.
func startChild(t *testing.T, how ChildOptions) *Child {
	t.Helper()
	dir := t.TempDir()
	if how.Command == nil {
		how.Command = func() *exec.Cmd { return childCommand("serve") }
	}
	how.Log = quiet
	c, err := Start(t.Context(), filepath.Join(dir, "w.duckdb"), testOptions(dir), how)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	prepare(t, c)
	return c
}

// waist is what Engine and Child have in common.
type waist interface {
	Apply(ctx context.Context, adds []Addition, before func() error, stmts ...string) error
	Query(ctx context.Context, each func(arrow.RecordBatch) error, text string, args ...any) error
	Int(ctx context.Context, text string) (int64, error)
	Checkpoint(ctx context.Context) (clean bool, err error)
	Heal(ctx context.Context) (healed bool, err error)
	Close() error
}

func prepare(t *testing.T, w waist) {
	t.Helper()
	require.NoError(t, w.Apply(t.Context(), nil, nil, `CREATE SCHEMA ice`,
		`CREATE TABLE ice.numbers (n BIGINT, name VARCHAR, ids INTEGER[])`, `CREATE TABLE ice.others (n BIGINT)`))
}

var numbersSchema = arrow.NewSchema([]arrow.Field{
	{Name: "n", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
	{Name: "name", Type: arrow.BinaryTypes.String, Nullable: true},
	{Name: "ids", Type: arrow.ListOf(arrow.PrimitiveTypes.Int32), Nullable: true},
}, nil)

// numbers makes rows of ice.numbers: n, its name, and a list of n%5 times n;
// every seventh name and list is NULL.
func numbers(ns ...int64) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, numbersSchema)
	defer b.Release()
	names, lists := b.Field(1).(*array.StringBuilder), b.Field(2).(*array.ListBuilder)
	for _, n := range ns {
		b.Field(0).(*array.Int64Builder).Append(n)
		if n%7 == 0 {
			names.AppendNull()
			lists.AppendNull()
			continue
		}
		names.Append(fmt.Sprint("number ", n))
		lists.Append(true)
		for range n % 5 {
			lists.ValueBuilder().(*array.Int32Builder).Append(int32(n))
		}
	}
	return b.NewRecordBatch()
}

func upTo(n int64) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = int64(i)
	}
	return out
}

func add(recs ...arrow.RecordBatch) []Addition { return []Addition{{Table: "numbers", Records: recs}} }

// read gives a query's rows, each as text.
func read(t require.TestingT, w waist, text string, args ...any) (out []string) {
	err := w.Query(context.Background(), func(rec arrow.RecordBatch) error {
		for row := range int(rec.NumRows()) {
			var cells []string
			for _, c := range rec.Columns() {
				cells = append(cells, c.ValueStr(row))
			}
			out = append(out, strings.Join(cells, "|"))
		}
		return nil
	}, text, args...)
	require.NoError(t, err)
	return out
}

// eventually waits for what nobody announces.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(2 * time.Millisecond) {
		require.True(t, time.Now().Before(deadline), "waited in vain: %s", what)
	}
}

// killNow kills the running process as a stranger would, and waits for its end.
func killNow(t require.TestingT, c *Child) {
	p, err := c.process(context.Background())
	require.NoError(t, err)
	_ = p.cmd.Process.Kill() // it may have ended already
	<-p.exited
}

var errConsumer = errors.New("the consumer has had enough")
