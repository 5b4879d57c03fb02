package warehouse

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
)

// said takes what a child writes to standard error, which is next to nothing
// unless it dies: it goes to the log, and its end is kept.
type said struct {
	log *slog.Logger

	mu     sync.Mutex
	rest   []byte
	lines  []string
	signal bool
}

// keptLines is how much is told of what a dead child said. What a Go program
// dies of stands first in what it then writes, where it was stands after that.
const keptLines = 8

// Write implements io.Writer.
func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rest = append(s.rest, p...)
	for {
		line, rest, whole := bytes.Cut(s.rest, []byte("\n"))
		if !whole {
			break
		}
		s.line(string(line))
		s.rest = rest
	}
	return len(p), nil
}

func (s *said) line(text string) {
	s.log.Warn("the warehouse's process says", "line", text)
	for _, sign := range []string{"SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL"} {
		s.signal = s.signal || strings.Contains(text, sign)
	}
	s.lines = append(s.lines, text)
	if len(s.lines) > keptLines {
		s.lines = s.lines[1:]
	}
}

func (s *said) last() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(append(s.lines[:len(s.lines):len(s.lines)], string(s.rest)), "\n")
}

func (s *said) sawSignal() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.signal
}
