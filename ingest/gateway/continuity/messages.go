package continuity

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"hash"
	"slices"

	"icecore/ingest/gateway/turn"
)

// sum stands for a message: equal sums, equal messages.
type sum [16]byte

// sums hashes messages, each on its own, so that a history of hundreds is compared by
// sixteen bytes per message.
func sums(messages []turn.Message) []sum {
	out := make([]sum, len(messages))
	h := sha256.New()
	for i := range messages {
		h.Reset()
		put := writer{h}
		put.message(&messages[i])
		copy(out[i][:], h.Sum(nil))
	}
	return out
}

// writer writes the canonical form of a message, every piece with its length before it.
type writer struct{ h hash.Hash }

func (w writer) text(s string) {
	w.count(len(s))
	w.h.Write([]byte(s))
}

func (w writer) count(n int) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(n))
	w.h.Write(b[:])
}

// message writes what a template can see. Content that is null, absent or "", and text
// as a string or as an array of one part, are the same: harnesses turn one into the
// other, and whether a template makes a difference shows in the text. So it is with
// arguments that were serialised again: most harnesses parse and write them anew, and
// most templates do the same, so that the text may be what was sampled all the same.
// They are equal when they are the same JSON in the same order, or the same string.
func (w writer) message(m *turn.Message) {
	w.text(m.Role)
	content := m.Content
	if len(content) == 1 && content[0].Raw == nil && content[0].Text == "" {
		content = nil
	}
	w.count(len(content))
	for _, p := range content {
		if p.Raw != nil {
			w.count(1)
			w.text(string(asCompared(p.Raw)))
			continue
		}
		w.count(0)
		w.text(p.Text)
	}
	reasoning := ""
	if m.Reasoning != nil {
		reasoning = *m.Reasoning
	}
	w.text(reasoning)
	w.count(len(m.Calls))
	for _, c := range m.Calls {
		w.text(c.ID)
		w.text(c.Name)
		w.text(string(asCompared(json.RawMessage(c.Arguments))))
	}
	w.text(m.CallID)
	w.text(m.Name)
	names := make([]string, 0, len(m.Extra))
	for name := range m.Extra {
		names = append(names, name)
	}
	slices.Sort(names)
	w.count(len(names))
	for _, name := range names {
		w.text(name)
		w.text(string(asCompared(m.Extra[name])))
	}
}

// asCompared gives JSON as it is compared: without white space and with one form of
// escapes. Keys stay in their order, numbers as they are written. What is no JSON stays
// as it is.
func asCompared(raw json.RawMessage) []byte {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var out []byte
	for {
		token, err := d.Token()
		if err != nil { // the end, or no JSON
			break
		}
		if delim, ok := token.(json.Delim); ok {
			out = append(out, byte(delim))
			continue
		}
		if out, err = turn.AppendJSON(out, token); err != nil {
			return raw
		}
		out = append(out, ',') // as good as any mark: it only has to part the values
	}
	if d.InputOffset() != int64(len(bytes.TrimRight(raw, " \t\r\n"))) {
		return raw
	}
	return out
}
