package main

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode"

	"github.com/mattn/go-runewidth"
)

// Lists of more than longList items are shown by their first listHead and how
// many there are.
const (
	longList = 8
	listHead = 3
)

// cellText is how a value is shown in a table, and whether it is NULL. A text
// that reads NULL is shown in quotes.
func cellText(raw json.RawMessage) (text string, null bool) {
	switch raw[0] {
	case 'n':
		return "NULL", true
	case '"':
		var s string
		if json.Unmarshal(raw, &s) != nil {
			return string(raw), false
		}
		if s == "NULL" {
			return `"NULL"`, false
		}
		return plainText(s, false), false
	case '[', '{':
		return plainText(shorten(raw), false), false
	}
	return string(raw), false
}

// plainText replaces what could steer a terminal by its escapes; lines keeps
// line ends.
func plainText(s string, lines bool) string {
	if strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 {
		return s
	}
	var out strings.Builder
	for _, r := range s {
		switch {
		case unicode.IsPrint(r) || lines && r == '\n':
			out.WriteRune(r)
		default:
			quoted := strconv.QuoteRune(r)
			out.WriteString(quoted[1 : len(quoted)-1])
		}
	}
	return out.String()
}

// shorten writes JSON with its long lists cut.
func shorten(raw []byte) string {
	var out strings.Builder
	writeShort(&out, raw)
	return out.String()
}

func writeShort(out *strings.Builder, raw []byte) {
	if len(raw) == 0 || raw[0] != '[' && raw[0] != '{' {
		out.Write(raw)
		return
	}
	parts, n := members(raw, longList)
	if raw[0] == '[' && n > longList {
		parts = parts[:listHead]
	}
	out.WriteByte(raw[0])
	for i, part := range parts {
		if i > 0 {
			out.WriteString(", ")
		}
		if raw[0] == '{' {
			name := stringEnd(part)
			out.Write(part[:name])
			out.WriteString(": ")
			part = part[name+1:]
		}
		writeShort(out, part)
	}
	if len(parts) < n {
		out.WriteString(", … " + grouped(int64(n)) + " items")
	}
	out.WriteByte(raw[0] + 2) // the closing bracket or brace
}

// members gives the items of a list or the members of an object, at most so many
// of a list's, and counts all. raw is well-formed and without blanks, as icecore
// writes it.
func members(raw []byte, most int) (parts [][]byte, n int) {
	start, depth := 1, 0
	for i := 1; i < len(raw); i++ {
		switch c := raw[i]; {
		case c == '"':
			i += stringEnd(raw[i:]) - 1
		case depth == 0 && (c == ',' || i == len(raw)-1):
			if i > start {
				n++
				if raw[0] == '{' || len(parts) < most {
					parts = append(parts, raw[start:i])
				}
			}
			start = i + 1
		case c == '[' || c == '{':
			depth++
		case c == ']' || c == '}':
			depth--
		}
	}
	return parts, n
}

// stringEnd is the length of the JSON string with which raw begins.
func stringEnd(raw []byte) int {
	for i := 1; i < len(raw); i++ {
		switch raw[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(raw)
}

// grouped writes a number as 19,103.
func grouped(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func displayWidth(s string) int { return runewidth.StringWidth(s) }

// cut shortens a text to a width.
func cut(s string, width int) string { return runewidth.Truncate(s, width, "…") }
