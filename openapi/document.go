package openapi

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"

	"go.yaml.in/yaml/v3"
)

//go:embed api/*.yaml
var sources embed.FS

// object is a JSON object.
type object = map[string]any

// Document is the description of one server's API.
type Document struct {
	root object
	// operations are in the order in which they are written.
	operations []place
	order      order
	json       []byte
	page       []byte
}

// place is where an operation stands.
type place struct{ method, path string }

// New makes the document of a server with these options.
func New(o Options) (*Document, error) {
	d := &Document{root: object{}, order: order{}}
	names, err := fs.Glob(sources, "api/*.yaml")
	if err != nil {
		return nil, fmt.Errorf("list api files: %w", err)
	}
	for _, name := range names {
		if err := d.read(name); err != nil {
			return nil, err
		}
	}
	filled, err := fill(d.root, o.values())
	if err != nil {
		return nil, err
	}
	d.root = filled.(object)
	d.leaveOut(o)
	if err := d.addErrors(); err != nil {
		return nil, err
	}
	d.json = d.order.indented(d.root)
	if d.page, err = d.render(o.BaseURL); err != nil {
		return nil, err
	}
	return d, nil
}

// JSON is the document as it is served.
func (d *Document) JSON() []byte { return d.json }

// Page is the document to be read, as HTML.
func (d *Document) Page() []byte { return d.page }

// read adds a file to the document.
func (d *Document) read(name string) error {
	raw, err := sources.ReadFile(name)
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	var part object
	if err := yaml.Unmarshal(raw, &part); err != nil {
		return fmt.Errorf("decode %s: %w", name, err)
	}
	if err := join(d.root, part); err != nil {
		return fmt.Errorf("join %s: %w", name, err)
	}
	var written yaml.Node
	var ordered struct{ Paths yaml.Node }
	if err := errors.Join(yaml.Unmarshal(raw, &written), yaml.Unmarshal(raw, &ordered)); err != nil {
		return fmt.Errorf("decode %s: %w", name, err)
	}
	d.order.learn(&written)
	for i := 0; i+1 < len(ordered.Paths.Content); i += 2 {
		path, item := ordered.Paths.Content[i].Value, ordered.Paths.Content[i+1]
		for j := 0; j < len(item.Content); j += 2 {
			if key := item.Content[j].Value; slices.Contains(methods, key) {
				d.operations = append(d.operations, place{key, path})
			}
		}
	}
	return nil
}

// join adds part to whole, object by object. Nothing may be said twice.
func join(whole, part object) error {
	for name, value := range part {
		have, twice := whole[name]
		if !twice {
			whole[name] = value
			continue
		}
		a, ok := have.(object)
		b, also := value.(object)
		if !ok || !also {
			return fmt.Errorf("%s is given twice", name)
		}
		if err := join(a, b); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

var placeholder = regexp.MustCompile(`\$\{(\w+)\}`)

// fill replaces ${name}. A text that is nothing but one of them becomes the
// value itself, so that numbers stay numbers.
func fill(v any, values map[string]any) (any, error) {
	switch v := v.(type) {
	case object:
		out := make(object, len(v))
		for name, value := range v {
			filled, err := fill(value, values)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			out[name] = filled
		}
		return out, nil
	case []any:
		out := make([]any, len(v))
		for i, value := range v {
			filled, err := fill(value, values)
			if err != nil {
				return nil, err
			}
			out[i] = filled
		}
		return out, nil
	case string:
		return fillText(v, values)
	}
	return v, nil
}

func fillText(text string, values map[string]any) (any, error) {
	for _, m := range placeholder.FindAllStringSubmatch(text, -1) {
		value, known := values[m[1]]
		switch {
		case !known:
			return nil, fmt.Errorf("%s is no value of a server", m[0])
		case m[0] == text:
			return value, nil
		}
	}
	return placeholder.ReplaceAllStringFunc(text, func(m string) string { return fmt.Sprint(values[m[2:len(m)-1]]) }), nil
}

// leaveOut takes paths out that this server does not have.
func (d *Document) leaveOut(o Options) {
	has := map[string]bool{"profile": o.Profile, "gateway": o.Gateway}
	paths := d.root["paths"].(object)
	for path, item := range paths {
		flag, only := item.(object)["x-only-with"].(string)
		delete(item.(object), "x-only-with")
		if only && !has[flag] {
			delete(paths, path)
		}
	}
	d.operations = slices.DeleteFunc(d.operations, func(at place) bool { return paths[at.path] == nil })
}

// methods are those that a path can have.
var methods = []string{"get", "put", "post", "delete", "patch"}

// eachOperation walks the operations in the order in which they are written.
func (d *Document) eachOperation(visit func(method, path string, op object) error) error {
	for _, at := range d.operations {
		op := d.root["paths"].(object)[at.path].(object)[at.method].(object)
		if err := visit(at.method, at.path, op); err != nil {
			return fmt.Errorf("%s %s: %w", at.method, at.path, err)
		}
	}
	return nil
}
