package openapi

import (
	"fmt"
	"strconv"
	"strings"

	"icecore/problem"
)

// addErrors turns the codes that operations list into responses, and the
// catalogue into the schemas of codes.
func (d *Document) addErrors() error {
	var all, ofItems []any
	for i := range problem.Catalogue {
		e := &problem.Catalogue[i]
		all = append(all, string(e.Code))
		if e.Item {
			ofItems = append(ofItems, string(e.Code))
		}
	}
	schemas := d.root["components"].(object)["schemas"].(object)
	schemas["ProblemCode"] = object{"type": "string", "enum": all, "description": "Stable name of a fault."}
	schemas["ItemCode"] = object{"type": "string", "enum": ofItems, "description": "Stable name of a fault of one item."}
	return d.eachOperation(func(_, _ string, op object) error {
		codes, _ := op["x-errors"].([]any)
		delete(op, "x-errors")
		entries, err := entriesOf(codes)
		if err != nil {
			return err
		}
		responses := op["responses"].(object)
		for _, e := range entries {
			status := strconv.Itoa(e.Status)
			if responses[status] == nil {
				responses[status] = errorResponse(e.Status, entries)
			} else if responses[status].(object)["x-codes"] == nil {
				return fmt.Errorf("code %s is answered with status %s, which is described by hand", e.Code, status)
			}
		}
		return nil
	})
}

func entriesOf(codes []any) ([]*problem.Entry, error) {
	out := make([]*problem.Entry, len(codes))
	for i, code := range codes {
		if out[i] = problem.Find(problem.Code(code.(string))); out[i] == nil {
			return nil, fmt.Errorf("x-errors: code %s is not in the catalogue", code)
		}
	}
	return out, nil
}

// errorResponse describes the answers with one status.
func errorResponse(status int, entries []*problem.Entry) object {
	var codes []any
	var says []string
	var example *problem.Entry
	headers := object{}
	for _, e := range entries {
		if e.Status != status {
			continue
		}
		if example == nil {
			example = e
		}
		codes = append(codes, string(e.Code))
		says = append(says, "- `"+string(e.Code)+"`: "+strings.TrimSpace(e.Meaning+" "+e.Do))
		if e.Retry() {
			headers["Retry-After"] = object{"required": true, "schema": object{"type": "integer", "minimum": 1},
				"description": "Seconds after which the same request may be sent again."}
		}
	}
	response := object{
		"description": strings.Join(says, "\n"),
		// The page finds the entries by it.
		"x-codes": codes,
		"content": object{"application/problem+json": object{
			"schema": object{"$ref": "#/components/schemas/Problem",
				"properties": object{"code": object{"enum": codes}, "status": object{"const": status}}},
			"example": object{"type": problem.Type(example.Code), "title": example.Title(), "status": status,
				"code": string(example.Code), "detail": "What happened, for people."},
		}},
	}
	if len(headers) > 0 {
		response["headers"] = headers
	}
	return response
}
