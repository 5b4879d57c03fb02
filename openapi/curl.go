package openapi

import (
	"fmt"
	"net/url"
	"strings"
)

// curl is a command that calls an operation, from its examples.
func (d *Document) curl(base, method, path string, parameters []object, op object) string {
	query := url.Values{}
	for _, p := range parameters {
		value, given := p["example"]
		switch {
		case !given:
		case text(p, "in") == "path":
			path = strings.ReplaceAll(path, "{"+text(p, "name")+"}", url.PathEscape(fmt.Sprint(value)))
		default:
			values, several := value.([]any)
			if !several {
				values = []any{value}
			}
			for _, v := range values {
				query.Add(text(p, "name"), fmt.Sprint(v))
			}
		}
	}
	out := "curl -s"
	if method != "get" && (method != "post" || op["requestBody"] == nil) {
		out += " -X " + strings.ToUpper(method)
	}
	if body, ok := op["requestBody"].(object); ok {
		m := body["content"].(object)["application/json"].(object)
		out += " --json " + shellQuoted(string(d.order.json(nil, m["example"])))
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return out + " " + shellQuoted(base+path)
}

func shellQuoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
