package gateway

import (
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"icecore/ingest/gateway/turn"
)

// Register adds the routes. That for what is not found takes methods that Echo does not
// know. Where a base URL lacks /gateway/{rollout_id}, the API's path stands somewhere
// else: clients of a provider show no more of another's error than its status, so it is
// answered here. For that e must have its error handler already.
func (g *Gateway) Register(e *echo.Echo) {
	for _, path := range []string{"/gateway/:rollout_id", "/gateway/:rollout_id/*"} {
		e.Any(path, g.handle)
		e.RouteNotFound(path, g.handle)
	}
	others := e.HTTPErrorHandler
	e.HTTPErrorHandler = func(err error, c echo.Context) {
		if path := strings.TrimRight(c.Request().URL.Path, "/"); errors.Is(err, echo.ErrNotFound) && (pathOfAPI.MatchString(path) || path == "/gateway") {
			g.astray(c)
			return
		}
		others(err, c)
	}
}

// pathOfAPI finds the paths of the APIs, wherever a base URL has put them.
var pathOfAPI = regexp.MustCompile(`/(?:chat/completions|responses|messages|messages/count_tokens|models(?:/[^/]+)?)$|/v1(?:beta|alpha)/`)

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

// partsOfPaths are no rollouts in a path: where one of them stands in a rollout's place,
// the base URL lacks the rollout, and the calls of every such harness would go into one.
// Nor is what a template or a program leaves there that was not filled in.
var partsOfPaths = []string{"", ".", "..", "v1", "v2", "v1beta", "v1alpha", "api", "openai", "anthropic", "gateway",
	"chat", "completions", "responses", "messages", "models", "rollout", "rollout_id", "undefined", "null", "none"}

func isRollout(id string) bool {
	return !slices.Contains(partsOfPaths, strings.ToLower(strings.TrimSpace(id))) && !strings.ContainsAny(id, "{}<>$")
}

// baseURL is how the base URL of an API looks.
func baseURL(api string) string {
	if api == apiMessages || api == apiGenerate {
		return "http://HOST:PORT/gateway/ROLLOUT"
	}
	return "http://HOST:PORT/gateway/ROLLOUT/v1"
}

// astray refuses calls whose base URL has no /gateway in it.
func (g *Gateway) astray(c echo.Context) {
	v := &visit{w: c.Response(), r: c.Request()}
	v.route = match(v.r.Method, v.r.URL.Path, v.r.Header)
	v.provider = g.providers[v.route.api]
	g.fail(v, refuse(http.StatusNotFound, turn.CodeNotFound, "there is nothing at this path: the base URL of this API is "+baseURL(v.route.api)+
		", with the id of a rollout in place of ROLLOUT"))
}

// match finds the route of a path. Leading v1/ say nothing: harnesses differ in
// whether they append it.
func match(method, path string, h http.Header) route {
	path = strings.Trim(path, "/")
	if path == "v1" {
		path = ""
	}
	short := path
	for strings.HasPrefix(short, "v1/") { // a base URL with v1 and a client that adds its own
		short = strings.TrimPrefix(short, "v1/")
	}
	if alpha, is := strings.CutPrefix(short, "v1alpha/"); is { // Google's for what is new; the same here
		short = "v1beta/" + alpha
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
			return route{act: actNone, api: apiOf(short, h)}
		}
	}
	// A model's name may hold a colon, so the last one parts it from the method. Nobody
	// but Google posts to a model.
	if at := strings.LastIndexByte(name, ':'); at >= 0 {
		act := map[string]action{"generateContent": actSample, "streamGenerateContent": actSample, "countTokens": actCount}[name[at+1:]]
		switch {
		case act != actNone && at > 0:
			return route{act: act, api: apiGenerate, path: generatePath(short)}
		case act != actNone || method == http.MethodPost:
			return route{act: actNone, api: apiGenerate}
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
func apiOf(path string, h http.Header) string {
	switch {
	case strings.HasPrefix(path, "messages/"), strings.HasSuffix(path, "messages"), strings.HasSuffix(path, "messages/count_tokens"):
		return apiMessages
	case strings.HasSuffix(path, "chat/completions"):
		return apiChat
	case strings.HasSuffix(path, "responses"):
		return apiResponses
	case strings.Contains(path, "v1beta/"), strings.Contains(path, ":generateContent"), strings.Contains(path, ":streamGenerateContent"):
		return apiGenerate
	}
	return modelsAPI(h)
}

// methods are those that a route takes; none: there is no such route.
func (r route) methods() []string {
	switch r.act {
	case actBase, actModels, actModel:
		return []string{http.MethodGet, http.MethodHead}
	case actSample, actCount:
		return []string{http.MethodPost}
	case actNone, actCompact:
	}
	return nil
}

// checkMethod refuses what a route does not take. The error is a *turn.Fault.
func (r route) checkMethod(method string) error {
	switch r.act {
	case actNone:
		return refuse(http.StatusNotFound, turn.CodeNotFound, "there is nothing at this path; there is "+there+
			"; the base URL of this API is "+baseURL(r.api)+", with the id of a rollout in place of ROLLOUT")
	case actCompact:
		// A client that asks for this keeps no history of its own any more: what we
		// would make up could not be told from what the model said.
		return refuse(http.StatusBadRequest, turn.CodeUnsupported, "responses/compact is not served: "+
			"configure the provider under another name than OpenAI, so that the harness compacts by an ordinary call")
	case actBase, actModels, actModel, actSample, actCount:
	}
	if slices.Contains(r.methods(), method) {
		return nil
	}
	return refuse(http.StatusMethodNotAllowed, turn.CodeInvalidRequest, "this path takes "+strings.Join(r.methods(), " and ")+", not "+clip(method, 32))
}

// wantsWebSocket says that a harness wants to talk over a WebSocket. (Other upgrades, as
// to HTTP/2, are offers that may be passed over.)
func wantsWebSocket(h http.Header) bool {
	for _, offer := range strings.Split(strings.Join(h.Values("Upgrade"), ","), ",") {
		name, _, _ := strings.Cut(strings.TrimSpace(offer), "/") // a version may follow
		if strings.EqualFold(name, "websocket") {
			return true
		}
	}
	return false
}
