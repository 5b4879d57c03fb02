package gateway

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// secretHeaders carry credentials by their name. Further names that look like one are
// taken out as well: see secretName.
var secretHeaders = []string{"Authorization", "Proxy-Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key", "Cookie", "Set-Cookie"}

// secretName says whether the name of a header or parameter says that it is a credential.
func secretName(name string) bool {
	low := strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(name))
	for _, word := range []string{"secret", "token", "password", "credential", "apikey", "accesskey", "auth", "cookie"} {
		if strings.Contains(low, word) {
			return true
		}
	}
	return low == "key"
}

// secretLook finds credentials by their look. Keys that begin with sk are longKey's.
var secretLook = regexp.MustCompile(`(?i)\b(?:bearer|basic)\s+[\w.~+/=-]{6,}` +
	`|\bick_[\w-]+|\b[pr]k_(?:live|test)_\w+|\b(?:gh[oprsu]|github_pat|glpat|xox[a-z])[-_][\w-]{6,}|\b(?:hf|npm|gsk|xai)[-_]\w{20,}` +
	`|\bAKIA[A-Z0-9]{12,}|\bAIza[\w-]{20,}|\bya29\.[\w-]{6,}` +
	`|\beyJ[\w-]{6,}\.[\w-]+` +
	`|://[^/\s:@]*:[^/\s@]+@`)

// longKey is what may be a key as OpenAI's and Anthropic's are. Names have an sk in them
// too (sk-learn, or Slovak), so one is a key only where a word begins, and with a digit.
var longKey = regexp.MustCompile(`(?i)(?:^|[\s"'=:,;(])sk[-_]([\w-]{20,})`)

// secretInID finds what is no id: keys in the whole form that those have who give them
// out. Less is not looked for in ids, which are anybody's choice: a call that lost one
// goes to another rollout or thread.
var secretInID = regexp.MustCompile(`(?i:\bbearer\s+[\w.~+/=-]{6,})|\bick_[\w-]+|\beyJ[\w-]{6,}\.[\w-]+` +
	`|\bsk-(?:proj|svcacct|admin|ant|or)-[\w-]{20,}|\bsk-[A-Za-z0-9]{32,}|\b[sr]k_(?:live|test)_\w{20,}` +
	`|\bgh[oprsu]_[A-Za-z0-9]{30,}|\bgithub_pat_\w{30,}|\bhf_[A-Za-z0-9]{30,}|\b(?:gsk_|xai-)[A-Za-z0-9]{40,}|\bAKIA[A-Z0-9]{16}|\bAIza[\w-]{35}`)

// isID finds the names of headers and members that tell whose a call is.
var isID = regexp.MustCompile(`(?i)^icecore-|(?:^|[-_])(?:session|thread|agent)[-_]id$`)

// looksSecret says whether a value looks like a credential where that name stands.
func looksSecret(name, value string) bool {
	if isID.MatchString(name) {
		return secretInID.MatchString(value)
	}
	return secretLook.MatchString(value) || slices.ContainsFunc(longKey.FindAllStringSubmatch(value, -1), func(m []string) bool {
		return strings.ContainsAny(m[1], "0123456789")
	})
}

// ourKey is a key that was minted here, within what a client made of it.
var ourKey = regexp.MustCompile(`(?:^|[\s"':;,=])(ick_[^\s"':;,@]*)`)

// keyIn gives the key of ours in a credential: alone, behind a scheme, quoted, or in
// the user or password of Basic; empty: there is none.
func keyIn(credential string) string {
	if scheme, rest, two := strings.Cut(strings.TrimSpace(credential), " "); two && strings.EqualFold(scheme, "basic") {
		if plain, err := base64.StdEncoding.DecodeString(strings.TrimSpace(rest)); err == nil {
			credential = string(plain)
		}
	}
	if m := ourKey.FindStringSubmatch(credential); m != nil {
		return m[1]
	}
	return ""
}

// credentials takes every credential out of a request: what is left is safe to hand on
// and to keep. minted is the key of ours among them, if there is one.
func credentials(h http.Header, q url.Values) (clean http.Header, query url.Values, minted string) {
	found := func(values []string) {
		for _, v := range values {
			if minted == "" {
				minted = keyIn(v)
			}
		}
	}
	// In a fixed order, so that two keys do not take turns.
	for _, name := range secretHeaders {
		found(h.Values(name))
	}
	take := func(from map[string][]string) map[string][]string {
		left := make(map[string][]string, len(from))
		for _, name := range slices.Sorted(maps.Keys(from)) {
			switch values := from[name]; {
			case secretName(name):
				found(values)
			case name == codexHeader:
				if text := codexOf(values[0]); text != "" {
					left[name] = []string{text}
				}
			case slices.ContainsFunc(values, func(v string) bool { return looksSecret(name, v) || structured(v) }):
			default:
				left[name] = values
			}
		}
		return left
	}
	return take(h), take(q), minted
}

// structured says that a value is JSON. No harness but Codex says who it is in JSON, and
// its escapes could hide what it holds.
func structured(value string) bool {
	value = strings.TrimSpace(value)
	return strings.HasPrefix(value, "{") || strings.HasPrefix(value, "[")
}

const codexHeader = "X-Codex-Turn-Metadata"

// codexMembers are those of Codex's header that are kept. Whatever else is in it may be
// anything.
var codexMembers = []string{"session_id", "thread_id", "parent_thread_id", "request_kind", "turn_id", "window_number", "thread_source", "subagent_kind"}

// codexOf gives of Codex's header the members that are known, and words; of one that was
// cut, those before the cut. Empty: there are none.
func codexOf(text string) string {
	all := map[string]any{}
	members := json.NewDecoder(strings.NewReader(text))
	if start, err := members.Token(); err != nil || start != json.Delim('{') {
		return ""
	}
	for members.More() {
		name, err := members.Token()
		if err != nil {
			break
		}
		var value any
		if members.Decode(&value) != nil {
			break
		}
		all[fmt.Sprint(name)] = value
	}
	_, cut := members.Token() // a number that ends with the text may be half of one
	maps.DeleteFunc(all, func(name string, value any) bool {
		word, isText := value.(string)
		_, isNumber := value.(float64)
		return !slices.Contains(codexMembers, name) || !isText && (!isNumber || cut != nil) || looksSecret(name, word)
	})
	out, err := sortedJSON(all)
	if err != nil || len(all) == 0 {
		return ""
	}
	return string(out)
}

// keptHeaders are those that a trace's metadata repeats: they tell who called.
var keptHeaders = []string{
	"User-Agent", "Originator", "X-App", "Anthropic-Version", "Anthropic-Beta", "Openai-Beta",
	"X-Claude-Code-Session-Id", "X-Claude-Code-Agent-Id", "X-Claude-Code-Parent-Agent-Id",
	"Session-Id", "Thread-Id", codexHeader, "X-Codex-Parent-Thread-Id", "X-Openai-Subagent", "X-Client-Request-Id",
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
