package engine

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// Pool is the engines that there are.
type Pool struct {
	o       Options
	engines []*Engine
	log     *slog.Logger
	// client keeps connections; fresh makes one for each request.
	client, fresh *http.Client
	own           bool
	stop          context.CancelFunc
	mu            sync.Mutex
	closed        bool
	running       sync.WaitGroup
}

// New makes a pool; nothing is asked of an engine before Start. The error names the
// engine and the member of its configuration.
func New(o Options) (*Pool, error) {
	setDefault(&o.HealthEvery, defaultHealthEvery)
	setDefault(&o.HealthTimeout, defaultHealthTimeout)
	setDefault(&o.ConnectTimeout, defaultConnectTimeout)
	if o.MaxAnswerBytes <= 0 {
		o.MaxAnswerBytes = defaultMaxAnswerBytes
	}
	p := &Pool{o: o, log: o.Log, client: o.Client, fresh: o.Client, stop: func() {}}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	if p.client == nil {
		p.own = true
		p.client, p.fresh = newClient(o.ConnectTimeout, true), newClient(o.ConnectTimeout, false)
	}
	for i, c := range o.Engines {
		e, err := p.engine(c)
		if err != nil {
			return nil, fmt.Errorf("read engines[%d]: %w", i, err)
		}
		if slices.ContainsFunc(p.engines, func(other *Engine) bool { return other.name == e.name }) {
			return nil, fmt.Errorf("read engines[%d]: name %q is taken; give each engine its own", i, e.name)
		}
		p.engines = append(p.engines, e)
	}
	return p, nil
}

func setDefault(d *time.Duration, to time.Duration) {
	if *d <= 0 {
		*d = to
	}
}

// engine checks one configuration. Its errors do not show the URL, which may hold a
// credential.
func (p *Pool) engine(c Config) (*Engine, error) {
	u, err := url.Parse(c.URL)
	switch {
	case err != nil:
		return nil, fmt.Errorf("url is not a URL")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("url must begin with http:// or https:// and name a host")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("url must have no query and no fragment")
	case c.MaxConcurrent < 0:
		return nil, fmt.Errorf("max_concurrent is negative")
	}
	switch c.Kind {
	case "", KindVLLM, KindSGLang, KindOpenAI:
	default:
		return nil, fmt.Errorf("kind %q is none of vllm, sglang, openai", c.Kind)
	}
	e := &Engine{pool: p, cfg: c, name: c.Name, kind: c.Kind, poke: make(chan struct{}, 1), asking: make(chan struct{}, 1), since: time.Now(),
		why: "not asked yet", absent: map[string]bool{}, learnt: map[string]*learnt{}, warned: map[string]bool{}}
	if e.name == "" {
		e.name = u.Host
	}
	if c.MaxConcurrent > 0 {
		e.slots = make(chan struct{}, c.MaxConcurrent)
	}
	e.credential(c.Key, u.User)
	u.User = nil
	e.base = strings.TrimSuffix(strings.TrimRight(u.String(), "/"), "/v1")
	return e, nil
}

// Start asks every engine once, for at most the health timeout, and goes on asking
// until Close or the end of the context.
func (p *Pool) Start(ctx context.Context) {
	ctx, p.stop = context.WithCancel(ctx)
	first := make(chan struct{}, len(p.engines))
	for _, e := range p.engines {
		p.background(func() {
			e.look(ctx)
			first <- struct{}{}
			e.watch(ctx)
		})
	}
	late := time.After(p.o.HealthTimeout)
	for range p.engines {
		select {
		case <-first:
		case <-late:
			return
		}
	}
}

// Close stops asking, and waits for what runs in the background.
func (p *Pool) Close() {
	p.stop()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.running.Wait()
	if p.own {
		p.client.CloseIdleConnections()
		p.fresh.CloseIdleConnections()
	}
}

// background runs what Close waits for; after Close it runs at once.
func (p *Pool) background(run func()) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		run()
		return
	}
	p.running.Add(1)
	p.mu.Unlock()
	go func() {
		defer p.running.Done()
		run()
	}()
}

// Models gives what the engines serve, in the order of the engines, healthy or not.
func (p *Pool) Models() []Model {
	var out []Model
	for _, e := range p.engines {
		for _, m := range e.serves() {
			at := slices.IndexFunc(out, func(o Model) bool { return o.Name == m.Name })
			if at < 0 {
				out = append(out, Model{Name: m.Name})
				at = len(out) - 1
			}
			o := &out[at]
			o.Engines = append(o.Engines, e.name)
			if m.MaxLen > 0 && (o.MaxLen == 0 || m.MaxLen < o.MaxLen) {
				o.MaxLen = m.MaxLen // what fits on each of them
			}
		}
	}
	return out
}

// Status gives how each engine does.
func (p *Pool) Status() []Status {
	out := make([]Status, 0, len(p.engines))
	for _, e := range p.engines {
		s := Status{Name: e.name, URL: e.base, Open: e.open.Load(), Models: []string{}}
		for _, m := range e.serves() {
			s.Models = append(s.Models, m.Name)
		}
		e.mu.Lock()
		s.Kind, s.Version, s.Healthy, s.Usable, s.Why, s.Downs, s.Since = e.kind, e.version, e.healthy, e.usable, e.why, e.downs, e.since
		e.mu.Unlock()
		out = append(out, s)
	}
	return out
}
