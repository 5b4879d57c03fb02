package apptest

import (
	"bytes"
	"encoding/csv"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"
)

// query runs icecore query; env comes as NAME=value.
func (s *server) query(stdin string, args ...string) (stdout, stderr string, err error) {
	s.t.Helper()
	return command(s.t, strings.NewReader(stdin), append([]string{"query", "--server", s.url}, args...)...)
}

func TestQueryCommand(t *testing.T) {
	t.Parallel()
	s := start(t)
	var prompt []int32
	for i := range int32(1000) {
		prompt = append(prompt, i)
	}
	s.send("POST", "/v1/traces?ack=queryable", jsonArray([]call{plain("r-1", "t-1", 1, prompt, ids(4, 5)), plain("r-2", "t-2", 10, ids(1), ids(7))}),
		"Content-Type", typeJSON).items()
	const sql = `SELECT trace_id, seq, task_id, prompt_token_ids FROM traces ORDER BY seq`
	const table = ` trace_id | seq | task_id | prompt_token_ids
----------+-----+---------+--------------------------
 t-1      |   1 | NULL    | [0, 1, 2, … 1,000 items]
 t-2      |  10 | NULL    | [1]
(2 rows)
`
	out, log, err := s.query("", sql)
	require.NoError(t, err, log)
	require.Equal(t, table, out)
	out, _, err = s.query(sql + ";\n")
	require.NoError(t, err)
	require.Equal(t, table, out)
	out, _, err = s.query("", "--file", tempFile(t, []byte(sql)))
	require.NoError(t, err)
	require.Equal(t, table, out)

	out, _, err = s.query("", "--param", "r-1", "--param", "2", "--format", "csv", "SELECT trace_id, $2 + 1 AS n FROM traces WHERE rollout_id = $1")
	require.NoError(t, err)
	records, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	require.NoError(t, err)
	require.Equal(t, [][]string{{"trace_id", "n"}, {"t-1", "3"}}, records)
	out, _, err = s.query("", "--param", "id=r-2", "--format", "ndjson", "SELECT trace_id FROM traces WHERE rollout_id = $id")
	require.NoError(t, err)
	require.JSONEq(t, `{"trace_id": "t-2"}`, out)

	out, log, err = s.query("", "--format", "ndjson", "SELECT 1 WHERE false")
	require.NoError(t, err, log)
	require.Empty(t, out)

	out, log, err = s.query("", "--limit", "3", "SELECT * FROM range(5)")
	require.NoError(t, err)
	require.Contains(t, out, "(3 rows, truncated: there are more")
	require.Empty(t, log)
	_, log, err = s.query("", "--limit", "3", "--format", "csv", "SELECT * FROM range(5)")
	require.NoError(t, err)
	require.Contains(t, log, "3 rows, truncated")
	out, _, err = s.query("", "--format", "csv", "SELECT * FROM range(1234)")
	require.NoError(t, err)
	require.Equal(t, 1235, strings.Count(out, "\n"))

	file := filepath.Join(t.TempDir(), "out.parquet")
	_, log, err = s.query("", "--format", "parquet", "--out", file, sql)
	require.NoError(t, err)
	require.Contains(t, log, "2 rows in "+file)
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "['t-1', 't-2']\n", py(t, "import sys, pyarrow as pa, pyarrow.parquet as pq\n"+
		"print(pq.read_table(pa.BufferReader(sys.stdin.buffer.read()))['trace_id'].to_pylist())", raw))
}

// TestQueryCut: who does not look at a terminal gets every row, or is told by the
// exit status that some are missing.
func TestQueryCut(t *testing.T) {
	t.Parallel()
	s := start(t, "--sql-max-rows=2000")
	file := filepath.Join(t.TempDir(), "out.txt")
	for _, format := range []string{"table", "csv"} {
		out, log, err := s.query("", "--format", format, "SELECT * FROM range(1500)")
		require.NoError(t, err, log)
		require.Contains(t, out, "1499")
		require.Empty(t, log)
		_, log, err = s.query("", "--format", format, "--out", file, "SELECT * FROM range(1500)")
		require.NoError(t, err, log)
		require.Contains(t, log, "1,500 rows in "+file)
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Contains(t, string(raw), "1499")

		out, log, err = s.query("", "--format", format, "SELECT * FROM range(2001)")
		require.Equal(t, 3, exitCode(t, err))
		require.Contains(t, out, "1999")
		require.Contains(t, log, "icecore: query: standard output is not the whole answer: 2,000 rows, truncated")
		_, log, err = s.query("", "--format", format, "--out", file, "SELECT * FROM range(2001)")
		require.Equal(t, 3, exitCode(t, err))
		require.Contains(t, log, file+" is not the whole answer")
		require.FileExists(t, file)
		// What was asked for is no less than the answer.
		_, log, err = s.query("", "--format", format, "--limit", "2000", "--out", file, "SELECT * FROM range(2001)")
		require.NoError(t, err, log)
		require.Contains(t, log, "2,000 rows, truncated")
	}
}

func exitCode(t *testing.T, err error) int {
	t.Helper()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	return exit.ExitCode()
}

// TestUsageFaults: a line that is not understood is answered with one line, and
// with a status that no command gives a meaning.
func TestUsageFaults(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"query --colour":             "see icecore query --help",
		"query --format xml SELECT":  "see icecore query --help",
		"nothing":                    "see icecore --help",
		"export":                     "see icecore export --help",
		"trace a b":                  "see icecore trace --help",
		"report --solved-at=perhaps": "see icecore report --help",
	} {
		out, log, err := command(t, strings.NewReader(""), strings.Fields(line)...)
		require.Equal(t, 64, exitCode(t, err), line)
		require.Empty(t, out)
		require.Equal(t, 1, strings.Count(log, "\n"), log)
		require.Contains(t, log, want)
	}
}

// TestServerWithoutScheme: an address that cannot be asked is refused at once, not
// tried again.
func TestServerWithoutScheme(t *testing.T) {
	t.Parallel()
	lines := filepath.Join(t.TempDir(), "traces.ndjson")
	require.NoError(t, os.WriteFile(lines, []byte("{}\n"), 0o600))
	for _, args := range [][]string{{"query", "SELECT 1"}, {"report"}, {"trace", "t-1"}, {"verify"}, {"export", "--out=-"}, {"import", lines}} {
		for address, want := range map[string]string{"localhost:7491": "write http://localhost:7491", "127.0.0.1:7470": "write http://127.0.0.1:7470",
			"ftp://x": "write one like", "http://": "write one like"} {
			_, log, err := command(t, strings.NewReader(""), append(args, "--retry-for=1h", "--server", address)...)
			require.Equal(t, 1, exitCode(t, err))
			require.Contains(t, log, want, args)
			require.NotContains(t, log, "trying again")
		}
	}
}

func TestQueryErrors(t *testing.T) {
	t.Parallel()
	s := start(t)
	_, log, err := s.query("", "SELECT trace_id,\n  colour\nFROM traces")
	require.Error(t, err)
	require.Contains(t, log, "(sql_binding)\nLINE 2:   colour\n          ^\n")
	file := filepath.Join(t.TempDir(), "out.csv")
	_, _, err = s.query("", "--format", "csv", "--out", file, "SELECT colour")
	require.Error(t, err)
	require.NoFileExists(t, file)
	for args, want := range map[string]string{"SELECT 1|--file|x.sql": "one of them", "--param|a=1|--param|2|SELECT 1": "some have names", "--file|nowhere.sql": "read statement",
		"--timeout|50ms|" + long: "sql_timeout"} {
		_, log, err = s.query("", strings.Split(args, "|")...)
		require.Error(t, err)
		require.Contains(t, log, want)
	}
	_, log, err = s.query("")
	require.Error(t, err)
	require.Contains(t, log, "there is no statement")
	_, log, err = command(t, strings.NewReader(""), "query", "--server", "http://127.0.0.1:1", "--retry-for", "10ms", "SELECT 1")
	require.Error(t, err)
	require.Contains(t, log, "no server listens")
}

// Who has no server, or one that holds the directory, is told what to do.
func TestVerifyTellsWhatToDo(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, c := range []struct {
		args []string
		says []string
	}{
		{[]string{"--server", "http://127.0.0.1:1", "--retry-for", "10ms"}, []string{"no server listens at http://127.0.0.1:1", "--data DIR checks a directory"}},
		{[]string{"--data", s.dir}, []string{"the data directory is in use", "is checked without --data"}},
		{[]string{"--data", t.TempDir()}, []string{"it is no data directory of icecore", "name the directory of icecore serve"}},
	} {
		_, log, err := command(t, nil, append([]string{"verify"}, c.args...)...)
		require.Error(t, err)
		for _, what := range c.says {
			require.Contains(t, log, what)
		}
	}
	_, log, err := command(t, nil, "verify", "--server", s.url)
	require.NoError(t, err, log)
}

// terminal is a person at icecore query.
type terminal struct {
	t    *testing.T
	cmd  *exec.Cmd
	file *os.File
	mu   sync.Mutex
	said bytes.Buffer
	read int
	done chan struct{}
}

func (s *server) terminal(home string, args ...string) *terminal {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), icecore, append([]string{"query", "--server", s.url}, args...)...)
	cmd.Env = append(cleanEnv(), "TERM=xterm", "HOME="+home, "XDG_STATE_HOME=", "NO_COLOR=1")
	f, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: 60})
	require.NoError(s.t, err)
	p := &terminal{t: s.t, cmd: cmd, file: f, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		buf := make([]byte, 4096)
		for {
			n, err := f.Read(buf)
			p.mu.Lock()
			p.said.Write(buf[:n])
			p.mu.Unlock()
			if err != nil {
				return // its end closes the terminal
			}
		}
	}()
	s.t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has ended, if all went well
		<-p.done
		_ = f.Close()
	})
	return p
}

// sees waits until something is shown behind what was seen before, and gives
// everything up to its end.
func (p *terminal) sees(want string) string {
	p.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		p.mu.Lock()
		all := p.said.String()
		p.mu.Unlock()
		if at := strings.Index(all[p.read:], want); at >= 0 {
			text := all[p.read : p.read+at+len(want)]
			p.read += at + len(want)
			return text
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("waited in vain for %q; shown:\n%s", want, all)
		}
		time.Sleep(5 * time.Millisecond) // nobody announces what a terminal shows
	}
}

func (p *terminal) types(keys string) {
	p.t.Helper()
	_, err := p.file.WriteString(keys)
	require.NoError(p.t, err)
}

// ends waits for the command's end.
func (p *terminal) ends() {
	p.t.Helper()
	<-p.done
	require.NoError(p.t, p.cmd.Wait())
}

// TestQueryTyped: what somebody types at a terminal, and what they are shown.
func TestQueryTyped(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.send("POST", "/v1/traces?ack=queryable", jsonArray([]call{plain("r-1", "t-1", 1, ids(1, 2), ids(4, 5))}), "Content-Type", typeJSON).items()
	home := t.TempDir()
	p := s.terminal(home)
	p.sees("icecore> ")

	// Several lines, several statements on one, a semicolon in a text.
	p.types("SELECT trace_id,\r")
	p.sees("..> ")
	p.types("  ';' AS mark FROM traces; SELECT 42 AS answer;\r")
	p.sees(" t-1      | ;")
	p.sees("(1 row)")
	p.sees("42")
	p.sees("icecore> ")

	p.types("\\d\r")
	p.sees("traces")
	p.sees("icecore> ")
	p.types("\\d v1.traces\r")
	require.Contains(t, p.sees("icecore> "), "prompt_token_ids")
	p.types("\\d nowhere\r")
	p.sees("there is no table")
	p.types("\\x\r")
	p.sees("expanded: on")
	p.types("SELECT 1 AS a, NULL AS b;\r")
	p.sees("-[ row 1 ]-")
	p.sees("a | 1")
	p.sees("b | NULL")
	p.types("\\x\r\\timing\r\\format csv\r")
	p.sees("timing: on")
	p.sees("icecore> ")
	p.types("SELECT 'x' AS c;\r")
	p.sees("c\r\r\nx\r\r\n") // CSV ends lines with \r\n, and the terminal makes \n that again
	require.NotContains(t, p.sees("time: "), "row")
	p.types("\\format table\r\\limit 2\r")
	p.sees("format: table")
	p.sees("limit: 2 rows")
	p.types("SELECT * FROM range(5);\r")
	p.sees("(2 rows, truncated")
	p.types("\\?\r")
	p.sees("\\timing")
	p.types("\\nothing\r")
	p.sees("no such command")
	p.types("help\r")
	p.sees("\\timing")
	p.types("\\q now\r")
	p.sees(`\q: what is "now" for?`)
	p.types("SHOW TABLES;\r")
	p.sees("hint: \\d lists the tables")

	// Tab completes.
	p.types("SELECT prompt_leng\t FROM traces;\r")
	p.sees("prompt_length\r\n")

	// An error shows its place, and goes on.
	p.types("SELECT colour FROM traces;\r")
	p.sees("LINE 1: SELECT colour FROM traces")
	p.sees("               ^")

	// Ctrl-C drops what is typed, and cancels what runs; not the program.
	p.sees("icecore> ")
	p.types("SELECT nonsense \x03")
	p.sees("icecore> ")
	p.types(long + ";\r")
	eventually(t, "the statement runs", func() bool { return s.gauge("icecore_sql_running") == 1 })
	p.types("\x03")
	p.sees("cancelled")
	eventually(t, "the statement is cancelled", func() bool { return s.gauge("icecore_sql_running") == 0 })
	p.types("SELECT 6 * 7 AS again;\r")
	p.sees("42")
	p.types("\\q\r")
	p.ends()

	// The next time knows the lines of this one.
	history, err := os.ReadFile(filepath.Join(home, ".local", "state", "icecore", "query_history"))
	require.NoError(t, err)
	require.Contains(t, string(history), "SELECT 6 * 7 AS again;\n")
	p = s.terminal(home)
	p.sees("icecore> ")
	p.types("\x1b[A\x1b[A\r") // up, up: the line before \q
	p.sees("42")
	p.types("\x04")
	p.ends()
	p = s.terminal(home)
	p.sees("icecore> ")
	p.types("quit\r")
	p.ends()
}

// TestQueryStopped: told to stop at the prompt, it gives the terminal back.
func TestQueryStopped(t *testing.T) {
	t.Parallel()
	s := start(t)
	home := filepath.Join(t.TempDir(), "no", "such")
	require.NoError(t, os.MkdirAll(filepath.Dir(home), 0o755))
	require.NoError(t, os.WriteFile(home, nil, 0o400)) // no history can be kept
	p := s.terminal(home)
	p.sees("icecore> ")
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	<-p.done
	require.Error(t, p.cmd.Wait())
	require.Equal(t, 143, p.cmd.ProcessState.ExitCode())
}
