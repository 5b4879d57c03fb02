package messages

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"icecore/ingest/gateway/body"
	"icecore/ingest/gateway/turn"
)

// user makes of a turn's blocks the tool messages, and one user message of the rest.
func (d *decoder) user(content body.Value, blocks []body.Value) error {
	var results []turn.Message
	var images, parts []turn.Part
	reordered := false
	for _, v := range blocks {
		f, kind, err := open(v)
		if err != nil {
			return err
		}
		if kind == "tool_result" {
			result, shown, err := d.toolResult(f)
			if err != nil {
				return err
			}
			reordered = reordered || len(parts) > 0
			results = append(results, result)
			images = append(images, shown...)
			continue
		}
		if parts, err = d.part(parts, v, f, kind); err != nil {
			return err
		}
	}
	byCall := func(a, b turn.Message) int { return d.place(a.CallID) - d.place(b.CallID) }
	reordered = reordered || !slices.IsSortedFunc(results, byCall)
	slices.SortStableFunc(results, byCall)
	if reordered {
		d.r.Rewrite("reordered_content", content.Path(), "tool results go first, in the order of their calls")
	}
	d.r.Messages = append(d.r.Messages, results...)
	if parts = append(images, parts...); len(parts) > 0 || len(results) == 0 {
		d.r.Messages = append(d.r.Messages, turn.Message{Role: turn.RoleUser, Content: parts})
	}
	return nil
}

// place is when the call came; results of calls that nobody saw are last.
func (d *decoder) place(id string) int {
	if at, ok := d.order[id]; ok {
		return at
	}
	return math.MaxInt32
}

func (d *decoder) toolResult(f body.Fields) (turn.Message, []turn.Part, error) {
	m := turn.Message{Role: turn.RoleTool}
	var err error
	if m.CallID, err = f.Get("tool_use_id").NeedString(); err != nil {
		return m, nil, err
	}
	failed, err := f.Get("is_error").True()
	if err != nil {
		return m, nil, err
	}
	f.Drop(d.r, "type", "tool_use_id", "content", "is_error")
	if failed {
		d.r.Dropped(f.Get("is_error").Path(), "engines have no place for it; the result's text tells")
	}
	content := f.Get("content")
	switch content.Kind() {
	case body.KindAbsent:
		return m, nil, nil
	case body.KindString:
		text, err := content.String()
		m.Content = turn.TextOf(text)
		return m, nil, err
	}
	blocks, err := content.Array()
	if err != nil {
		return m, nil, content.Invalid("must be a string or an array of blocks")
	}
	var images []turn.Part
	for _, v := range blocks {
		inner, kind, err := open(v)
		if err != nil {
			return m, nil, err
		}
		parts, err := d.part(nil, v, inner, kind)
		if err != nil {
			return m, nil, err
		}
		for _, p := range parts {
			if p.Raw == nil {
				m.Content = append(m.Content, p)
				continue
			}
			// Few templates print images in a tool's turn.
			d.r.Rewrite("moved_image", v.Path(), "into a user message after the tool results")
			images = append(images, p)
		}
	}
	return m, images, nil
}

// part adds what a block holds of text and images.
func (d *decoder) part(to []turn.Part, v body.Value, f body.Fields, kind string) ([]turn.Part, error) {
	switch kind {
	case "text":
		f.Drop(d.r, "type", "text")
		text, err := f.Get("text").String()
		return append(to, turn.Part{Text: text}), err
	case "image":
		p, err := d.image(f)
		return append(to, p), err
	case "document":
		return d.document(to, f)
	case "tool_reference": // the result of a search for tools that are all offered already
		f.Drop(d.r, "type", "tool_name")
		name, err := f.Get("tool_name").NeedString()
		d.r.Rewrite("reference_as_text", v.Path(), name)
		return append(to, turn.Part{Text: name}), err
	}
	return to, unsupported(f.Get("type"), "a block of type "+strconv.Quote(kind)+" is not supported here")
}

func (d *decoder) document(to []turn.Part, f body.Fields) ([]turn.Part, error) {
	source, kind, err := open(f.Get("source"))
	if err != nil {
		return to, err
	}
	for _, name := range []string{"title", "context"} {
		if f.Has(name) {
			d.r.Dropped(f.Get(name).Path(), "only the document itself is sent")
		}
	}
	f.Drop(d.r, "type", "source", "title", "context")
	source.Drop(d.r, "type", "media_type", map[bool]string{true: "content", false: "data"}[kind == "content"])
	switch kind {
	case "text":
		text, err := source.Get("data").String()
		return append(to, turn.Part{Text: text}), err
	case "content":
		content := source.Get("content")
		if content.Kind() == body.KindString {
			text, err := content.String()
			return append(to, turn.Part{Text: text}), err
		}
		blocks, err := content.Array()
		if err != nil {
			return to, err
		}
		for _, v := range blocks {
			inner, kind, err := open(v)
			if err != nil {
				return to, err
			}
			if kind != "text" && kind != "image" {
				return to, unsupported(inner.Get("type"), "a document holds text and images, not "+strconv.Quote(kind))
			}
			if to, err = d.part(to, v, inner, kind); err != nil {
				return to, err
			}
		}
		return to, nil
	}
	return to, unsupported(source.Get("type"), "only documents of text are supported, not "+strconv.Quote(kind))
}

// image makes the part that engines know.
func (d *decoder) image(f body.Fields) (turn.Part, error) {
	source, kind, err := open(f.Get("source"))
	if err != nil {
		return turn.Part{}, err
	}
	f.Drop(d.r, "type", "source")
	url := ""
	switch kind {
	case "base64":
		source.Drop(d.r, "type", "media_type", "data")
		media, err := source.Get("media_type").NeedString()
		if err != nil {
			return turn.Part{}, err
		}
		if !strings.HasPrefix(media, "image/") {
			return turn.Part{}, source.Get("media_type").Invalid("must be that of an image")
		}
		data, err := source.Get("data").NeedString()
		if err != nil {
			return turn.Part{}, err
		}
		url = "data:" + media + ";base64," + data
	case "url":
		source.Drop(d.r, "type", "url")
		if url, err = source.Get("url").NeedString(); err != nil {
			return turn.Part{}, err
		}
	default:
		return turn.Part{}, unsupported(source.Get("type"), "an image of source "+strconv.Quote(kind)+" is not supported: send base64 or url")
	}
	part := body.AppendString([]byte(`{"type":"image_url","image_url":{"url":`), url)
	return turn.Part{Raw: append(part, "}}"...)}, nil
}
