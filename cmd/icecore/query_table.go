package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// view is how tables are shown. The zero value is for files and pipes.
type view struct {
	// width of the terminal; 0: there is none.
	width int
	// color marks NULL.
	color bool
	// expanded shows a line per value.
	expanded bool
	// more says how to get more rows of a result that was cut.
	more string
}

// moreRows and typedMoreRows are what to do about a cut result.
const (
	moreRows      = "raise --limit"
	typedMoreRows = `raise it with \limit N`
)

// screen is the view for what f is.
func screen(f *os.File) view {
	if !isTerminal(f) {
		return view{more: moreRows}
	}
	width, _, err := term.GetSize(int(f.Fd())) //nolint:gosec // a descriptor is small
	if err != nil || width <= 0 {
		width = 80
	}
	return view{width: width, color: os.Getenv("NO_COLOR") == "", more: moreRows}
}

const (
	// pipeCell bounds a value where no terminal does: the formats for programs
	// have them whole.
	pipeCell = 200
	// narrow is the width below which a column is not squeezed.
	narrow = 8
)

// shownCell is one value as it is shown.
type shownCell struct {
	text  string
	width int
	null  bool
}

// grid is a result made ready.
type grid struct {
	names  []shownCell
	rows   [][]shownCell
	right  []bool
	widths []int
}

func (v view) show(w io.Writer, r *result) error {
	out := &bytes.Buffer{}
	g := newGrid(r)
	if v.expanded {
		v.writeExpanded(out, g)
	} else {
		v.writeTable(out, g)
	}
	fmt.Fprintf(out, "(%s)\n", rowsLine(int64(len(r.Rows)), r.Truncated, v.more))
	if _, err := out.WriteTo(w); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

// rowsLine says how many rows there are, and what to do when there are more.
func rowsLine(n int64, truncated bool, more string) string {
	text := grouped(n) + " rows"
	if n == 1 {
		text = "1 row"
	}
	if truncated {
		text += ", truncated: there are more; " + more + ", select fewer columns, or page with WHERE"
	}
	return text
}

func newGrid(r *result) *grid {
	n := len(r.Columns)
	g := &grid{names: make([]shownCell, n), right: make([]bool, n), widths: make([]int, n)}
	for i, c := range r.Columns {
		g.names[i] = newCell(plainText(c.Name, false), false)
		g.right[i] = isNumber(c.Type)
		g.widths[i] = g.names[i].width
	}
	for _, row := range r.Rows {
		cells := make([]shownCell, n)
		for i, raw := range row {
			cells[i] = newCell(cellText(raw))
			g.widths[i] = max(g.widths[i], cells[i].width)
		}
		g.rows = append(g.rows, cells)
	}
	return g
}

func newCell(text string, null bool) shownCell { return shownCell{text, displayWidth(text), null} }

func isNumber(kind string) bool {
	switch kind {
	case "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "FLOAT", "DOUBLE":
		return true
	}
	return strings.HasPrefix(kind, "DECIMAL(") && strings.HasSuffix(kind, ")")
}

// fit narrows the columns so that a line fits, the widest first, and says how
// many columns are shown.
func (v view) fit(widths []int) (shown int) {
	if v.width == 0 {
		for i := range widths {
			widths[i] = min(widths[i], pipeCell)
		}
		return len(widths)
	}
	for line := lineWidth(widths); line > v.width; line = lineWidth(widths) {
		widest, second := 0, narrow
		for i, w := range widths {
			if w > widths[widest] {
				widest = i
			}
		}
		for i, w := range widths {
			if i != widest && w < widths[widest] {
				second = max(second, w)
			}
		}
		if widths[widest] <= narrow {
			break
		}
		widths[widest] = max(narrow, min(widths[widest]-1, max(second, widths[widest]-(line-v.width))))
	}
	shown = len(widths)
	for shown > 1 && lineWidth(widths[:shown]) > v.width {
		shown--
	}
	return shown
}

func lineWidth(widths []int) int {
	n := -1
	for _, w := range widths {
		n += w + 3
	}
	return n
}

func (v view) writeTable(out *bytes.Buffer, g *grid) {
	shown := v.fit(g.widths)
	v.writeRow(out, g, g.names, shown)
	for i, w := range g.widths[:shown] {
		if i > 0 {
			out.WriteByte('+')
		}
		out.WriteString(strings.Repeat("-", w+2))
	}
	out.WriteByte('\n')
	for _, row := range g.rows {
		v.writeRow(out, g, row, shown)
	}
	if shown < len(g.names) {
		fmt.Fprintf(out, "(%d of %d columns fit; \\x shows all, or select fewer)\n", shown, len(g.names))
	}
}

func (v view) writeRow(out *bytes.Buffer, g *grid, row []shownCell, shown int) {
	var line strings.Builder
	for i, c := range row[:shown] {
		if c.width > g.widths[i] {
			c.text = cut(c.text, g.widths[i])
			c.width = displayWidth(c.text)
		}
		pad := strings.Repeat(" ", max(0, g.widths[i]-c.width))
		if i > 0 {
			line.WriteByte('|')
		}
		line.WriteByte(' ')
		if g.right[i] {
			line.WriteString(pad + v.marked(c) + " ")
		} else {
			line.WriteString(v.marked(c) + pad + " ")
		}
	}
	out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
}

// marked shows NULL in faint.
func (v view) marked(c shownCell) string {
	if c.null && v.color {
		return "\x1b[2m" + c.text + "\x1b[0m"
	}
	return c.text
}

func (v view) writeExpanded(out *bytes.Buffer, g *grid) {
	names := 0
	for _, n := range g.names {
		names = max(names, n.width)
	}
	room := pipeCell * 10
	if v.width > 0 {
		room = max(narrow, v.width-names-3)
	}
	for i, row := range g.rows {
		fmt.Fprintf(out, "-[ row %d ]-\n", i+1)
		for k, c := range row {
			if c.width > room {
				c.text = cut(c.text, room)
			}
			fmt.Fprintf(out, "%s%s | %s\n", g.names[k].text, strings.Repeat(" ", names-g.names[k].width), v.marked(c))
		}
	}
}
