package gateway

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"icecore/trace"
)

// secretHeaders carry credentials by their name. Further names that look like one are
// taken out as well: see secretName.
var secretHeaders = []string{"Authorization", "Proxy-Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key", "Cookie", "Set-Cookie"}

// secretName says whether a header's name says that it is a credential.
func secretName(name string) bool {
	if slices.ContainsFunc(secretHeaders, func(s string) bool { return strings.EqualFold(s, name) }) {
		return true
	}
	low := strings.ToLower(name)
	for _, word := range []string{"secret", "token", "password", "credential", "api-key", "apikey", "auth"} {
		if strings.Contains(low, word) {
			return true
		}
	}
	return false
}

// credentials takes every credential out of a request: what is left is safe to hand on
// and to keep. minted is the key of ours among them, if there is one.
func credentials(h http.Header, q url.Values) (clean http.Header, query url.Values, minted string) {
	clean = make(http.Header, len(h))
	found := func(values []string) {
		for _, v := range values {
			if scheme, rest, two := strings.Cut(v, " "); two && strings.EqualFold(scheme, "bearer") {
				v = strings.TrimSpace(rest)
			}
			if minted == "" && strings.HasPrefix(v, trace.KeyPrefix) {
				minted = v
			}
		}
	}
	// In a fixed order, so that two keys do not take turns.
	for _, name := range secretHeaders {
		found(h.Values(name))
	}
	for name, values := range h {
		if !secretName(name) {
			clean[name] = values
		}
	}
	query = make(url.Values, len(q))
	for name, values := range q {
		if name == "key" || secretName(name) {
			found(values)
			continue
		}
		query[name] = values
	}
	return clean, query, minted
}

// keptHeaders are those that a trace's metadata repeats: they tell who called.
var keptHeaders = []string{
	"User-Agent", "Originator", "X-App", "Anthropic-Version", "Anthropic-Beta", "Openai-Beta",
	"X-Claude-Code-Session-Id", "X-Claude-Code-Agent-Id", "X-Claude-Code-Parent-Agent-Id",
	"Session-Id", "Thread-Id", "X-Codex-Turn-Metadata", "X-Codex-Parent-Thread-Id", "X-Openai-Subagent", "X-Client-Request-Id",
	"X-Session-Id", "X-Parent-Session-Id", "X-Stainless-Retry-Count", "X-Stainless-Lang", "X-Stainless-Package-Version",
}

// maxKeptHeader bounds one value, in bytes.
const maxKeptHeader = 1024

func kept(h http.Header) map[string]string {
	out := map[string]string{}
	for _, name := range keptHeaders {
		if v := h.Get(name); v != "" {
			out[strings.ToLower(name)] = clip(v, maxKeptHeader)
		}
	}
	return out
}

// clip gives valid text of at most so many bytes.
func clip(text string, most int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}
