package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
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
  \q          end (also quit, exit, Ctrl-D)
  \?          this list (also help)
Tab completes names; the arrow keys and Ctrl-R find earlier lines.
`

// commandOf gives the words of a line that is a command and no SQL; nil: it is
// none. Words that people type to leave, or for help, are taken as such.
func commandOf(line string) []string {
	words := strings.Fields(line)
	if len(words) == 0 {
		return nil
	}
	if strings.HasPrefix(words[0], `\`) {
		last := len(words) - 1
		if words[last] = strings.TrimRight(words[last], ";"); words[last] == "" && last > 0 {
			words = words[:last]
		}
		return words
	}
	switch strings.ToLower(strings.TrimRight(strings.Join(words, " "), " ;")) {
	case "quit", "exit":
		return []string{`\q`}
	case "help":
		return []string{`\?`}
	}
	return nil
}

var (
	showTables  = regexp.MustCompile(`(?i)^\s*SHOW\s+(ALL\s+)?TABLES\b`)
	describeOne = regexp.MustCompile(`(?i)^\s*(DESCRIBE|DESC|SHOW)\b`)
)

// hintFor says what to type in place of a refused statement that asks what there
// is.
func hintFor(sql string) string {
	switch {
	case showTables.MatchString(sql):
		return "\nhint: \\d lists the tables"
	case describeOne.MatchString(sql):
		return "\nhint: \\d lists the tables, \\d NAME the columns of one"
	}
	return ""
}

// command does what a command says. Its first word begins with a backslash.
func (s *shell) command(ctx context.Context, words []string) {
	if n, known := arguments[words[0]]; known && len(words)-1 > n {
		fmt.Printf("%s: what is %q for? \\? lists what commands take\n", words[0], plainText(strings.Join(words[1+n:], " "), false))
		return
	}
	argument := ""
	if len(words) > 1 {
		argument = words[1]
	}
	switch words[0] {
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
		s.setLimit(argument)
	case `\format`:
		if !slices.Contains([]string{"table", "csv", "json", "ndjson"}, argument) {
			fmt.Println(`\format F: table, csv, json or ndjson`)
			return
		}
		s.cmd.Format = argument
		fmt.Println("format: " + argument)
	default:
		fmt.Printf("%s: no such command; \\? lists them\n", plainText(words[0], false))
	}
}

// arguments is how many words a command takes at most.
var arguments = map[string]int{`\?`: 0, `\h`: 0, `\q`: 0, `\x`: 0, `\timing`: 0, `\d`: 1, `\limit`: 1, `\format`: 1}

func (s *shell) setLimit(argument string) {
	n, err := strconv.ParseInt(argument, 10, 64)
	if err != nil || n < 0 {
		fmt.Println(`\limit N: a whole number of rows`)
		return
	}
	if s.limit = n; n == 0 {
		n = tableRows
	}
	fmt.Printf("limit: %s rows\n", grouped(n))
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
