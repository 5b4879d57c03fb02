package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// print draws the picture for a terminal.
func (b *boundary) print(w io.Writer, window int) error {
	p := printer{w: w}
	p.f("trace %s of rollout %s, merged by %s\n", b.TraceID, b.RolloutID, b.Policy)
	if line := b.attributes(); line != "" {
		p.f("%s\n", line)
	}
	p.f("\n")
	err := errors.Join(p.err, b.stations(w))
	p.f("\n")
	err = errors.Join(err, b.tokens(w, window))
	for _, c := range b.Checks {
		c.print(&p)
	}
	bad := 0
	for _, c := range b.Checks {
		if !c.OK {
			bad++
		}
	}
	verdict := fmt.Sprintf("all %d checks agree", len(b.Checks))
	if bad > 0 {
		verdict = fmt.Sprintf("%d of %d checks found a difference", bad, len(b.Checks))
	}
	if note := b.Stations.Body.Note; note != "" {
		verdict += "; the capture itself could not be checked: " + firstLine(note)
	}
	p.f("\n%s\n", verdict)
	return errors.Join(err, p.err)
}

// hint says how the capture can be checked, where it could not.
func (b *boundary) hint(w io.Writer) {
	if b.Stations.Body.Note != "" {
		fmt.Fprintf(w, "icecore: the capture is checked against the engine's own body: \"bodies: engine\" in the gateway's settings keeps it; "+ //nolint:errcheck // there is nowhere else to tell it
			"GET /v1/traces/%s?include=bodies shows what is kept now\n", url.PathEscape(b.TraceID))
	}
}

func (b *boundary) attributes() string {
	var parts []string
	for _, name := range []string{"harness", "model", "api", "seq", "kind", "status", "finish_reason", "policy_version", "choice_index"} {
		if v := b.Attributes[name]; v != nil && v != "" {
			parts = append(parts, fmt.Sprintf("%s %v", strings.ReplaceAll(name, "_", " "), v))
		}
	}
	if b.Attributes["ids_incomplete"] == true {
		parts = append(parts, "ids incomplete")
	}
	return strings.Join(parts, ", ")
}

// stations prints a line per station: lengths, hashes, and where it is.
func (b *boundary) stations(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	p := printer{w: t}
	p.f("station\tprompt\tresponse\tlog-probs\tsha256 prompt\tresponse\twhere\n")
	s := &b.Stations
	for _, at := range []struct {
		name  string
		s     *boundaryStation
		where string
	}{{"body", &s.Body, s.Body.places()}, {"trace", &s.Trace, ""}, {"tape", &s.Tape, s.Tape.tape()}, {"merge", &s.Merge, s.Merge.merge()},
		{"row", &s.Row, s.Row.row()}} {
		where := at.where
		if at.s.Note != "" {
			where = strings.TrimPrefix(where+"; "+firstLine(at.s.Note), "; ")
		}
		p.f("%s\t%s\t%s\t%s\t%s\t%s\t%s\n", at.name, countText(at.s.PromptLength), countText(at.s.ResponseLength), countText(at.s.LogprobsLength),
			hashText(at.s.PromptHash), hashText(at.s.ResponseHash), where)
	}
	return errors.Join(p.err, t.Flush())
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

func countText(n *int) string {
	if n == nil {
		return "-"
	}
	return strconv.Itoa(*n)
}

func hashText(hash *string) string {
	if hash == nil {
		return "-"
	}
	return (*hash)[:min(8, len(*hash))]
}

func (s *boundaryStation) places() string {
	if s.LogprobsSource == "" || s.LogprobsSource == s.Source {
		return s.Source
	}
	return strings.TrimPrefix(s.Source+", "+s.LogprobsSource, ", ")
}

func (s *boundaryStation) tape() string {
	if !s.Present || len(s.Pieces) == 0 {
		return ""
	}
	return fmt.Sprintf("tape %d (on %d in all)", s.TapeKey, len(s.Pieces))
}

func (s *boundaryStation) merge() string {
	if !s.Present {
		return ""
	}
	out := s.Disposition
	if s.Row != nil && s.Start != nil && s.End != nil {
		out += fmt.Sprintf(" at [%d, %d) of row %d", *s.Start, *s.End, *s.Row)
	}
	if s.StandsFor != "" {
		out += " of " + s.StandsFor
	}
	if s.Boundary != nil {
		out += ", " + s.Boundary.Kind
		if s.Boundary.Nearest != nil {
			out += fmt.Sprintf(" %s (%d shared)", *s.Boundary.Nearest, s.Boundary.Shared)
		}
	}
	return out
}

func (s *boundaryStation) row() string {
	if !s.Present {
		return ""
	}
	return fmt.Sprintf("%s, %s tokens", s.TrajectoryID, countText(s.Length))
}

// tokens prints both ends of the response and every position that differs.
func (b *boundary) tokens(w io.Writer, window int) error {
	s := &b.Stations
	n := 0
	for _, at := range []*boundaryStation{&s.Body, &s.Trace, &s.Tape, &s.Row} {
		n = max(n, len(at.IDs), len(at.Logprobs))
	}
	if n == 0 {
		return nil
	}
	differ := map[int]bool{}
	for _, c := range b.Checks {
		for _, at := range c.Positions {
			differ[at] = differ[at] || c.Sequence == "response" && !c.OK
		}
	}
	t := tabwriter.NewWriter(w, 0, 0, 1, ' ', tabwriter.AlignRight)
	p := printer{w: t}
	p.f("\tposition\t|\tid: body\ttrace\ttape\trow\t|\tlog-prob: body\ttrace\trow\t|\tmask\t\n")
	gap := false
	for i := range n {
		if i >= window && i < n-window && !differ[i] {
			if !gap {
				p.f("\t…\t|\t\t\t\t\t|\t\t\t\t|\t\t\n")
			}
			gap = true
			continue
		}
		gap = false
		mark := ""
		if differ[i] {
			mark = "*"
		}
		p.f("%s\t%d\t|\t%s\t%s\t%s\t%s\t|\t%s\t%s\t%s\t|\t%s\t\n", mark, i, tokenText(s.Body.IDs, i), tokenText(s.Trace.IDs, i), tokenText(s.Tape.IDs, i),
			tokenText(s.Row.IDs, i), tokenText(s.Body.Logprobs, i), tokenText(s.Trace.Logprobs, i), tokenText(s.Row.Logprobs, i), tokenText(s.Row.LossMask, i))
	}
	p.f("\n")
	return errors.Join(p.err, t.Flush())
}

// tokenText is the text of one entry of a list; "." where there is none, "?" for
// an id that is not told.
func tokenText[T ~string | ~[]byte](list []T, i int) string {
	if i >= len(list) {
		return "."
	}
	if len(list[i]) == 0 {
		return "?" // package json leaves a number empty that is null
	}
	return strings.Trim(string(list[i]), `"`)
}

func (c *boundaryCheck) print(p *printer) {
	verdict := "agrees "
	if !c.OK {
		verdict = "DIFFERS"
	}
	p.f("%s  %-20s %s\n", verdict, c.Name, firstLine(c.Detail))
	if c.OK || c.Window == nil {
		return
	}
	p.f("         %s from position %d\n           expected %s\n           got      %s\n", c.Sequence, c.Window.From, rawList(c.Window.Expected),
		rawList(c.Window.Got))
}

func rawList(list []json.RawMessage) string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = string(v)
	}
	return strings.Join(slices.Clip(out), " ")
}
