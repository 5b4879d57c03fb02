package body

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"icecore/ingest/gateway/turn"
)

// Fields are the members of an object, in the order that they came.
type Fields struct {
	place   *place
	members []Member
}

// Member is a member of an object.
type Member struct {
	Name  string
	Value Value
}

// Read checks the whole of raw, which must be one object, and gives its members. A byte
// order mark before it is passed over.
func Read(raw []byte) (Fields, error) {
	return Object(bytes.TrimPrefix(raw, []byte("\xef\xbb\xbf")), "")
}

// Object is Read for JSON that is found elsewhere than in a checked body, at path.
func Object(raw []byte, path string) (Fields, error) {
	at := &place{name: path}
	if err := check(raw, at); err != nil {
		return Fields{}, err
	}
	return Value{raw: trim(raw), place: at}.Fields()
}

// Check says whether raw is one JSON value by the rules of this package; path names
// the place of raw in faults and may be empty.
func Check(raw []byte, path string) error { return check(raw, &place{name: path}) }

// Get gives the member of that name. Where there is none the value is Absent, and its
// path still names where it would be.
func (f Fields) Get(name string) Value {
	for i := range f.members {
		if f.members[i].Name == name {
			return f.members[i].Value
		}
	}
	return Value{place: &place{up: f.place, name: name}}
}

// Has says whether there is a member of that name that is not null.
func (f Fields) Has(name string) bool { return !f.Get(name).Absent() }

// All gives the members in order. A null is one of them.
func (f Fields) All() []Member { return f.members }

// hints are members, of any object, that steer a provider's cache and are no content:
// that an engine does not get them changes nothing that it sees.
var hints = []string{"cache_control"}

func (m Member) hint() bool { return slices.Contains(hints, m.Name) }

// extra says whether m is beyond the known members, and content.
func (m Member) extra(known []string) bool {
	return !m.Value.Absent() && !m.hint() && !slices.Contains(known, m.Name)
}

// Rest gives the members that are not null, no hints, and not among the names, as they
// came; nil: none.
func (f Fields) Rest(known ...string) map[string]json.RawMessage {
	var rest map[string]json.RawMessage
	for _, m := range f.members {
		if !m.extra(known) {
			continue
		}
		if rest == nil {
			rest = map[string]json.RawMessage{}
		}
		rest[m.Name] = m.Value.raw
	}
	return rest
}

// Unhinted gives v, whose members f are, as it came but without hints among them.
func (f Fields) Unhinted(v Value) json.RawMessage {
	if !slices.ContainsFunc(f.members, Member.hint) {
		return v.raw
	}
	out := []byte{'{'}
	for _, m := range f.members {
		if m.hint() {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(AppendString(out, m.Name), ':'), m.Value.raw...)
	}
	return append(out, '}')
}

// Drop lists in r the members that are not null, no hints, and not among the names:
// nothing reads them, so the engine does not see them.
func (f Fields) Drop(r *turn.Request, known ...string) {
	for _, m := range f.members {
		if m.extra(known) {
			r.Dropped(m.Value.Path(), "engines have no place for it")
		}
	}
}

// Path names the object's place in the body; empty: it is the body.
func (f Fields) Path() string { return f.place.String() }

// place is where a value stands. It is spelt only when a fault needs it.
type place struct {
	up    *place
	name  string // of a member; of an element empty
	index int
	array bool
}

func (p *place) String() string {
	if p == nil {
		return ""
	}
	above := p.up.String()
	name := clip([]byte(p.name))
	switch {
	case p.array:
		return above + "[" + strconv.Itoa(p.index) + "]"
	case above == "":
		return name
	case name == "":
		return above
	}
	return above + "." + name
}

// invalid is a fault at a place, which its message names as well.
func invalid(at *place, format string, args ...any) *turn.Fault {
	path, message := at.String(), fmt.Sprintf(format, args...)
	if path != "" {
		message = path + ": " + message
	}
	return turn.Invalid(path, message)
}
