package enginetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// call is one request for an answer, under way.
type call struct {
	e       *Engine
	face    string
	name    string // of the script
	script  *Script
	state   *scripted
	req     *body
	header  http.Header
	id      string // as the caller named it, else ours
	created int64
	attempt int
	entry   *Entry

	seen     Seen
	thinking bool
	prompt   []int32
	past     past
	answers  []*answer
	opened   string // version when it began

	ctx  context.Context //nolint:containedctx // ends with the client, or the abort
	stop context.CancelCauseFunc
}

// Why a call's context ended, when it was not the client.
var (
	errAborted   = errors.New("aborted")
	errRestarted = errors.New("restarted")
)

func (c *call) abort() {
	if c.script.fault(c.attempt, c.req.Stream, "deaf_abort") == nil {
		c.stop(errAborted)
	}
}

// answerID is the answer's own id, as vLLM makes it of the request's.
func (c *call) answerID() string { return "chatcmpl-" + c.id }

// refusal is an answer with an error status.
type refusal struct {
	status  int
	message string
}

func (r *refusal) Error() string { return r.message }

func refuse(status int, format string, args ...any) error {
	return &refusal{status: status, message: fmt.Sprintf(format, args...)}
}

// dialect writes one route's answers.
type dialect interface {
	// prepare reads what is asked: it sets the prompt and seen of c.
	prepare(c *call) error
	// begin comes when the answers are decided, before the first piece.
	begin(c *call)
	head(dst []byte, c *call) []byte
	piece(dst []byte, c *call, p *piece) []byte
	tail(dst []byte, c *call) []byte
	whole(dst []byte, c *call) []byte
	event(dst []byte, c *call, status int, message string) []byte
}

// asks serves a route that answers by sampling. fresh gives a dialect for a call.
func (e *Engine) asks(face string, fresh func() dialect) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler) // the client has left
		}
		c := &call{e: e, face: face, header: r.Header, created: time.Now().Unix()}
		c.entry = e.ledger.begin(face, r, raw)
		d := fresh()
		if err := c.read(raw, r, d); err != nil {
			c.refuse(w, err)
			return
		}
		ctx := r.Context()
		if c.script.fault(c.attempt, c.req.Stream, "deaf") != nil {
			ctx = context.WithoutCancel(ctx)
		}
		c.ctx, c.stop = context.WithCancelCause(ctx)
		defer c.stop(nil)
		e.control.begin(c)
		defer e.control.end(c)
		c.serve(w, d)
	}
}

// read decodes the request and decides what will be sampled.
func (c *call) read(raw []byte, r *http.Request, d dialect) error {
	var err error
	if c.req, err = readBody(raw); err != nil {
		return refuse(http.StatusBadRequest, "%s", err)
	}
	c.id = c.req.RequestID + c.req.RID
	if c.id == "" {
		c.id = r.Header.Get("X-Request-Id")
	}
	c.e.ledger.change(c.entry, false, func(entry *Entry) {
		entry.Model, entry.Stream, entry.RequestID = c.req.Model, c.req.Stream, c.id
	})
	if c.id == "" {
		c.id = fmt.Sprintf("req-%d", c.entry.Seq)
	}
	if c.name, c.state = c.e.scripted(c.req.Model, r); c.state == nil {
		return refuse(http.StatusNotFound, "The model `%s` does not exist.", c.name)
	}
	c.script = c.state.script
	c.attempt = int(c.state.attempts.Add(1)) - 1
	c.e.ledger.change(c.entry, false, func(entry *Entry) { entry.Script, entry.Attempt = c.name, c.attempt })
	c.thinking = c.req.wantsThinking()
	if f := c.script.fault(c.attempt, c.req.Stream, "status", "html", "drop"); f != nil {
		return &faulted{f}
	}
	if err := d.prepare(c); err != nil {
		return err
	}
	c.seen.Attempt, c.seen.MaxTokens = c.attempt, c.req.max()
	if len(c.prompt) == 0 {
		return refuse(http.StatusBadRequest, "the prompt is empty")
	}
	for i, id := range c.prompt {
		if Token(id) == "" {
			return refuse(http.StatusBadRequest, "Token id %d at position %d is out of vocabulary", id, i)
		}
	}
	if most := c.script.maxLen(); len(c.prompt)+max(c.req.max(), 1) > most {
		return refuse(http.StatusBadRequest, "This model's maximum context length is %d tokens. However, you requested %d output tokens and your prompt contains %d input tokens. Please reduce the length of the input prompt or the number of requested output tokens.",
			most, c.req.max(), len(c.prompt))
	}
	c.past = pastOf(c.prompt)
	for i := range c.req.N {
		c.answers = append(c.answers, c.plan(i))
	}
	d.begin(c)
	c.opened = c.e.Version()
	c.e.ledger.change(c.entry, true, func(entry *Entry) { entry.PromptIDs, entry.call = c.prompt, c })
	return nil
}

func (s *Script) maxLen() int {
	if s.Server.MaxLen > 0 {
		return s.Server.MaxLen
	}
	return 1 << 20
}

// room is the most ids that an answer may have.
func (c *call) room() int {
	room := c.script.maxLen() - len(c.prompt)
	if m := c.req.max(); m > 0 {
		room = min(room, m)
	}
	return room
}

// template renders what was asked in messages.
func (c *call) template() error {
	var err error
	if c.seen, err = c.req.seen(); err != nil {
		return refuse(http.StatusBadRequest, "%s", err)
	}
	text, err := c.script.Template.Render(c.seen.Messages, c.seen.Tools, c.req.generates(), c.thinking)
	if err != nil {
		return refuse(http.StatusBadRequest, "%s", err)
	}
	c.prompt = Encode(text)
	return nil
}

// readPrompt sees messages and tools in ids, for routes that take no messages.
func (c *call) readPrompt(ids []int32) {
	text := Decode(ids)
	c.prompt, c.seen = ids, seenIn(text)
	c.thinking = !strings.HasSuffix(text, "<think>\n\n</think>\n\n")
}

// faulted is a refusal that the script wants.
type faulted struct{ *Fault }

func (f *faulted) Error() string { return f.Kind }

// refuse answers an error before anything was sampled.
func (c *call) refuse(w http.ResponseWriter, err error) {
	status, message, ended := http.StatusInternalServerError, err.Error(), "refused"
	var r *refusal
	if errors.As(err, &r) {
		status = r.status
	}
	var f *faulted
	if errors.As(err, &f) {
		ended, message, status = f.Kind, f.Message, f.Status
		if status == 0 {
			status = http.StatusInternalServerError
		}
		if message == "" {
			message = "scripted fault " + http.StatusText(status)
		}
	}
	c.e.ledger.change(c.entry, true, func(entry *Entry) {
		entry.Status, entry.Ended, entry.Finished = status, ended, time.Now()
	})
	if f == nil {
		writeJSON(w, status, errorBody(status, message))
		return
	}
	if f.RetryAfter != "" {
		w.Header().Set("Retry-After", f.RetryAfter)
	}
	switch f.Kind {
	case "drop":
		panic(http.ErrAbortHandler)
	case "html":
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, "<html><head><title>%d</title></head><body><h1>%s</h1></body></html>\n", status, message)
	default:
		writeJSON(w, status, errorBody(status, message))
	}
}

// sleep waits, unless the call's context ends.
func (c *call) sleep(d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
}
