package engine

import (
	"encoding/base64"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Engine is one of a pool.
type Engine struct {
	pool *Pool
	cfg  Config
	name string
	// base is the URL without credential and /v1.
	base string
	// auth is the header's value; secrets are never told.
	auth    string
	secrets []secret
	open    atomic.Int64
	slots   chan struct{} // nil: unbounded
	poke    chan struct{}
	looked  atomic.Int64 // when it was looked at last, in nanoseconds
	// asking is held by whoever asks for the version.
	asking chan struct{}
	// heard counts reads of answers: it moves while any stream does. heardLast is what it
	// was at the last look.
	heard     atomic.Int64
	heardLast int64

	mu      sync.Mutex
	kind    string
	version string
	// healthy is usable too.
	healthy, usable bool
	why             string
	warned          map[string]bool // what the log says is wrong, until it comes up
	since           time.Time
	lates           int // looks in a row that ran out of time
	downs           int64
	listed          []Model
	asked           time.Time // when the models were
	// absent are routes that the engine does not have.
	absent map[string]bool
	// knows are members of a chat request that the engine's own description names; nil:
	// it gives none.
	knows  map[string]bool
	learnt map[string]*learnt
	weight weight
	// endings: whether a prompt that ends so ends within the thinking.
	endings map[ending]bool
}

// Name is the engine's name.
func (e *Engine) Name() string { return e.name }

// Kind is vllm, sglang or openai; empty while the engine has never answered.
func (e *Engine) Kind() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.kind
}

func (e *Engine) credential(key string, user *url.Userinfo) {
	if key != "" {
		e.auth = "Bearer " + key
		e.secrets = append(e.secrets, spelt(key))
	}
	if user == nil {
		return
	}
	password, _ := user.Password()
	basic := base64.StdEncoding.EncodeToString([]byte(user.Username() + ":" + password))
	e.secrets = append(e.secrets, spelt(basic))
	if password != "" {
		e.secrets = append(e.secrets, spelt(password))
	}
	if e.auth == "" {
		e.auth = "Basic " + basic
	}
}

// serves gives the models that the engine is used for.
func (e *Engine) serves() []Model {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.cfg.Models) == 0 {
		return slices.Clone(e.listed)
	}
	out := make([]Model, len(e.cfg.Models))
	for i, name := range e.cfg.Models {
		out[i].Name = name
		for _, m := range e.listed {
			if m.Name == name {
				out[i].MaxLen = m.MaxLen
			}
		}
	}
	return out
}

// maxLen is the longest sequence of a model; 0: not known. It is for vLLM, which serves
// one model and adapters of it: an adapter is listed without a length, or loaded since
// the list was read, and has the model's.
func (e *Engine) maxLen(model string) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	least := int64(0)
	for _, m := range e.listed {
		if m.Name == model && m.MaxLen > 0 {
			return m.MaxLen
		}
		if m.MaxLen > 0 && (least == 0 || m.MaxLen < least) {
			least = m.MaxLen
		}
	}
	return least
}

// has says whether the engine may have a route: it has not said no.
func (e *Engine) has(route string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.absent[route]
}

func (e *Engine) lacks(route string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.absent[route] = true
}
