package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/peterh/liner"
)

// shell is the interactive mode of query.
type shell struct {
	cmd    queryCmd
	client *queryClient
	line   *liner.State
	// interrupts are those that come while a statement runs; the line editor
	// reads the others as keys.
	interrupts chan os.Signal
	expanded   bool
	limit      int64
	timing     bool
	words      []string
	quit       bool
}

func (c queryCmd) interactive(ctx context.Context) error {
	params, err := readParams(c.Param)
	if err != nil {
		return fmt.Errorf("query: %w", err)
	}
	if params != nil || c.Out != "" || binary(c.Format) {
		return errors.New("query: --param, --out and the formats parquet and arrow go with a statement, and there is none")
	}
	s := &shell{cmd: c, client: newQueryClient(c.Server, c.RetryFor), interrupts: make(chan os.Signal, 1), limit: c.Limit}
	if err := s.client.reachable(ctx); err != nil {
		return fmt.Errorf("query: %w", err)
	}
	// An interrupt ends a statement here, not the program.
	signal.Reset(os.Interrupt)
	signal.Notify(s.interrupts, os.Interrupt)
	defer signal.Stop(s.interrupts)

	s.line = liner.NewLiner()
	defer s.line.Close() //nolint:errcheck // the terminal is as it was, or gone
	s.line.SetCtrlCAborts(true)
	s.line.SetTabCompletionStyle(liner.TabPrints)
	s.line.SetWordCompleter(s.complete)
	s.loadHistory()
	defer s.saveHistory()
	ended := context.AfterFunc(ctx, func() {
		// Told to stop while a line is read, which nothing else ends.
		s.saveHistory()
		_ = s.line.Close()
		os.Exit(143)
	})
	defer ended()
	if list, err := s.client.tables(ctx); err == nil {
		s.learn(list)
	}
	fmt.Printf("icecore %s, %s. A statement ends with ; and \\? lists what else can be typed.\n", version, c.Server)
	return s.loop(ctx)
}

// loop reads lines until there are no more.
func (s *shell) loop(ctx context.Context) error {
	pending := ""
	for !s.quit {
		prompt := "icecore> "
		if pending != "" {
			prompt = "     ..> "
		}
		text, err := s.line.Prompt(prompt)
		switch {
		case errors.Is(err, liner.ErrPromptAborted):
			pending = ""
			continue
		case errors.Is(err, io.EOF):
			fmt.Println()
			return nil
		case err != nil:
			return fmt.Errorf("query: read line: %w", err)
		}
		if strings.TrimSpace(text) != "" {
			s.line.AppendHistory(text)
		}
		if words := commandOf(text); pending == "" && words != nil {
			s.command(ctx, words)
			continue
		}
		pending = s.runAll(ctx, pending+text+"\n")
	}
	return nil
}

// runAll runs the statements that text holds, and gives back what is not a whole
// one yet.
func (s *shell) runAll(ctx context.Context, text string) string {
	for {
		statement, rest, ok := splitStatement(text)
		if !ok {
			if strings.TrimSpace(text) == "" {
				return ""
			}
			return text
		}
		text = rest
		if strings.TrimSpace(statement) != "" {
			s.run(ctx, strings.TrimLeft(statement, " \r\n"))
		}
	}
}

// interruptible gives a context that Ctrl-C ends while a statement runs.
func (s *shell) interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	select {
	case <-s.interrupts: // one that came too late for the statement before
	default:
	}
	go func() {
		select {
		case <-s.interrupts:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

func (s *shell) run(ctx context.Context, sql string) {
	ctx, cancel := s.interruptible(ctx)
	defer cancel()
	started := time.Now()
	err := s.answer(ctx, sql)
	switch {
	case ctx.Err() != nil:
		fmt.Println("cancelled")
	case err != nil:
		fmt.Println("error: " + err.Error() + hintFor(sql))
	}
	if s.timing {
		fmt.Printf("time: %s\n", time.Since(started).Round(time.Millisecond))
	}
}

func (s *shell) answer(ctx context.Context, sql string) error {
	limit := s.limit
	if limit == 0 {
		limit = tableRows
	}
	a, err := s.client.ask(ctx, question{SQL: sql, Limit: limit, TimeoutMS: s.cmd.Timeout.Milliseconds()}, s.cmd.Format)
	if err != nil {
		return err
	}
	defer a.close()
	if s.cmd.Format != "table" {
		if err := a.copyTo(os.Stdout); err != nil {
			return err
		}
		// Beside the answer, so that what is copied from the screen is the format.
		if a.truncated {
			fmt.Fprintf(os.Stderr, "(%s)\n", rowsLine(a.rows, true, typedMoreRows))
		}
		return nil
	}
	r, err := a.result()
	if err != nil {
		return err
	}
	v := screen(os.Stdout)
	v.expanded, v.more = s.expanded, typedMoreRows
	return v.show(os.Stdout, r)
}

// historyFile is where lines are remembered, or "".
func historyFile() string {
	dir := os.Getenv("XDG_STATE_HOME")
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return ""
		}
		dir = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(dir, "icecore", "query_history")
}

// loadHistory and saveHistory do without a file that cannot be had: nobody's
// work is lost with it.
func (s *shell) loadHistory() {
	f, err := os.Open(historyFile())
	if err != nil {
		return
	}
	defer f.Close()              //nolint:errcheck // it was only read
	_, _ = s.line.ReadHistory(f) // as far as it can be read
}

func (s *shell) saveHistory() {
	path := historyFile()
	if path == "" || os.MkdirAll(filepath.Dir(path), 0o700) != nil {
		return
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return
	}
	_, _ = s.line.WriteHistory(f)
	_ = f.Close()
}

var sqlWords = []string{"AND", "AS", "ASC", "BETWEEN", "CASE", "CAST", "COUNT", "DESC", "DISTINCT", "ELSE", "END", "FILTER", "FROM", "GROUP BY ALL",
	"HAVING", "IS NOT NULL", "IS NULL", "JOIN", "LEFT JOIN", "LIKE", "LIMIT", "ORDER BY", "OVER", "PARTITION BY", "QUALIFY", "SELECT", "THEN", "UNION ALL",
	"UNNEST", "USING", "WHEN", "WHERE", "WITH"}

// learn makes the names of tables and columns known to completion.
func (s *shell) learn(list tableList) {
	words := slices.Clone(sqlWords)
	for _, t := range list.Tables {
		words = append(words, t.Name)
		for _, c := range t.Columns {
			words = append(words, c.Name)
		}
	}
	slices.Sort(words)
	s.words = slices.Compact(words)
}

// complete completes the word in which the cursor stands.
func (s *shell) complete(line string, pos int) (head string, completions []string, tail string) {
	runes := []rune(line)
	pos = min(pos, len(runes))
	start := pos
	for start > 0 && isWord(runes[start-1]) {
		start--
	}
	prefix := strings.ToLower(string(runes[start:pos]))
	if prefix != "" {
		for _, w := range s.words {
			if strings.HasPrefix(strings.ToLower(w), prefix) {
				completions = append(completions, w)
			}
		}
	}
	return string(runes[:start]), completions, string(runes[pos:])
}

func isWord(r rune) bool {
	return r == '_' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
}
