package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"icecore/ingest/gateway/turn"
)

const (
	// relistAfter is the age from which the list of models is asked for again.
	relistAfter = 30 * time.Second
	// patience is how many looks in a row may run out of time while none of its streams
	// goes on, before an engine counts as unwell.
	patience = 3
	// lookWhenDown bounds the time between looks at an engine that is not healthy.
	lookWhenDown = time.Second
	maxSmall     = 8 << 20
)

// An engine is healthy, unwell or down. One that says nothing in time, or says that it
// is ill while its streams go on, is unwell: it may be busy with long prompts, so it is
// still used where no healthy one serves the model. One that refuses a connection, or
// says that it is ill and does nothing else, is down.

// watch looks at the engine again and again, not quite regularly, so that many
// gateways do not look at once.
func (e *Engine) watch(ctx context.Context) {
	for {
		every := e.pool.o.HealthEvery
		if e.mu.Lock(); !e.healthy {
			every = min(every, lookWhenDown)
		}
		e.mu.Unlock()
		wait := time.NewTimer(every*4/5 + rand.N(every*2/5+1))
		select {
		case <-ctx.Done():
			wait.Stop()
			return
		case <-e.poke:
			wait.Stop()
		case <-wait.C:
		}
		e.look(ctx)
	}
}

// ask has the engine looked at soon. Looks that fail ask as well, so one that was just
// taken is not taken again: the next comes in its time.
func (e *Engine) ask() {
	if time.Since(time.Unix(0, e.looked.Load())) < lookWhenDown {
		return
	}
	select {
	case e.poke <- struct{}{}:
	default:
	}
}

// look asks the engine how it is, and once it is well what it serves. It is called from
// one goroutine at a time.
func (e *Engine) look(ctx context.Context) {
	e.looked.Store(time.Now().UnixNano())
	defer func() { e.looked.Store(time.Now().UnixNano()) }()
	status, err := e.health(ctx)
	heard := e.heard.Load()
	goesOn := heard != e.heardLast
	e.heardLast = heard
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		e.ill(err, status, goesOn)
		return
	}
	e.mu.Lock()
	first := !e.usable
	if first {
		// It may be another version than before: what it could not do is forgotten.
		e.absent, e.learnt, e.weight = map[string]bool{}, map[string]*learnt{}, weight{}
		e.kind, e.knows, e.endings = e.cfg.Kind, nil, nil
	}
	kind, list := e.kind, first || time.Since(e.asked) > relistAfter
	e.mu.Unlock()
	if kind == "" {
		if e.detect(ctx); e.Kind() == "" {
			e.late(false) // not before it is known how to speak to it
			return
		}
	}
	if first && e.Kind() == KindSGLang {
		e.describe(ctx)
	}
	var unlisted error
	if list {
		unlisted = e.list(ctx)
	}
	if ctx.Err() != nil {
		return
	}
	switch {
	case !e.modelless():
		e.up()
		if unlisted != nil && !late(unlisted) {
			e.warn("the engine's models cannot be listed", e.clean(unlisted.Error()))
		}
	case unlisted != nil:
		e.down("cannot list its models: " + e.clean(unlisted.Error()))
	default:
		e.down("lists no models: " + e.base + "/v1/models was asked; give the URL as it is before /v1, or name the engine's models in the settings")
	}
}

// ill judges a look that failed. goesOn: the engine's streams do.
func (e *Engine) ill(err error, status int, goesOn bool) {
	var f *turn.Fault
	refused := errors.As(err, &f) && f.Code == turn.CodeEngineUnreachable
	why := e.clean(err.Error())
	if status == 0 {
		why = "cannot be reached: " + e.clean(unwrapped(err))
	}
	switch {
	case late(err):
		e.late(goesOn)
	case goesOn && !refused:
		e.unwell(why)
	default:
		e.down(why)
	}
}

// get asks one question of a look, for at most the health timeout.
func (e *Engine) get(ctx context.Context, path string) (data []byte, status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, e.pool.o.HealthTimeout)
	defer cancel()
	return e.small(ctx, http.MethodGet, path, nil, maxSmall)
}

// late says that a question ran out of its time.
func late(err error) bool {
	var f *turn.Fault
	return errors.As(err, &f) && f.Code == turn.CodeTimeout && errors.Is(f.Cause, context.DeadlineExceeded)
}

// health gives the status too; 0: there was no answer.
func (e *Engine) health(ctx context.Context) (int, error) {
	if e.has("/health") {
		_, status, err := e.get(ctx, "/health")
		if err == nil || !missing(status) {
			return status, err
		}
		e.lacks("/health")
	}
	_, status, err := e.get(ctx, "/v1/models")
	if err != nil && missing(status) {
		return status, nil // it answers; what it serves stands in the configuration
	}
	return status, err
}

func (e *Engine) up() {
	e.mu.Lock()
	turned := !e.healthy
	e.healthy, e.usable, e.why, e.lates = true, true, "", 0
	if turned {
		e.since = time.Now()
		clear(e.warned)
	}
	kind, version := e.kind, e.version
	e.mu.Unlock()
	if turned {
		e.pool.log.Info("engine is up", "engine", e.name, "url", e.base, "kind", kind, "version", version)
	}
}

func (e *Engine) down(why string) {
	e.mu.Lock()
	turned := e.usable
	if e.healthy || turned {
		e.since = time.Now()
	}
	if turned {
		e.downs++
	}
	e.healthy, e.usable, e.why = false, false, why
	e.mu.Unlock()
	e.warn("engine is down", why)
}

// warn tells the log what is wrong, once for each sort of trouble until the engine comes
// up. What it is stands before the first colon; what follows may change at each look.
func (e *Engine) warn(message, why string) {
	sort, _, _ := strings.Cut(message+why, ":")
	e.mu.Lock()
	again := e.warned[sort]
	e.warned[sort] = true
	e.mu.Unlock()
	if !again {
		e.pool.log.Warn(message, "engine", e.name, "url", e.base, "why", why)
	}
}

// late counts a look that ran out of time. goesOn: the engine's streams do.
func (e *Engine) late(goesOn bool) {
	e.mu.Lock()
	if goesOn {
		e.lates = 0
	} else {
		e.lates++
	}
	enough := e.lates >= patience || !e.usable
	e.mu.Unlock()
	if enough {
		e.unwell("does not answer in time")
	}
}

// unwell is not healthy, and no reason to give up an engine that was.
func (e *Engine) unwell(why string) {
	e.mu.Lock()
	if e.healthy {
		e.healthy, e.since = false, time.Now()
	}
	e.why = why
	e.mu.Unlock()
	e.warn("engine is unwell", why)
}

// Downs is how often the engine went down. What was learnt of it under another number
// may be true of another server.
func (e *Engine) Downs() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.downs
}
