package messages

import (
	"strconv"
	"strings"

	"icecore/ingest/gateway/body"
	"icecore/ingest/gateway/turn"
)

// API is the name of this API in traces.
const API = "anthropic.messages"

// Provider implements turn.Provider.
type Provider struct{}

// API implements turn.Provider.
func (Provider) API() string { return API }

// Decode implements turn.Provider. Of a body for messages/count_tokens, which needs no
// max_tokens, it gives the call whose prompt is to be counted.
func (Provider) Decode(in turn.Incoming) (*turn.Request, error) {
	fields, err := body.Read(in.Body)
	if err != nil {
		return nil, err
	}
	d := decoder{
		body:     fields,
		r:        &turn.Request{Sampling: map[string]raw{}},
		counting: strings.HasSuffix(in.Path, "/count_tokens"),
	}
	for _, step := range []func() error{d.basics, d.system, d.history, d.tools, d.choice, d.sampling, d.thinking, d.output, d.rest} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return d.r, nil
}

// Stream implements turn.Provider.
func (Provider) Stream(r *turn.Request, h turn.Head) turn.Stream {
	return &stream{names: r.Names, hidden: r.Reasoning.Hidden, head: h, calls: map[int]*block{}}
}

// CountTokens is the answer to messages/count_tokens.
func CountTokens(n int64) []byte {
	return append(strconv.AppendInt([]byte(`{"input_tokens":`), n, 10), '}')
}
