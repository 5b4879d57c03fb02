package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"
)

// detect finds out the kind by what only one kind of engine has.
func (e *Engine) detect(ctx context.Context) {
	kind, version := KindOpenAI, ""
	for _, path := range []string{"/version", "/get_model_info", "/model_info", "/server_info", "/get_server_info"} {
		data, _, err := e.get(ctx, path)
		if ctx.Err() != nil || err != nil && late(err) {
			return // not found out; the next look asks again
		}
		if err != nil {
			continue
		}
		version = member(data, "version")
		if path == "/version" && version != "" {
			kind = KindVLLM
			break
		}
		if member(data, "model_path") != "" {
			kind = KindSGLang
			break
		}
		version = ""
	}
	e.mu.Lock()
	e.kind, e.version = kind, clip(version, maxWord)
	e.mu.Unlock()
}

// describe reads which members the engine's own description of its requests names, as
// far as they tell generations apart.
func (e *Engine) describe(ctx context.Context) {
	data, _, err := e.get(ctx, "/openapi.json")
	if err != nil || !bytes.Contains(data, []byte(`"messages"`)) {
		return
	}
	knows := map[string]bool{}
	for _, name := range []string{mSglextInput, mSglextOutput, mTokenIDs, mPromptIDs, mMetaInfo, mInputIDs} {
		knows[name] = bytes.Contains(data, []byte(`"`+name+`"`))
	}
	e.mu.Lock()
	e.knows = knows
	e.mu.Unlock()
}

// list reads what the engine serves. Where it cannot be read, what was known stays, and
// the error says why; an engine without such a list has none.
func (e *Engine) list(ctx context.Context) error {
	data, status, err := e.get(ctx, "/v1/models")
	if err != nil && !missing(status) {
		return err
	}
	models := []Model{}
	s := scan{b: data}
	if err == nil && s.peek() != '{' {
		return errors.New("the list is no JSON object")
	}
	if err == nil && s.open('{') {
		for key, ok := s.member(); ok; key, ok = s.member() {
			if string(key) != "data" || !s.open('[') {
				if string(key) != "data" {
					s.skip()
				}
				continue
			}
			for s.item(']') {
				if m := readModel(&s); m.Name != "" && len(m.Name) <= maxWord {
					models = append(models, m)
				}
			}
		}
	}
	if s.err != nil {
		return fmt.Errorf("read the list: %w", s.err)
	}
	e.mu.Lock()
	e.listed, e.asked = models, time.Now()
	e.mu.Unlock()
	return nil
}

// modelless says that nothing names a model of the engine: neither a list of its own
// that was read, nor the settings.
func (e *Engine) modelless() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.cfg.Models) == 0 && len(e.listed) == 0
}

func readModel(s *scan) (m Model) {
	if !s.open('{') {
		return m
	}
	for key, ok := s.member(); ok; key, ok = s.member() {
		switch string(key) {
		case "id":
			m.Name = s.str()
		case "max_model_len", "context_length", "max_context_length":
			if v, ok := s.integer(); ok && v > 0 {
				m.MaxLen = v
			}
		default:
			s.skip()
		}
	}
	return m
}

// member reads one text of an object; a number counts as its digits.
func member(data []byte, name string) string {
	s := scan{b: data}
	if s.peek() != '{' {
		return ""
	}
	s.open('{')
	out := ""
	for key, ok := s.member(); ok; key, ok = s.member() {
		if string(key) == name {
			out = readVersion(&s)
		} else {
			s.skip()
		}
	}
	if s.err != nil {
		return ""
	}
	return out
}
