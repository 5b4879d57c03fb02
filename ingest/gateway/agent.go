package gateway

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"icecore/ingest/gateway/turn"
	"icecore/trace"
)

// agent is which part of a harness called: what its headers and body tell. Each text
// may be empty.
type agent struct {
	session, thread, parent string
	kind                    trace.Kind
	harness, version        string
	policyVersion           *int64
	// retry is how often the harness says that it sent this call before.
	retry int
}

// codexMetadata is the header x-codex-turn-metadata.
type codexMetadata struct {
	SessionID      string `json:"session_id"`
	ThreadID       string `json:"thread_id"`
	ParentThreadID string `json:"parent_thread_id"`
	RequestKind    string `json:"request_kind"`
}

func codexTurn(h http.Header) codexMetadata {
	var m codexMetadata
	if text := h.Get(codexHeader); text != "" {
		// It was read once, by codexOf. What is a number here and should be a word is
		// passed over; the others are set.
		_ = json.Unmarshal([]byte(text), &m)
	}
	return m
}

// delegated are the sub-agents of Codex that do the task's work; its other ones tidy up.
var delegated = map[string]bool{"collab_spawn": true, "thread_spawn": true, "review": true}

// agentOf reads what a call tells of its caller. Headers of our own win over a
// harness's, and those over its body. The error is a *turn.Fault.
func agentOf(h http.Header, r *turn.Request) (agent, error) {
	codex := codexTurn(h)
	a := agent{
		session: first(clip(sessionOf(h), 128), r.Session.ID),
		thread:  first(h.Get("Icecore-Thread"), h.Get("X-Claude-Code-Agent-Id"), codex.ThreadID, h.Get("Thread-Id"), r.Session.Thread),
		parent: first(h.Get("Icecore-Parent-Thread"), h.Get("X-Claude-Code-Parent-Agent-Id"), codex.ParentThreadID,
			h.Get("X-Codex-Parent-Thread-Id"), h.Get("X-Parent-Session-Id"), r.Session.Parent),
		kind: first(r.Kind, trace.KindAgent),
	}
	if helper := h.Get("X-Openai-Subagent"); codex.RequestKind == "compaction" || helper != "" && !delegated[helper] {
		a.kind = trace.KindAuxiliary
	}
	switch k := trace.Kind(h.Get("Icecore-Kind")); k {
	case "":
	case trace.KindAgent, trace.KindAuxiliary:
		a.kind = k
	default:
		return a, turn.Invalid("Icecore-Kind", "the header Icecore-Kind is agent or auxiliary")
	}
	if text := h.Get("Icecore-Policy-Version"); text != "" {
		v, err := strconv.ParseInt(text, 10, 64)
		if err != nil || v < 0 {
			return a, turn.Invalid("Icecore-Policy-Version", "the header Icecore-Policy-Version is not an integer from 0 on")
		}
		a.policyVersion = &v
	}
	if n, err := strconv.Atoi(h.Get("X-Stainless-Retry-Count")); err == nil && n > 0 {
		a.retry = n
	}
	a.harness, a.version = harnessOf(h)
	for _, told := range []*string{&a.session, &a.thread, &a.parent} {
		if secretInID.MatchString(*told) { // bodies are not cleaned as headers are
			*told = ""
		}
	}
	// Who tells its session names the sub-agents within it: the rest is the main thread.
	a.thread = first(a.thread, a.session)
	if a.thread == "" {
		a.thread = threadOf(r)
	}
	a.session, a.thread, a.parent = clip(a.session, 128), clip(a.thread, 128), clip(a.parent, 128)
	return a, nil
}

func first[T ~string](of ...T) T {
	for _, v := range of {
		if v != "" {
			return v
		}
	}
	return ""
}

// product is the beginning of a user agent: name/version.
var product = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9._-]*)/v?([0-9][A-Za-z0-9.+_-]*)`)

// harnesses are the names that harnesses give themselves, in lower case, and ours for
// them. SDKs are not among them: they do not tell who uses them.
var harnesses = map[string]string{
	"claude-cli": "claude-code", "claude-code": "claude-code",
	"codex_exec": "codex", "codex_cli_rs": "codex", "codex-tui": "codex", "codex_vscode": "codex",
	"qwencode": "qwen-code", "qwen-code": "qwen-code",
	"geminicli": "gemini-cli", "gemini-cli": "gemini-cli",
	"opencode": "opencode", "pi": "pi",
}

// harnessOf is the harness by our own header (name or name/version), or by its user
// agent.
func harnessOf(h http.Header) (name, version string) {
	if own := h.Get("Icecore-Harness"); own != "" {
		name, version, _ = strings.Cut(own, "/")
		return clip(name, 128), clip(version, 128)
	}
	m := product.FindStringSubmatch(h.Get("User-Agent"))
	if m == nil {
		return "", ""
	}
	name = strings.ToLower(m[1])
	if ours, ok := harnesses[name]; ok {
		return ours, clip(m[2], 128)
	}
	// Gemini CLI writes GeminiCLI-{surface}/{version}.
	if strings.HasPrefix(name, "geminicli-") {
		return "gemini-cli", clip(m[2], 128)
	}
	return "", ""
}
