package enginetest

import (
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Options of an Engine; the zero value is ready.
type Options struct {
	Seed uint64
	// Default is the script of the model "policy".
	Default Script
	// Delay passes before each chunk of ids, whatever the script.
	Delay time.Duration
	// Key, when not empty, must come as bearer token on every face.
	Key string
	// LedgerTo, when set, receives each entry as a line of JSON, at the call's begin and
	// again before the end of its answer. The later line of a seq holds.
	LedgerTo io.Writer
	// LedgerMax bounds the entries held in memory, the oldest leave; 0: all are held.
	LedgerMax int
}

// DefaultModel is the model that is always there.
const DefaultModel = "policy"

// Engine is a test engine. It is safe for concurrent use.
type Engine struct {
	options Options
	ledger  ledger
	control control
	mu      sync.Mutex
	scripts map[string]*scripted
	names   []string // in the order they came
	faces   map[string]http.Handler
	sick    atomic.Bool
}

// scripted is a script and what it has lived through.
type scripted struct {
	script   *Script
	attempts atomic.Int64
	bumped   atomic.Bool
}

// New makes an engine.
func New(o Options) *Engine {
	e := &Engine{options: o, scripts: map[string]*scripted{}, faces: map[string]http.Handler{}}
	e.ledger.to, e.ledger.most = o.LedgerTo, o.LedgerMax
	e.control.init()
	e.Script(DefaultModel, o.Default)
	e.faces["vllm"] = e.vllm()
	for _, generation := range []string{gen0513, gen30917, genSglext} {
		e.faces[generation] = e.sglang(generation)
	}
	e.faces["plain"] = e.plain()
	return e
}

// Faces lists the path prefixes, without a slash.
func (e *Engine) Faces() []string {
	return []string{"vllm", gen0513, gen30917, genSglext, "plain"}
}

// Script says what the model of this name answers from now on; its count of
// requests starts anew. Calls under way keep theirs. It panics where Check finds a
// fault.
func (e *Engine) Script(name string, s Script) {
	if err := s.Check(); err != nil {
		panic(fmt.Errorf("script %s: %w", name, err))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.scripts[name] == nil {
		e.names = append(e.names, name)
	}
	e.scripts[name] = &scripted{script: &s}
}

// Models lists the names of the scripts.
func (e *Engine) Models() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.names)
}

// Healthy says what /health answers: 200, as at the start, or 503.
func (e *Engine) Healthy(yes bool) { e.sick.Store(!yes) }

// scripted finds the script of a request. A request without a model gets the default.
func (e *Engine) scripted(model string, r *http.Request) (string, *scripted) {
	name := model
	if h := r.Header.Get("X-Script"); h != "" {
		name = h
	}
	if name == "" {
		name = DefaultModel
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return name, e.scripts[name]
}

// ServeHTTP serves every face, and the engine's own routes.
func (e *Engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	prefix, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if strings.HasPrefix(prefix, "_") {
		e.own(w, r)
		return
	}
	face := e.faces[prefix]
	if face == nil {
		writeJSON(w, http.StatusNotFound, errorBody(http.StatusNotFound, "no such face; there are: /"+strings.Join(e.Faces(), ", /")))
		return
	}
	if k := e.options.Key; k != "" && subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte("Bearer "+k)) != 1 {
		writeJSON(w, http.StatusUnauthorized, map[string]string{"error": "Unauthorized"})
		return
	}
	r2 := r.Clone(r.Context())
	r2.URL.Path = "/" + rest
	r2.URL.RawPath = ""
	face.ServeHTTP(w, r2)
}

// own serves what no engine has: scripts and the ledger.
func (e *Engine) own(w http.ResponseWriter, r *http.Request) {
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /_scripts/{name...}", func(w http.ResponseWriter, r *http.Request) {
		d := json.NewDecoder(r.Body)
		d.DisallowUnknownFields()
		var s Script
		err := d.Decode(&s)
		if err == nil {
			err = s.Check()
		}
		if err != nil {
			writeJSON(w, http.StatusBadRequest, errorBody(http.StatusBadRequest, fmt.Sprintf("read script: %v", err)))
			return
		}
		e.Script(r.PathValue("name"), s)
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /_ledger", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		for _, entry := range e.Ledger() {
			if _, err := w.Write(entry.line()); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("DELETE /_ledger", func(w http.ResponseWriter, _ *http.Request) {
		e.ledger.clear()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("PUT /_health/{state}", func(w http.ResponseWriter, r *http.Request) {
		e.Healthy(r.PathValue("state") == "up")
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /_restart", func(w http.ResponseWriter, _ *http.Request) {
		e.Restart()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.ServeHTTP(w, r)
}

func (e *Engine) health(w http.ResponseWriter, _ *http.Request) {
	if e.sick.Load() {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"error":"write answer"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client has left
}

// errorBody is how vLLM, SGLang and OpenAI tell an error.
func errorBody(status int, message string) any {
	kinds := map[int]string{400: "BadRequestError", 401: "AuthenticationError", 404: "NotFoundError", 429: "RateLimitError", 503: "ServiceUnavailableError"}
	kind := kinds[status]
	if kind == "" {
		kind = "InternalServerError"
	}
	return map[string]any{"error": map[string]any{"message": message, "type": kind, "param": nil, "code": status}}
}
