package enginetest

import (
	"cmp"
	"encoding/json"
	"net/http"
)

// The generations of SGLang's chat, as paths.
const (
	gen0513   = "sglang-0.5.13"
	gen30917  = "sglang-30917"
	genSglext = "sglang-sglext"
)

// sglang is the face of one generation of SGLang.
func (e *Engine) sglang(generation string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", e.asks(generation, func() dialect { return &chat{generation: generation} }))
	mux.HandleFunc("POST /v1/completions", e.asks(generation, func() dialect { return &completions{generation: generation} }))
	mux.HandleFunc("POST /generate", e.asks(generation, func() dialect { return &native{} }))
	mux.HandleFunc("GET /health", e.health)
	mux.HandleFunc("GET /health_generate", e.health)
	mux.HandleFunc("GET /v1/models", e.models)
	info := func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{"model_path": DefaultModel, "tokenizer_path": DefaultModel,
			"is_generation": true, "weight_version": e.Version()})
	}
	for _, route := range []string{"/get_model_info", "/model_info", "/server_info", "/get_server_info"} {
		mux.HandleFunc("GET "+route, info)
	}
	version := func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"weight_version": e.Version()})
	}
	mux.HandleFunc("GET /get_weight_version", version)
	mux.HandleFunc("GET /weight_version", version)
	mux.HandleFunc("POST /tokenize", e.tool(generation, func(raw []byte, r *http.Request) (any, error) {
		var b struct {
			Model    string          `json:"model"`
			Messages json.RawMessage `json:"messages"`
		}
		if json.Unmarshal(raw, &b) == nil && b.Messages != nil && !e.server(cmp.Or(r.Header.Get("X-Script"), b.Model)).TokenizeMessages {
			return nil, refuse(http.StatusBadRequest, "prompt: Field required")
		}
		return e.tokenize(raw, r)
	}))
	mux.HandleFunc("POST /detokenize", e.tool(generation, e.detokenize("text")))
	for _, route := range []string{"/update_weight_version", "/update_weights_from_disk", "/update_weights_from_tensor", "/update_weights_from_distributed"} {
		mux.HandleFunc("POST "+route, e.tool(generation, e.setVersion("weight_version")))
	}
	mux.HandleFunc("POST /pause_generation", e.tool(generation, func(raw []byte, _ *http.Request) (any, error) {
		var b struct {
			Mode string `json:"mode"`
		}
		if len(raw) > 0 && json.Unmarshal(raw, &b) != nil {
			return nil, refuse(http.StatusBadRequest, "read body")
		}
		mode := cmp.Or(b.Mode, "abort")
		if mode != "abort" && mode != "retract" && mode != "in_place" {
			return nil, refuse(http.StatusBadRequest, "mode must be abort, retract or in_place, got %q", mode)
		}
		e.Pause(mode)
		return map[string]string{"message": "Generation paused successfully.", "status": "ok"}, nil
	}))
	mux.HandleFunc("POST /continue_generation", e.tool(generation, func([]byte, *http.Request) (any, error) {
		e.Resume()
		return map[string]string{"message": "Generation continued successfully.", "status": "ok"}, nil
	}))
	mux.HandleFunc("POST /abort_request", e.tool(generation, func(raw []byte, _ *http.Request) (any, error) {
		var b struct {
			RID string `json:"rid"`
			All bool   `json:"abort_all"`
		}
		if err := json.Unmarshal(raw, &b); err != nil || b.RID == "" && !b.All {
			return nil, refuse(http.StatusBadRequest, "rid is missing")
		}
		if b.All {
			e.Abort()
		} else {
			e.Abort(b.RID)
		}
		return map[string]string{"status": "ok"}, nil
	}))
	return mux
}

// plain is any server of OpenAI's chat completions that knows nothing of ids.
func (e *Engine) plain() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", e.asks("plain", func() dialect { return &chat{} }))
	mux.HandleFunc("GET /v1/models", e.models)
	return mux
}
