package gateway

import (
	"net/http"
	"strings"

	"icecore/ingest/gateway/turn"
)

// action is what a path asks for.
type action int

const (
	actNone action = iota
	actSample
	actCount
	actModels
	actModel
	actBase
	actCompact
)

// route is a path below /gateway/{rollout_id}/.
type route struct {
	act action
	// api is the provider's, or for models the one whose shape is answered.
	api string
	// model is the name in the path, of actModel alone.
	model string
	// path is what the provider gets: without a leading v1/.
	path string
}

// APIs, as traces name them.
const (
	apiChat      = "openai.chat"
	apiResponses = "openai.responses"
	apiMessages  = "anthropic.messages"
	apiGenerate  = "google.generate"
)

// there tells what there is, in the answer to a path that is not.
const there = "POST chat/completions, responses, messages, messages/count_tokens, " +
	"v1beta/models/{model}:generateContent, :streamGenerateContent, :countTokens, and GET models, v1beta/models"

// match finds the route of a path. Leading v1/ say nothing: harnesses differ in
// whether they append it.
func match(path string, h http.Header) route {
	path = strings.Trim(path, "/")
	if path == "v1" {
		path = ""
	}
	short := path
	for strings.HasPrefix(short, "v1/") { // a base URL with v1 and a client that adds its own
		short = strings.TrimPrefix(short, "v1/")
	}
	switch short {
	case "":
		return route{act: actBase, api: apiChat}
	case "chat/completions":
		return route{act: actSample, api: apiChat, path: short}
	case "responses":
		return route{act: actSample, api: apiResponses, path: short}
	case "responses/compact":
		return route{act: actCompact, api: apiResponses, path: short}
	case "messages":
		return route{act: actSample, api: apiMessages, path: short}
	case "messages/count_tokens":
		return route{act: actCount, api: apiMessages, path: short}
	case "models":
		return route{act: actModels, api: modelsAPI(h)}
	case "v1beta/models":
		return route{act: actModels, api: apiGenerate}
	}
	name, google := strings.CutPrefix(short, "v1beta/models/")
	if !google {
		var models bool
		if name, models = strings.CutPrefix(short, "models/"); !models {
			return route{act: actNone, api: apiOf(short)}
		}
	}
	// A model's name may hold a colon, so the last one parts it from the method.
	if at := strings.LastIndexByte(name, ':'); at > 0 {
		switch name[at+1:] {
		case "generateContent", "streamGenerateContent":
			return route{act: actSample, api: apiGenerate, path: generatePath(short)}
		case "countTokens":
			return route{act: actCount, api: apiGenerate, path: generatePath(short)}
		}
	}
	if google {
		return route{act: actModel, api: apiGenerate, model: name}
	}
	return route{act: actModel, api: modelsAPI(h), model: name}
}

// generatePath is the path as Google's provider knows it, whatever its version was.
func generatePath(short string) string {
	return "v1beta/" + strings.TrimPrefix(short, "v1beta/")
}

// modelsAPI is whose list of models is wanted: three APIs have it at v1/models.
// Anthropic's clients name a version, Google's have headers of their own.
func modelsAPI(h http.Header) string {
	switch {
	case h.Get("Anthropic-Version") != "":
		return apiMessages
	case h.Get("X-Goog-Api-Client") != "" || h.Get("X-Goog-Api-Key") != "":
		return apiGenerate
	}
	return apiChat
}

// apiOf guesses in whose shape a path that is not there is refused.
func apiOf(path string) string {
	switch {
	case strings.HasPrefix(path, "messages"):
		return apiMessages
	case strings.HasPrefix(path, "v1beta"):
		return apiGenerate
	}
	return apiChat
}

// checkMethod refuses what a route does not take. The error is a *turn.Fault.
func (r route) checkMethod(method string) error {
	wants := http.MethodPost
	switch r.act {
	case actNone:
		return refuse(http.StatusNotFound, turn.CodeNotFound, "there is nothing at this path; there is "+there)
	case actCompact:
		// A client that asks for this keeps no history of its own any more: what we
		// would make up could not be told from what the model said.
		return refuse(http.StatusBadRequest, turn.CodeUnsupported, "responses/compact is not served: "+
			"configure the provider under another name than OpenAI, so that the harness compacts by an ordinary call")
	case actBase, actModels, actModel:
		if method == http.MethodGet || method == http.MethodHead {
			return nil
		}
		wants = "GET or HEAD"
	case actSample, actCount:
		if method == http.MethodPost {
			return nil
		}
	}
	return refuse(http.StatusMethodNotAllowed, turn.CodeInvalidRequest, "this path takes "+wants+", not "+method)
}

// wantsWebSocket says that a harness wants to talk over a WebSocket. (Other upgrades, as
// to HTTP/2, are offers that may be passed over.)
func wantsWebSocket(h http.Header) bool {
	return strings.EqualFold(h.Get("Upgrade"), "websocket")
}
