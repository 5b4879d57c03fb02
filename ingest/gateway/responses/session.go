package responses

import (
	"encoding/json"

	"icecore/ingest/gateway/body"
	"icecore/ingest/gateway/turn"
	"icecore/trace"
)

// told is what Codex says of its caller.
type told struct {
	SessionID      string `json:"session_id"`
	ThreadID       string `json:"thread_id"`
	ParentThreadID string `json:"parent_thread_id"`
	RequestKind    string `json:"request_kind"`
}

// session reads client_metadata, in which Codex repeats its headers: values by name,
// or a JSON text of them under the name of the header. Another client may keep there
// what it likes.
func session(r *turn.Request, f body.Fields) error {
	key, err := f.Get("prompt_cache_key").String()
	if err != nil {
		return err
	}
	var t told
	if v := f.Get("client_metadata"); v.Kind() == body.KindObject {
		read(&t, v.Raw())
		inner, err := v.Fields()
		if err != nil {
			return err
		}
		for _, name := range []string{"x-codex-turn-metadata", "turn_metadata"} {
			switch m := inner.Get(name); m.Kind() {
			case body.KindString:
				text, err := m.String()
				if err != nil {
					return err
				}
				read(&t, []byte(text))
			case body.KindObject:
				read(&t, m.Raw())
			}
		}
	}
	r.Session = turn.Session{ID: t.SessionID, Thread: t.ThreadID, Parent: t.ParentThreadID}
	if r.Session.ID == "" {
		r.Session.ID = key
	}
	if t.RequestKind == "compaction" {
		r.Kind = trace.KindAuxiliary
	}
	return nil
}

// read takes what it finds: a member of another type than ours is another client's.
func read(t *told, raw []byte) { _ = json.Unmarshal(raw, t) }
