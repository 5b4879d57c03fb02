package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// importSum counts what became of an import, and shows how far it is.
type importSum struct {
	mu         sync.Mutex
	stored     int
	duplicates int
	refused    int
	controls   int
	bytes      int64
	total      int64 // 0: not known
	shown      []string
	skipped    []string
	started    time.Time
	done       chan struct{}
	once       sync.Once
}

// maxShownRefusals bounds the refusals that are printed one by one.
const maxShownRefusals = 20

func newImportSum(inputs []input, progress io.Writer) *importSum {
	s := &importSum{started: time.Now(), done: make(chan struct{})}
	for _, in := range inputs {
		if in.size == 0 {
			s.total = 0
			break
		}
		s.total += in.size
	}
	go s.report(progress)
	return s
}

func (s *importSum) stop() { s.once.Do(func() { close(s.done) }) }

// report shows progress: on a terminal one line that changes, elsewhere a line
// now and then.
func (s *importSum) report(w io.Writer) {
	every, end := 5*time.Second, "\n"
	if f, ok := w.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			every, end = 200*time.Millisecond, "\r"
		}
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-s.done:
			if end == "\r" {
				fmt.Fprint(w, "\x1b[K") //nolint:errcheck // progress is for whoever looks
			}
			return
		case <-tick.C:
			fmt.Fprint(w, s.line(), end) //nolint:errcheck // progress is for whoever looks
		}
	}
}

func (s *importSum) line() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := ""
	if s.total > 0 {
		of = fmt.Sprintf(" of %s (%d %%)", humanSize(s.total), 100*s.bytes/s.total)
	}
	rate := float64(s.bytes) / time.Since(s.started).Seconds()
	return fmt.Sprintf("import: %s%s read, %d stored, %d duplicates, %d refused, %s/s",
		humanSize(s.bytes), of, s.stored, s.duplicates, s.refused, humanSize(int64(rate)))
}

func (s *importSum) read(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes += int64(n)
}

func (s *importSum) skip(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.skipped = append(s.skipped, name)
}

func (s *importSum) controlled() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.controls++
}

func (s *importSum) answered(a *itemsAnswer, where []string) {
	for _, item := range a.Items {
		switch item.Status {
		case "stored", "duplicate":
			s.mu.Lock()
			if item.Status == "stored" {
				s.stored++
			} else {
				s.duplicates++
			}
			s.mu.Unlock()
		default:
			at := ""
			if item.Index < len(where) {
				at = where[item.Index]
			}
			s.refuse(at, item.ID, item.Code, item.Message, 1)
		}
	}
}

func (s *importSum) refuse(where, id, code, message string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused += n
	if len(s.shown) < maxShownRefusals {
		if id != "" {
			id = " " + id
		}
		s.shown = append(s.shown, fmt.Sprintf("%s%s: %s: %s", where, id, code, message))
	}
}

func (s *importSum) print(w io.Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, line := range s.shown {
		fmt.Fprintf(w, "refused %s\n", line) //nolint:errcheck // standard output
	}
	if s.refused > len(s.shown) {
		fmt.Fprintf(w, "… %d refusals in all\n", s.refused) //nolint:errcheck // standard output
	}
	for _, name := range s.skipped {
		fmt.Fprintf(w, "skipped %s: it holds no traces\n", name) //nolint:errcheck // standard output
	}
	took := time.Since(s.started)
	fmt.Fprintf(w, "imported: %d traces stored, %d duplicates, %d refused, %d attributes, finishes and rewards; %s of files in %.1f s\n", //nolint:errcheck // standard output
		s.stored, s.duplicates, s.refused, s.controls, humanSize(s.bytes), took.Seconds())
}
