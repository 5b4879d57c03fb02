package enginetest

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Entry is one request and what became of it.
type Entry struct {
	Seq     int64       `json:"seq"`
	Face    string      `json:"face"`
	Route   string      `json:"route"`
	Script  string      `json:"script,omitempty"`
	Model   string      `json:"model,omitempty"`
	Attempt int         `json:"attempt"`
	Header  http.Header `json:"header"`
	// Body is as it came; what is no JSON stands as a string.
	Body json.RawMessage `json:"body,omitempty"`
	// RequestID is what the caller named the call.
	RequestID string `json:"request_id,omitempty"`
	Stream    bool   `json:"stream,omitempty"`
	// PromptIDs are the ids that were really read.
	PromptIDs []int32 `json:"prompt_ids,omitempty"`
	// Choices is empty where nothing was to be sampled.
	Choices []Sampled `json:"choices,omitempty"`
	Status  int       `json:"status,omitempty"`
	// Ended is "" while the call runs, then done, client_gone, aborted, restart, refused
	// (an error status), or the kind of the fault.
	Ended    string    `json:"ended"`
	Started  time.Time `json:"started"`
	First    time.Time `json:"first,omitzero"`
	Finished time.Time `json:"finished,omitzero"`

	call *call // while it runs
}

// Sampled is what was sampled for one choice, whatever the answer told of it.
type Sampled struct {
	IDs []int32 `json:"ids"`
	// Logprobs stand beside IDs, in nats: the true ones.
	Logprobs []float32 `json:"logprobs"`
	// Sent is how many of the ids had gone to the connection.
	Sent   int    `json:"sent"`
	Finish string `json:"finish,omitempty"`
	// Versions are the weights' versions by token.
	Versions []VersionAt `json:"versions,omitempty"`
}

// VersionAt says from which token on a version sampled.
type VersionAt struct {
	Start   int    `json:"start"`
	Version string `json:"version"`
}

func (e *Entry) line() []byte {
	line, err := json.Marshal(e)
	if err != nil { // no field can cause it
		line, _ = json.Marshal(map[string]any{"seq": e.Seq, "ended": "unwritable: " + err.Error()})
	}
	return append(line, '\n')
}

type ledger struct {
	mu      sync.Mutex
	entries []*Entry
	last    int64
	most    int
	to      io.Writer
}

// Ledger gives all entries in the order in which the requests came. Those of running
// calls tell what was sampled so far.
func (e *Engine) Ledger() []Entry {
	l := &e.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]Entry, len(l.entries))
	for i, entry := range l.entries {
		out[i] = entry.copied()
	}
	return out
}

// Calls gives the entries of requests that asked for an answer (not those that
// tokenise or control).
func (e *Engine) Calls() []Entry {
	return slices.DeleteFunc(e.Ledger(), func(entry Entry) bool { return entry.Script == "" })
}

func (e *Entry) copied() Entry {
	out := *e
	out.call = nil
	if e.call != nil {
		out.Choices = e.call.sampled()
	}
	out.Choices = slices.Clone(out.Choices)
	return out
}

func (l *ledger) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = nil
}

func (l *ledger) begin(face string, r *http.Request, body []byte) *Entry {
	entry := &Entry{Face: face, Route: r.URL.Path, Header: maps.Clone(r.Header), Started: time.Now(), Body: body}
	if !json.Valid(body) {
		entry.Body, _ = json.Marshal(string(body)) // of a string it cannot fail
	}
	if len(body) == 0 {
		entry.Body = nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	entry.Seq = l.last
	l.entries = append(l.entries, entry)
	if l.most > 0 && len(l.entries) > l.most {
		l.entries = slices.Delete(l.entries, 0, len(l.entries)-l.most)
	}
	return entry
}

// change alters an entry, and writes it where that is wanted.
func (l *ledger) change(entry *Entry, write bool, do func(*Entry)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	do(entry)
	if write && l.to != nil {
		line := entry.copied()
		if entry.call != nil {
			line.Choices = entry.call.planned()
		}
		_, _ = l.to.Write(line.line()) // nobody to tell: the reader of the file sees it end
	}
}

// ReadLedger reads what LedgerTo was given: the last line of each seq, in order. A
// last line that was cut by a kill is left out.
func ReadLedger(r io.Reader) []Entry {
	found := map[int64]Entry{}
	for d := json.NewDecoder(r); ; {
		var entry Entry
		if d.Decode(&entry) != nil {
			break
		}
		found[entry.Seq] = entry
	}
	out := make([]Entry, 0, len(found))
	for _, seq := range slices.Sorted(maps.Keys(found)) {
		out = append(out, found[seq])
	}
	return out
}
