package settings

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

func (r *reader) engines(n *yaml.Node, at string) (out []Engine) {
	r.list(n, at, func(n *yaml.Node, at string) {
		before := len(r.errs)
		e := r.engine(n, at)
		switch {
		case len(r.errs) > before:
		case e.URL == "":
			r.fault(n, at+".url", "is missing")
		case slices.ContainsFunc(out, func(o Engine) bool { return o.URL == e.URL }):
			r.fault(n, at+".url", "%s is there already", e.URL)
		case slices.ContainsFunc(out, func(o Engine) bool { return o.Shown() == e.Shown() }):
			r.fault(n, at+".name", "%q is there already", e.Shown())
		}
		out = append(out, e)
	})
	return out
}

// Shown is the engine's name, or host and port.
func (e *Engine) Shown() string {
	if e.Name != "" {
		return e.Name
	}
	if u, err := url.Parse(e.URL); err == nil {
		return u.Host
	}
	return ""
}

func (r *reader) engine(n *yaml.Node, at string) (e Engine) {
	var keyFrom []string
	literal := func(n *yaml.Node, at string) {
		r.fault(n, at, "a key is not written into this file; name with key_env the variable of the environment "+
			"that holds it, or with key_file the file")
	}
	r.object(n, at, fields{
		"url": func(n *yaml.Node, at string) {
			if e.URL = r.text(n, at); e.URL != "" {
				if err := checkURL(e.URL); err != nil {
					r.fault(n, at, "%v", err)
				}
			}
		},
		"kind": func(n *yaml.Node, at string) { e.Kind = r.oneOf(n, at, "vllm", "sglang", "openai") },
		"name": func(n *yaml.Node, at string) { e.Name = r.name(n, at) },
		"key_env": func(n *yaml.Node, at string) {
			e.Key, keyFrom = r.keyOf(n, at, r.env), append(keyFrom, at)
		},
		"key_file": func(n *yaml.Node, at string) {
			e.Key, keyFrom = r.keyOf(n, at, r.file), append(keyFrom, at)
		},
		"key": literal, "api_key": literal, "token": literal,
		"models":         func(n *yaml.Node, at string) { e.Models = r.texts(n, at) },
		"max_concurrent": func(n *yaml.Node, at string) { e.MaxConcurrent = int(r.count(n, at, 0)) },
		"version_header": func(n *yaml.Node, at string) { e.VersionHeader = r.header(n, at) },
	})
	if len(keyFrom) > 1 {
		r.fault(n, at, "key_env and key_file: only one of them may be there")
	}
	return e
}

// keyOf reads a key from where the text of n says. Errors never hold the key.
func (r *reader) keyOf(n *yaml.Node, at string, read func(where string) (string, error)) string {
	where := r.text(n, at)
	if where == "" {
		return ""
	}
	key, err := read(where)
	key = strings.TrimSpace(key)
	switch {
	case err != nil:
		r.fault(n, at, "%v", err)
	case key == "":
		r.fault(n, at, "%s is empty", where)
	case strings.ContainsFunc(key, func(c rune) bool { return c <= ' ' || c > '~' }):
		r.fault(n, at, "%s holds a key that cannot be sent in a header: it has characters other than plain ASCII ones", where)
		return ""
	}
	return key
}

func (r *reader) env(name string) (string, error) {
	v, ok := r.from.Getenv(name)
	if !ok {
		return "", fmt.Errorf("the variable %s of the environment is not set", name)
	}
	return v, nil
}

func (r *reader) file(path string) (string, error) {
	text, err := r.readFile(path)
	if err != nil {
		return "", fmt.Errorf("read key: %w", err)
	}
	return string(text), nil
}

// readFile reads a file that the settings name, relative to theirs.
func (r *reader) readFile(path string) ([]byte, error) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(r.dir, path)
	}
	return r.from.ReadFile(path)
}

// name reads a text that is shown: in metadata, metrics, logs.
func (r *reader) name(n *yaml.Node, at string) string {
	v := r.text(n, at)
	if len(v) > 128 || strings.ContainsFunc(v, func(c rune) bool { return c < ' ' || c == 0x7f }) {
		r.fault(n, at, "is longer than 128 bytes, or has control characters")
	}
	return v
}

func (r *reader) header(n *yaml.Node, at string) string {
	v := r.text(n, at)
	bad := func(c rune) bool {
		return c <= ' ' || c > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c)
	}
	if strings.ContainsFunc(v, bad) {
		r.fault(n, at, "%q is no name of a header", v)
	}
	return v
}

// checkURL refuses what is no plain address of a server. Errors do not repeat a URL
// that holds a credential.
func checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err == nil && u.User != nil:
		return errors.New("the URL holds a credential; give that with key_env or key_file in the settings file")
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		shown := strconv.Quote(text)
		if strings.Contains(text, "@") { // a credential may stand before it
			shown = "what is given"
		}
		return fmt.Errorf("%s is not a URL such as http://127.0.0.1:8000", shown)
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return fmt.Errorf("%s has a query or a fragment; only scheme, host, port and path are used", u.Redacted())
	}
	return nil
}
