package responses

import (
	"regexp"

	"icecore/ingest/gateway/body"
	"icecore/ingest/gateway/openai"
	"icecore/ingest/gateway/turn"
)

// history makes messages of items.
type history struct {
	r     *turn.Request
	tools *toolbox
	// open: the last message is an assistant's turn that the next item may belong to.
	open bool
	// origin is the trace that the open turn came from; empty: not known.
	origin string
	// thought: the item before was reasoning of that turn.
	thought bool
	// thoughts and words are what the turn holds so far: they become its message when
	// it ends, so that many small items cost no more than few large ones.
	thoughts, words []byte
}

func (h *history) read(r *turn.Request, f body.Fields) error {
	if err := h.instructions(f.Get("instructions")); err != nil {
		return err
	}
	input := f.Get("input")
	if input.Kind() == body.KindString {
		text, err := input.String()
		if err != nil {
			return err
		}
		h.add(turn.Message{Role: turn.RoleUser, Content: turn.TextOf(text)})
		return nil
	}
	list, err := input.Array()
	if err != nil {
		return input.Invalid("must be a string or an array of items, not " + string(input.Kind()))
	}
	for _, one := range list {
		if err := h.item(one); err != nil {
			return err
		}
	}
	h.end()
	if len(r.Messages) == 0 {
		return input.Invalid("at least one item is required")
	}
	return nil
}

// instructions are a text; some clients send back the items that an answer showed.
func (h *history) instructions(v body.Value) error {
	if v.Kind() == body.KindArray {
		list, err := v.Array()
		if err != nil {
			return err
		}
		for _, one := range list {
			if err := h.item(one); err != nil {
				return err
			}
		}
		return nil
	}
	text, err := v.String()
	if err == nil && text != "" {
		h.add(turn.Message{Role: turn.RoleSystem, Content: turn.TextOf(text)})
	}
	return err
}

// add puts a message that is no part of the turn before.
func (h *history) add(m turn.Message) {
	h.end()
	h.r.Messages = append(h.r.Messages, m)
}

// end closes the assistant's turn that went on.
func (h *history) end() {
	if h.open {
		m := h.turn()
		if len(h.thoughts) > 0 {
			text := string(h.thoughts)
			m.Reasoning = &text
		}
		if len(h.words) > 0 {
			m.Content = turn.TextOf(string(h.words))
		}
	}
	h.open, h.origin, h.thought = false, "", false
	h.thoughts, h.words = nil, nil
}

// turn is the assistant's turn that goes on.
func (h *history) turn() *turn.Message { return &h.r.Messages[len(h.r.Messages)-1] }

// assistant opens the turn that an item belongs to. Items of one answer are one turn:
// those whose origin is the same, and where that is not known, those that can stand
// together: fits.
func (h *history) assistant(origin string, fits bool) {
	if origin != "" && h.origin != "" {
		fits = origin == h.origin
	}
	if !h.open || !fits {
		h.add(turn.Message{Role: turn.RoleAssistant, Null: true})
		h.open = true
	}
	if origin != "" {
		h.origin = origin
		h.r.Anchored(len(h.r.Messages)-1, origin)
	}
}

func (h *history) reasoning(f body.Fields) error {
	sealed, err := f.Get("encrypted_content").String()
	if err != nil {
		return err
	}
	anchor, ours, err := h.r.Open(sealed, f.Get("encrypted_content").Path())
	if err != nil {
		return err
	}
	f.Drop(h.r, "type", "id", "status", "summary", "content", "encrypted_content")
	text, err := joined(h.r, f.Get("content"))
	if err != nil {
		return err
	}
	if text == "" && ours {
		text = anchor.Reasoning
	}
	if text == "" {
		// Another's: all that can be read of it.
		if text, err = joined(h.r, f.Get("summary")); err != nil {
			return err
		}
	}
	origin := anchor.TraceID
	if origin == "" {
		if origin, err = originOf(f); err != nil {
			return err
		}
	}
	if text == "" {
		if !ours {
			h.r.Rewrite("dropped_reasoning", f.Path(), "it holds no text that can be read here")
		}
		if origin == "" {
			return nil
		}
	}
	h.assistant(origin, len(h.words) == 0 && (!h.open || len(h.turn().Calls) == 0))
	h.thoughts = append(h.thoughts, text...)
	h.thought = true
	return nil
}

func (h *history) said(f body.Fields) error {
	parts, err := content(h.r, f.Get("content"))
	if err != nil {
		return err
	}
	origin, err := originOf(f)
	if err != nil {
		return err
	}
	// Two messages in a row are two turns, unless the second was thought about in the
	// turn of the first.
	h.assistant(origin, len(h.words) == 0 || h.thought)
	h.thought = false
	h.turn().Null = false
	// The engine wrote one text, whatever pieces it was told in.
	for _, p := range parts {
		if p.Raw != nil {
			return f.Get("content").Invalid("an assistant's message holds text only")
		}
		h.words = append(h.words, p.Text...)
	}
	return nil
}

func (h *history) called(f body.Fields, custom bool) error {
	c, err := call(f, custom)
	if err != nil {
		return err
	}
	f.Drop(h.r, "type", "id", "status", "call_id", "name", "namespace", map[bool]string{false: "arguments", true: "input"}[custom])
	namespace, err := f.Get("namespace").String()
	if err != nil {
		return err
	}
	c.Name = h.tools.name(namespace, c.Name)
	origin, err := originOf(f)
	if err != nil {
		return err
	}
	h.assistant(origin, true)
	m := h.turn()
	m.Calls = append(m.Calls, c)
	h.thought = false
	return nil
}

func call(f body.Fields, custom bool) (turn.Call, error) {
	var c turn.Call
	var err error
	if c.ID, err = f.Get("call_id").NeedString(); err != nil {
		return c, err
	}
	if c.Name, err = f.Get("name").NeedString(); err != nil {
		return c, err
	}
	if custom {
		input, err := f.Get("input").String()
		c.Arguments = openai.CustomArguments(input)
		return c, err
	}
	c.Arguments, err = f.Get("arguments").String()
	return c, err
}

// ourID is an item's id that we made of its trace's.
var ourID = regexp.MustCompile(`^(?:rs|msg|fc|ctc)_([0-9a-f]{32})_[0-9]+$`)

// originOf is the trace that an item came from, by its id.
func originOf(f body.Fields) (string, error) {
	id, err := f.Get("id").String()
	if err != nil {
		return "", err
	}
	m := ourID.FindStringSubmatch(id)
	if m == nil {
		return "", nil
	}
	s := m[1]
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:], nil
}
