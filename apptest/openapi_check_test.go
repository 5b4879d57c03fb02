package apptest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// exchange is a request and its answer, read to its end.
type exchange struct {
	request *http.Request
	// sent is the request's body as JSON or NDJSON; nil: it is neither, or was
	// streamed.
	sent   []byte
	status int
	header http.Header
	body   []byte
	// cut: body is only the beginning.
	cut bool
}

// check gives what of an exchange is not as the document says.
func (d *description) check(x *exchange) error {
	// Below /gateway answers have the shape of the providers' APIs, faults too.
	if strings.HasPrefix(x.request.URL.Path, "/gateway/") {
		return nil
	}
	path, item := d.find(x.request.Method, x.request.URL.EscapedPath())
	if item == nil {
		return d.checkRefusal(x, http.StatusNotFound, "no_such_path")
	}
	op, ok := item[strings.ToLower(x.request.Method)].(object)
	if !ok {
		if x.header.Get("Allow") == "" {
			return fmt.Errorf("%s takes no %s, and the answer has no Allow", path, x.request.Method)
		}
		return d.checkRefusal(x, http.StatusMethodNotAllowed, "method_not_allowed")
	}
	at := "/paths/" + escape(path) + "/" + strings.ToLower(x.request.Method)
	at, response := d.follow(at+"/responses/"+strconv.Itoa(x.status), op["responses"].(object)[strconv.Itoa(x.status)])
	if response == nil {
		return fmt.Errorf("%s %s: status %d is not documented: %.300s", x.request.Method, path, x.status, x.body)
	}
	if err := d.checkHeaders(at, response, x.header); err != nil {
		return fmt.Errorf("%s %s, %d: %w", x.request.Method, path, x.status, err)
	}
	if err := d.checkContent(at, response, x.header.Get("Content-Type"), x.body, x.cut); err != nil {
		return fmt.Errorf("%s %s, %d: %w", x.request.Method, path, x.status, err)
	}
	// Of a request that was taken as a whole, the document must allow all of it.
	if x.status != http.StatusOK {
		return nil
	}
	if err := d.checkQuery(path, item, op, x.request.URL.Query()); err != nil {
		return fmt.Errorf("%s %s was taken, but %w", x.request.Method, path, err)
	}
	if body, ok := op["requestBody"].(object); ok && x.sent != nil {
		media := x.request.Header.Get("Content-Type")
		if media == "" {
			media = typeJSON
		}
		at := "/paths/" + escape(path) + "/" + strings.ToLower(x.request.Method) + "/requestBody"
		if err := d.checkContent(at, body, media, x.sent, false); err != nil {
			return fmt.Errorf("%s %s was taken, but its body: %w", x.request.Method, path, err)
		}
	}
	return nil
}

// checkRefusal: what the document does not have is answered so.
func (d *description) checkRefusal(x *exchange, status int, code string) error {
	if x.status != status {
		return fmt.Errorf("%s %s is not documented, and answered %d", x.request.Method, x.request.URL.Path, x.status)
	}
	if x.request.Method == http.MethodHead {
		return nil
	}
	if err := d.validate("/components/schemas/Problem", x.body); err != nil {
		return err
	}
	var p problem
	if err := json.Unmarshal(x.body, &p); err != nil || p.Code != code {
		return fmt.Errorf("%s %s is not documented, and answered %s", x.request.Method, x.request.URL.Path, p.Code)
	}
	return nil
}

// checkHeaders: those that are promised are there, and none of ours that is not.
func (d *description) checkHeaders(at string, response object, header http.Header) error {
	documented, _ := response["headers"].(object)
	for name, v := range documented {
		h := v.(object)
		value := header.Get(name)
		if value == "" {
			if h["required"] == true {
				return fmt.Errorf("header %s is missing", name)
			}
			continue
		}
		if err := d.validateText(at+"/headers/"+escape(name)+"/schema", h["schema"].(object), value); err != nil {
			return fmt.Errorf("header %s: %w", name, err)
		}
	}
	for name := range header {
		if (strings.HasPrefix(name, "Icecore-") || name == "Retry-After") && documented[name] == nil {
			return fmt.Errorf("header %s is not documented", name)
		}
	}
	return nil
}

// checkContent: of with its content is a response or a request body.
func (d *description) checkContent(at string, of object, contentType string, body []byte, cut bool) error {
	content, _ := of["content"].(object)
	if content == nil && contentType == "" && len(body) == 0 {
		return nil
	}
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return fmt.Errorf("Content-Type %q: %w", contentType, err)
	}
	if content[media] == nil {
		return fmt.Errorf("content type %s is not documented", media)
	}
	at += "/content/" + escape(media) + "/schema"
	if cut {
		return nil
	}
	switch media {
	case typeJSON, "application/problem+json":
		return d.validate(at, body)
	case typeNDJSON:
		// The document's array stands for the lines.
		lines := bytes.Split(bytes.TrimSuffix(body, []byte("\n")), []byte("\n"))
		lines = slices.DeleteFunc(lines, func(l []byte) bool { return len(bytes.TrimSpace(l)) == 0 })
		return d.validate(at, slices.Concat([]byte("["), bytes.Join(lines, []byte(",")), []byte("]")))
	case "text/plain", "text/html":
		text, err := json.Marshal(string(body))
		if err != nil {
			return err
		}
		return d.validate(at, text)
	}
	return nil
}

// checkQuery: every parameter that was taken is documented, and its values are.
func (d *description) checkQuery(path string, item, op object, query url.Values) error {
	known := map[string]object{}
	where := map[string]string{}
	method := ""
	for m, v := range item {
		if o, ok := v.(object); ok && fmt.Sprintf("%p", o) == fmt.Sprintf("%p", op) {
			method = m
		}
	}
	list, _ := op["parameters"].([]any)
	for i, v := range list {
		at, p := d.follow("/paths/"+escape(path)+"/"+method+"/parameters/"+strconv.Itoa(i), v)
		if p["in"] == "query" {
			known[p["name"].(string)], where[p["name"].(string)] = p, at
		}
	}
	for name, values := range query {
		p := known[name]
		if p == nil {
			return fmt.Errorf("parameter %s is not documented", name)
		}
		schema, at := p["schema"].(object), where[name]+"/schema"
		if schema["type"] == "array" {
			schema, at = schema["items"].(object), at+"/items"
		}
		for _, value := range values {
			if value == "" {
				continue // as if it were not there
			}
			if err := d.validateText(at, schema, value); err != nil {
				return fmt.Errorf("parameter %s: %w", name, err)
			}
		}
	}
	return nil
}

// validateText checks a value that is text on the wire.
func (d *description) validateText(at string, schema object, text string) error {
	_, schema = d.follow(at, schema)
	raw := []byte(text)
	if kind := schema["type"]; kind != "integer" && kind != "boolean" && kind != "number" || !json.Valid(raw) {
		var err error
		if raw, err = json.Marshal(text); err != nil {
			return err
		}
	}
	return d.validate(at, raw)
}

// validate checks JSON by the schema at a place of the document.
func (d *description) validate(at string, raw []byte) error {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return fmt.Errorf("is no JSON: %w: %.300s", err, raw)
	}
	schema, err := d.schema(at)
	if err != nil {
		return err
	}
	if err := schema.Validate(v); err != nil {
		return fmt.Errorf("%w\nin %.500s", err, raw)
	}
	return nil
}
