package generate

import (
	"slices"
	"strings"

	"icecore/ingest/gateway/body"
	"icecore/ingest/gateway/turn"
)

func unsupported(v body.Value, message string) error {
	return turn.Unsupported(v.Path(), v.Path()+": "+message)
}

// get gives a member by its name in camelCase or, where there is none, in snake_case.
func get(f body.Fields, name string) body.Value {
	if v := f.Get(name); v.Given() {
		return v
	}
	if v := f.Get(snake(name)); v.Given() {
		return v
	}
	return f.Get(name)
}

// drop is body.Fields.Drop for names in either spelling.
func (d *decoder) drop(f body.Fields, known ...string) {
	for _, name := range slices.Clone(known) {
		known = append(known, snake(name))
	}
	f.Drop(d.r, known...)
}

func snake(name string) string {
	var b strings.Builder
	for _, c := range name {
		if 'A' <= c && c <= 'Z' {
			b.WriteByte('_')
			c += 'a' - 'A'
		}
		b.WriteRune(c)
	}
	return b.String()
}

// camel is the name by which a member is known here.
func camel(name string) string {
	if !strings.Contains(name, "_") {
		return name
	}
	words := strings.Split(name, "_")
	for i, word := range words {
		if i > 0 && word != "" {
			words[i] = strings.ToUpper(word[:1]) + word[1:]
		}
	}
	return strings.Join(words, "")
}

// list gives the elements of a list, or the single object that stands for one.
func list(v body.Value) ([]body.Value, error) {
	if v.Kind() == body.KindObject {
		return []body.Value{v}, nil
	}
	return v.Array()
}

// word gives a member of an enumeration in capitals.
func word(v body.Value) (string, error) {
	s, err := v.String()
	return strings.ToUpper(s), err
}
