package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/mattn/go-runewidth"
)

const shellHelp = `A statement may be of several lines and ends with ; (Ctrl-C drops it, or cancels it while it runs).
  \d          list tables
  \d NAME     columns of a table
  \x          a line per value, or a line per row
  \limit N    most rows; 0: 1000
  \format F   table, csv, json or ndjson
  \timing     say how long each statement takes
  \q          end (also Ctrl-D)
Tab completes names; the arrow keys and Ctrl-R find earlier lines.
`

// command does what a line says that begins with a backslash.
func (s *shell) command(ctx context.Context, words []string) {
	argument := ""
	if len(words) > 1 {
		argument = strings.TrimRight(words[1], ";")
	}
	switch strings.TrimRight(words[0], ";") {
	case `\?`, `\h`:
		fmt.Print(shellHelp)
	case `\q`:
		s.quit = true
	case `\d`:
		if err := s.describe(ctx, argument); err != nil {
			fmt.Println("error: " + err.Error())
		}
	case `\x`:
		s.expanded = !s.expanded
		fmt.Println("expanded: " + onOff(s.expanded))
	case `\timing`:
		s.timing = !s.timing
		fmt.Println("timing: " + onOff(s.timing))
	case `\limit`:
		n, err := strconv.ParseInt(argument, 10, 64)
		if err != nil || n < 0 {
			fmt.Println(`\limit N: a whole number of rows`)
			return
		}
		s.limit = n
	case `\format`:
		if !slices.Contains([]string{"table", "csv", "json", "ndjson"}, argument) {
			fmt.Println(`\format F: table, csv, json or ndjson`)
			return
		}
		s.cmd.Format = argument
	default:
		fmt.Printf("%s: no such command; \\? lists them\n", plainText(words[0], false))
	}
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// describe lists the tables, or the columns of one.
func (s *shell) describe(ctx context.Context, name string) error {
	ctx, cancel := s.interruptible(ctx)
	defer cancel()
	list, err := s.client.tables(ctx)
	if err != nil {
		return err
	}
	s.learn(list)
	name = strings.TrimPrefix(strings.ToLower(name), list.Schema+".")
	var lines [][3]string
	for _, t := range list.Tables {
		if name == "" {
			lines = append(lines, [3]string{t.Name, strconv.Itoa(len(t.Columns)) + " columns", t.Comment})
		}
		if t.Name != name {
			continue
		}
		if t.Comment != "" {
			fmt.Println(plainText(t.Comment, false))
		}
		for _, c := range t.Columns {
			lines = append(lines, [3]string{c.Name, c.Type, c.Comment})
		}
	}
	if name != "" && lines == nil {
		return fmt.Errorf("there is no table %q; \\d lists them", name)
	}
	writeDescription(os.Stdout, screen(os.Stdout).width, lines)
	return nil
}

// Of a description, longType is the widest type that is shown beside its comment,
// and commentRoom the least width of comments.
const (
	longType    = 26
	commentRoom = 24
)

// writeDescription writes names, types and comments side by side; comments are
// wrapped, since they are there to be read.
func writeDescription(w io.Writer, width int, lines [][3]string) {
	var names, types int
	for _, l := range lines {
		names, types = max(names, displayWidth(l[0])), max(types, min(displayWidth(l[1]), longType))
	}
	indent := names + types + 4
	room := max(width-indent, commentRoom)
	if width == 0 {
		room = 1 << 20
	}
	for _, l := range lines {
		head := runewidth.FillRight(plainText(l[0], false), names) + "  " + runewidth.FillRight(plainText(l[1], false), types)
		comment := wrap(plainText(l[2], false), room)
		if displayWidth(head) > names+2+types && l[2] != "" {
			comment = append([]string{""}, comment...)
		}
		for i, part := range comment {
			if i > 0 {
				head = strings.Repeat(" ", indent-2)
			}
			fmt.Fprintln(w, strings.TrimRight(head+"  "+part, " ")) //nolint:errcheck // a terminal that is gone takes no more
		}
	}
}

// wrap breaks a text between words. It gives one line at least.
func wrap(text string, width int) []string {
	lines := []string{""}
	for _, word := range strings.Fields(text) {
		last := &lines[len(lines)-1]
		switch {
		case *last == "":
			*last = word
		case displayWidth(*last)+1+displayWidth(word) <= width:
			*last += " " + word
		default:
			lines = append(lines, word)
		}
	}
	return lines
}
