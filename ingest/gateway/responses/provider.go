// Package responses is OpenAI's Responses API as a provider.
//
// The items of a request become messages: what one answer gave (reasoning, message,
// calls) becomes one turn of the assistant again. An answer becomes items: each is
// announced, streamed, and done once, with the same ids in stream and final object.
// Nothing is kept between requests, so what needs the server's memory is refused.
package responses

import (
	"net/http"

	"icecore/ingest/gateway/openai"
	"icecore/ingest/gateway/turn"
)

// Provider is the Responses API.
type Provider struct{}

var (
	_ turn.Provider     = Provider{}
	_ turn.WholeFlagger = Provider{}
)

// API gives openai.responses.
func (Provider) API() string { return "openai.responses" }

// Fault gives a fault in OpenAI's shape.
func (Provider) Fault(f *turn.Fault) (status int, header http.Header, body []byte) {
	return openai.Fault(f)
}
