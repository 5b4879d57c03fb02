package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"icecore/ingest/gateway/turn"
)

// threadOf names an agent's thread where the harness does not: by a hash of its system
// prompt and its tools. Sub-agents have others of both, so they part from the agent that
// called them, and a rollout of several agents does not look like one that broke its
// history. Two agents alike in both share a thread, which costs nothing: what is done
// with a thread compares the messages as well. A tool that is added opens a new thread;
// it changes the prompt from its beginning on anyway.
func threadOf(r *turn.Request) string {
	h := sha256.New()
	put := func(text string) {
		_, _ = h.Write([]byte(text)) // a hash does not fail
		_, _ = h.Write([]byte{0})
	}
	for i := range r.Messages {
		m := &r.Messages[i]
		if m.Role != turn.RoleSystem && m.Role != turn.RoleDeveloper {
			break
		}
		text, _ := cutBillingLine(m.Text())
		put(text)
	}
	for i := range r.Tools {
		put(r.Tools[i].Name)
	}
	return "h-" + hex.EncodeToString(h.Sum(nil)[:8])
}

// billing begins the line that Claude Code puts before its system prompt. Some builds
// write another number into it with each call.
const billing = "x-anthropic-billing-header:"

// cutBillingLine takes that line out of a system prompt; false: there is none.
func cutBillingLine(text string) (string, bool) {
	if !strings.HasPrefix(text, billing) {
		return text, false
	}
	_, rest, _ := strings.Cut(text, "\n")
	return strings.TrimLeft(rest, "\n"), true
}
