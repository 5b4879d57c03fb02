package enginetest

import (
	"cmp"
	"encoding/json"
	"io"
	"net/http"
)

// vllm is the face of vLLM 0.32, with VLLM_SERVER_DEV_MODE=1.
func (e *Engine) vllm() http.Handler {
	const face = "vllm"
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", e.asks(face, func() dialect { return &chat{vllm: true} }))
	mux.HandleFunc("POST /v1/completions", e.asks(face, func() dialect { return &completions{} }))
	mux.HandleFunc("POST /inference/v1/generate", e.asks(face, func() dialect { return &generate{} }))
	mux.HandleFunc("GET /health", e.health)
	mux.HandleFunc("GET /v1/models", e.models)
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"version": "0.32.0"})
	})
	mux.HandleFunc("POST /tokenize", e.tool(face, e.tokenizeVLLM))
	mux.HandleFunc("POST /v1/chat/completions/render", e.tool(face, e.render))
	mux.HandleFunc("POST /detokenize", e.tool(face, e.detokenize("prompt")))

	dev := http.NewServeMux()
	dev.HandleFunc("GET /weight_info", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"weight_version": e.Version()})
	})
	dev.HandleFunc("POST /finish_weight_update", e.tool(face, e.setVersion("weight_version")))
	dev.HandleFunc("POST /update_weight_version", e.tool(face, e.setVersion("new_version")))
	dev.HandleFunc("POST /pause", e.tool(face, func(_ []byte, r *http.Request) (any, error) {
		mode := cmp.Or(r.URL.Query().Get("mode"), "abort")
		if mode != "abort" && mode != "wait" && mode != "keep" {
			return nil, refuse(http.StatusBadRequest, "mode must be abort, wait or keep, got %q", mode)
		}
		e.Pause(mode)
		return map[string]string{"status": "paused"}, nil
	}))
	dev.HandleFunc("POST /resume", e.tool(face, func([]byte, *http.Request) (any, error) {
		e.Resume()
		return map[string]string{"status": "resumed"}, nil
	}))
	dev.HandleFunc("GET /is_paused", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]bool{"is_paused": e.Paused() != ""})
	})
	dev.HandleFunc("POST /abort_requests", e.tool(face, func(raw []byte, _ *http.Request) (any, error) {
		var b struct {
			RequestIDs []string `json:"request_ids"`
		}
		if err := json.Unmarshal(raw, &b); err != nil || len(b.RequestIDs) == 0 {
			return nil, refuse(http.StatusBadRequest, "request_ids is missing")
		}
		e.Abort(b.RequestIDs...)
		return map[string]string{"status": "ok"}, nil
	}))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if e.server(DefaultModel).NoDev {
			http.NotFound(w, r)
			return
		}
		dev.ServeHTTP(w, r)
	})
	return mux
}

// server gives the switches of a model's server; those of the default where there is
// no such model.
func (e *Engine) server(model string) Server { return e.scriptOf(model).Server }

func (e *Engine) scriptOf(model string) *Script {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.scripts[model]; s != nil {
		return s.script
	}
	return e.scripts[DefaultModel].script
}

func (e *Engine) models(w http.ResponseWriter, _ *http.Request) {
	type model struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		Created int64  `json:"created"`
		OwnedBy string `json:"owned_by"`
		Root    string `json:"root"`
		MaxLen  int    `json:"max_model_len"`
	}
	var list struct {
		Object string  `json:"object"`
		Data   []model `json:"data"`
	}
	list.Object = "list"
	for _, name := range e.Models() {
		list.Data = append(list.Data, model{ID: name, Object: "model", Created: 1, OwnedBy: "icecore", Root: name,
			MaxLen: e.scriptOf(name).maxLen()})
	}
	writeJSON(w, http.StatusOK, list)
}

// tool serves a route that samples nothing: it reads a body and gives an answer.
func (e *Engine) tool(face string, do func(raw []byte, r *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler) // the client has left
		}
		entry := e.ledger.begin(face, r, raw)
		answer, err := do(raw, r)
		if err != nil {
			(&call{e: e, entry: entry}).refuse(w, err)
			return
		}
		e.ledger.change(entry, true, func(entry *Entry) { entry.Status, entry.Ended = http.StatusOK, "done" })
		writeJSON(w, http.StatusOK, answer)
	}
}

// setVersion takes the version of the weights from the member of this name.
func (e *Engine) setVersion(name string) func([]byte, *http.Request) (any, error) {
	return func(raw []byte, _ *http.Request) (any, error) {
		var b map[string]any
		if err := json.Unmarshal(raw, &b); err != nil {
			return nil, refuse(http.StatusBadRequest, "%s is missing", name)
		}
		version, ok := b[name].(string)
		if !ok {
			return nil, refuse(http.StatusBadRequest, "%s is missing", name)
		}
		e.SetVersion(version)
		return map[string]any{"success": true, name: version}, nil
	}
}
