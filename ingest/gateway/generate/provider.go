package generate

import (
	"net/http"
	"strconv"
	"strings"

	"icecore/ingest/gateway/body"
	"icecore/ingest/gateway/turn"
)

// API is the name of this API in traces.
const API = "google.generate"

// Provider implements turn.Provider.
type Provider struct{}

// API implements turn.Provider.
func (Provider) API() string { return API }

// Decode implements turn.Provider. The path names model and method. Of a body for
// countTokens it gives the call whose prompt is to be counted.
func (Provider) Decode(in turn.Incoming) (*turn.Request, error) {
	fields, err := body.Read(in.Body)
	if err != nil {
		return nil, err
	}
	d := decoder{body: fields, r: &turn.Request{Sampling: map[string]raw{}}, calls: newPending()}
	model, method := target(in.Path)
	d.r.Model = model
	switch method {
	case "generateContent":
	case "streamGenerateContent":
		d.r.Stream = true
		d.r.Array = in.Query.Get("alt") != "sse" && in.Query.Get("$alt") != "sse"
	case "countTokens":
		if inner := get(fields, "generateContentRequest"); !inner.Absent() {
			if d.body, err = inner.Fields(); err != nil {
				return nil, err
			}
		}
	default:
		return nil, &turn.Fault{Status: http.StatusNotFound, Code: turn.CodeNotFound, Message: "there is no method " + strconv.Quote(method)}
	}
	if model == "" {
		return nil, turn.Invalid("model", "the path must name a model, as models/NAME:generateContent")
	}
	for _, step := range []func() error{d.system, d.history, d.tools, d.choice, d.generation, d.rest} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return d.r, nil
}

// target parts a path into model and method.
func target(path string) (model, method string) {
	at := strings.LastIndexByte(path, ':')
	if at < 0 {
		return "", ""
	}
	model, method = path[:at], path[at+1:]
	if _, name, found := strings.Cut(model, "models/"); found {
		model = name
	}
	return model, method
}

// Stream implements turn.Provider.
func (Provider) Stream(r *turn.Request, h turn.Head) turn.Stream {
	return &stream{names: r.Names, hidden: r.Reasoning.Hidden, array: r.Array, head: h, choices: make([]candidate, r.Choices())}
}

// CountTokens is the answer to countTokens.
func CountTokens(n int64) []byte {
	return append(strconv.AppendInt([]byte(`{"totalTokens":`), n, 10), '}')
}
