package settings

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"go.yaml.in/yaml/v3"
)

// Source says where settings and keys are read from. The zero value of a field means
// this process's own environment and files.
type Source struct {
	// Getenv gives a variable of the environment; ok: it is set.
	Getenv func(name string) (value string, ok bool)
	// ReadFile reads a file.
	ReadFile func(path string) ([]byte, error)
}

func (s Source) withDefaults() Source {
	if s.Getenv == nil {
		s.Getenv = os.LookupEnv
	}
	if s.ReadFile == nil {
		s.ReadFile = os.ReadFile
	}
	return s
}

// Load reads the file at path, if that is not empty, and adds engines by their URLs.
// Errors name the file, and the line of each fault.
func Load(path string, urls []string, from Source) (*Settings, error) {
	from = from.withDefaults()
	if path == "" {
		return Engines(urls)
	}
	text, err := from.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the gateway's settings: %w", err)
	}
	s, err := parse(text, urls, from, filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("read the gateway's settings in %s:\n%w", path, err)
	}
	return s, nil
}

// Engines gives the settings for engines without a file: every default, and a name
// that no engine serves gets the first model that is served.
func Engines(urls []string) (*Settings, error) {
	s := Default()
	s.FirstServed = true
	err := s.add(urls)
	return s, err
}

// add takes engines that were given by their URLs alone.
func (s *Settings) add(urls []string) error {
	for _, u := range urls {
		if err := checkURL(u); err != nil {
			return fmt.Errorf("--engine: %w", err)
		}
		if slices.ContainsFunc(s.Engines, func(e Engine) bool { return e.URL == u }) {
			return fmt.Errorf("--engine: %s is named already", u)
		}
		s.Engines = append(s.Engines, Engine{URL: u})
	}
	if len(s.Engines) == 0 {
		return errors.New("engines: is empty; name one in the file, or with --engine")
	}
	return nil
}

// parse reads a file's text. Paths in it are relative to dir.
func parse(text []byte, urls []string, from Source, dir string) (*Settings, error) {
	d := yaml.NewDecoder(bytes.NewReader(text))
	var doc, more yaml.Node
	if err := d.Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read YAML: %w", err)
	}
	if err := d.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("line %d: a second document begins; the settings are one", more.Line)
	}
	r := &reader{from: from.withDefaults(), dir: dir}
	s := Default()
	if len(doc.Content) == 1 {
		r.settings(doc.Content[0], s)
	}
	if len(r.errs) > 0 {
		return nil, errors.Join(r.errs...)
	}
	err := s.add(urls)
	return s, err
}

func (r *reader) settings(n *yaml.Node, s *Settings) {
	fallback := &yaml.Node{}
	r.object(n, "", fields{
		"engines":       func(n *yaml.Node, at string) { s.Engines = r.engines(n, at) },
		"models":        func(n *yaml.Node, at string) { s.Models = r.models(n, at) },
		"default_model": func(n *yaml.Node, at string) { s.DefaultModel, fallback = r.text(n, at), n },
		"callers":       func(n *yaml.Node, at string) { s.Callers = r.oneOf(n, at, CallersAny, CallersDeclared, CallersKey) },
		"finished":      func(n *yaml.Node, at string) { s.Finished = r.oneOf(n, at, FinishedAccept, FinishedRefuse) },
		"bodies":        func(n *yaml.Node, at string) { s.Bodies = r.oneOf(n, at, BodiesHarness, BodiesEngine, BodiesNone) },
		"limits":        func(n *yaml.Node, at string) { r.limits(n, at, &s.Limits) },
		"retries": func(n *yaml.Node, at string) {
			r.object(n, at, fields{"marked": func(n *yaml.Node, at string) {
				s.Retries.Marked = r.oneOf(n, at, MarkedCancel, MarkedRun)
			}})
		},
	})
	known := func(m *Model) bool { return m.Name == s.DefaultModel }
	if s.DefaultModel != "" && len(s.Models) > 0 && !slices.ContainsFunc(s.Models, known) {
		r.fault(fallback, "default_model", "%q is none of models", s.DefaultModel)
	}
}

func (r *reader) limits(n *yaml.Node, at string, l *Limits) {
	r.object(n, at, fields{
		"max_request":          func(n *yaml.Node, at string) { l.MaxRequest = r.size(n, at, true) },
		"max_answer":           func(n *yaml.Node, at string) { l.MaxAnswer = r.size(n, at, true) },
		"max_open":             func(n *yaml.Node, at string) { l.MaxOpen = int(r.count(n, at, 1)) },
		"max_open_per_rollout": func(n *yaml.Node, at string) { l.MaxOpenPerRollout = int(r.count(n, at, 0)) },
		"max_held":             func(n *yaml.Node, at string) { l.MaxHeld = r.size(n, at, false) },
		"held_tokens":          func(n *yaml.Node, at string) { l.HeldTokens = r.count(n, at, 1) },
		"engine_connect":       func(n *yaml.Node, at string) { l.EngineConnect = r.time(n, at, true) },
		"first_byte":           func(n *yaml.Node, at string) { l.FirstByte = r.time(n, at, false) },
		"silence":              func(n *yaml.Node, at string) { l.Silence = r.time(n, at, false) },
		"call":                 func(n *yaml.Node, at string) { l.Call = r.time(n, at, false) },
		"heartbeat":            func(n *yaml.Node, at string) { l.Heartbeat = r.time(n, at, true) },
		"patience":             func(n *yaml.Node, at string) { l.Patience = r.time(n, at, false) },
		"begin_timeout":        func(n *yaml.Node, at string) { l.BeginTimeout = r.time(n, at, false) },
		"capture_wait":         func(n *yaml.Node, at string) { l.CaptureWait = r.time(n, at, false) },
		"health_every":         func(n *yaml.Node, at string) { l.HealthEvery = r.time(n, at, true) },
		"health_timeout":       func(n *yaml.Node, at string) { l.HealthTimeout = r.time(n, at, true) },
	})
}
