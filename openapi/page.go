package openapi

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"

	"icecore/problem"
)

//go:embed page.html
var layout string

//go:embed page.css
var style string

// The page is made of these, one type per kind of thing on it.
type (
	pageView struct {
		Title, Version, Summary string
		About                   template.HTML
		Style                   template.CSS
		Tags                    []*tagView
		Schemas                 []fieldView
	}
	tagView struct {
		Name       string
		About      template.HTML
		Operations []*operationView
	}
	operationView struct {
		ID, Method, Path, Summary, Curl string
		About, BodyAbout                template.HTML
		Parameters                      []parameterView
		Bodies                          []mediaView
		Responses                       []responseView
		Errors                          []errorView
	}
	parameterView struct {
		Name, In string
		Required bool
		About    template.HTML
		Schema   *schemaView
	}
	mediaView struct {
		Type, Example string
		Schema        *schemaView
	}
	responseView struct {
		Status, Title string
		About         template.HTML
		Headers       []parameterView
		Bodies        []mediaView
	}
	errorView struct {
		*problem.Entry
		Why, Then template.HTML
	}
)

var pageTemplate = template.Must(template.New("page").Parse(layout))

func (d *Document) render(base string) ([]byte, error) {
	info := d.root["info"].(object)
	view := pageView{Title: text(info, "title"), Version: text(info, "version"), Summary: text(info, "summary"),
		About: markdown(text(info, "description")), Style: template.CSS(style)} //nolint:gosec // it is a file of this package
	byName := map[string]*tagView{}
	for _, t := range d.root["tags"].([]any) {
		tag := &tagView{Name: text(t.(object), "name"), About: markdown(text(t.(object), "description"))}
		byName[tag.Name] = tag
		view.Tags = append(view.Tags, tag)
	}
	err := d.eachOperation(func(method, path string, op object) error {
		name := op["tags"].([]any)[0].(string)
		tag := byName[name]
		if tag == nil {
			return fmt.Errorf("tag %s is not listed", name)
		}
		tag.Operations = append(tag.Operations, d.operation(base, method, path, op))
		return nil
	})
	if err != nil {
		return nil, err
	}
	schemas := d.root["components"].(object)["schemas"].(object)
	for _, name := range d.order.names(schemas) {
		view.Schemas = append(view.Schemas, fieldView{Name: name, Schema: d.schemaOf(schemas[name])})
	}
	var out bytes.Buffer
	if err := pageTemplate.Execute(&out, view); err != nil {
		return nil, fmt.Errorf("render page: %w", err)
	}
	return out.Bytes(), nil
}

func (d *Document) operation(base, method, path string, op object) *operationView {
	view := &operationView{ID: text(op, "operationId"), Method: strings.ToUpper(method), Path: path,
		Summary: text(op, "summary"), About: markdown(text(op, "description"))}
	var parameters []object
	list, _ := op["parameters"].([]any)
	for _, p := range list {
		p := d.resolve(p.(object))
		parameters = append(parameters, p)
		required, _ := p["required"].(bool)
		view.Parameters = append(view.Parameters, parameterView{Name: text(p, "name"), In: text(p, "in"), Required: required,
			About: markdown(text(p, "description")), Schema: d.schemaOf(p["schema"])})
	}
	if body, ok := op["requestBody"].(object); ok {
		view.BodyAbout = markdown(text(body, "description"))
		view.Bodies = d.media(body)
	}
	view.Curl = d.curl(base, method, path, parameters, op)
	responses := op["responses"].(object)
	for _, status := range d.order.names(responses) {
		r := d.resolve(responses[status].(object))
		codes, faults := r["x-codes"].([]any)
		for _, code := range codes {
			e := problem.Find(problem.Code(code.(string)))
			view.Errors = append(view.Errors, errorView{e, markdown(e.Meaning), markdown(e.Do)})
		}
		if faults {
			continue
		}
		n, _ := strconv.Atoi(status)
		answer := responseView{Status: status, Title: http.StatusText(n), About: markdown(text(r, "description")), Bodies: d.media(r)}
		headers, _ := r["headers"].(object)
		for _, name := range d.order.names(headers) {
			h := headers[name].(object)
			answer.Headers = append(answer.Headers, parameterView{Name: name, About: markdown(text(h, "description")), Schema: d.schemaOf(h["schema"])})
		}
		view.Responses = append(view.Responses, answer)
	}
	return view
}

// resolve follows a reference into components.
func (d *Document) resolve(o object) object {
	ref, ok := o["$ref"].(string)
	if !ok {
		return o
	}
	var at any = d.root
	for part := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
		at = at.(object)[part]
	}
	return at.(object)
}

func (d *Document) media(of object) (out []mediaView) {
	content, _ := of["content"].(object)
	for _, name := range d.order.names(content) {
		m := content[name].(object)
		out = append(out, mediaView{Type: name, Schema: d.schemaOf(m["schema"]), Example: d.example(m["example"])})
	}
	return out
}

// example writes a value as people read it; texts stand for themselves.
func (d *Document) example(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	}
	return string(d.order.indented(v))
}

// text is a text of an object, or empty.
func text(o object, name string) string {
	s, _ := o[name].(string)
	return s
}

var converter = goldmark.New(goldmark.WithExtensions(extension.Table))

// markdown renders a description. It lets no HTML through.
func markdown(s string) template.HTML {
	if s == "" {
		return ""
	}
	var out bytes.Buffer
	if err := converter.Convert([]byte(s), &out); err != nil {
		panic(err) // a buffer takes everything
	}
	return template.HTML(out.String()) //nolint:gosec // goldmark leaves raw HTML out
}
