// Package chat is OpenAI's Chat Completions as a provider.
//
// Messages, tools and parameters reach the engine as they came; what does not is listed
// in the request's rewrites. A harness cannot switch off what capture needs.
package chat

import (
	"net/http"

	"icecore/ingest/gateway/openai"
	"icecore/ingest/gateway/turn"
)

// Provider is Chat Completions.
type Provider struct{}

var (
	_ turn.Provider     = Provider{}
	_ turn.WholeFlagger = Provider{}
)

// API gives openai.chat.
func (Provider) API() string { return "openai.chat" }

// Fault gives a fault in OpenAI's shape.
func (Provider) Fault(f *turn.Fault) (status int, header http.Header, body []byte) {
	return openai.Fault(f)
}
