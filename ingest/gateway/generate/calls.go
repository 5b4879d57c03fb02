package generate

import (
	"cmp"
	"fmt"
	"slices"

	"icecore/ingest/gateway/body"
	"icecore/ingest/gateway/turn"
)

// functionCall reads a call, which is part i of the content at a place.
func (d *decoder) functionCall(v body.Value, at, i int) (turn.Call, error) {
	var c turn.Call
	f, err := v.Fields()
	if err != nil {
		return c, err
	}
	if c.Name, err = f.Get("name").NeedString(); err != nil {
		return c, err
	}
	if c.ID, err = f.Get("id").String(); err != nil {
		return c, err
	}
	if c.ID == "" {
		c.ID = mintPlace(at, i)
	}
	d.drop(f, "id", "name", "args")
	c.Arguments = "{}"
	if args := f.Get("args"); !args.Absent() {
		if _, err := args.Fields(); err != nil {
			return c, err
		}
		c.Arguments = string(args.Compact())
	}
	d.calls.add(c.ID, c.Name)
	return c, nil
}

func mintPlace(at, i int) string { return fmt.Sprintf("call_%d_%d", at, i) }

// result is a function's answer, by the place of its call.
type result struct {
	message turn.Message
	place   int
}

// user makes of a turn the tool messages, and one user message of the rest.
func (d *decoder) user(content body.Value, at int, all []body.Value) error {
	var results []result
	var images, parts []turn.Part
	reordered := false
	for i, v := range all {
		f, err := v.Fields()
		if err != nil {
			return err
		}
		name, held, err := d.kindOf(v, f)
		if err != nil {
			return err
		}
		switch name {
		case "text":
			text, err := held.String()
			if err != nil {
				return err
			}
			parts = append(parts, turn.Part{Text: text})
		case "inlineData", "fileData":
			p, err := d.media(name, held)
			if err != nil {
				return err
			}
			parts = append(parts, p)
		case "functionResponse":
			one, shown, err := d.functionResponse(held, at, i)
			if err != nil {
				return err
			}
			reordered = reordered || len(parts) > 0
			results = append(results, one)
			images = append(images, shown...)
		default:
			return unsupported(held, "is not supported in a user's turn")
		}
	}
	byCall := func(a, b result) int { return cmp.Compare(a.place, b.place) }
	reordered = reordered || !slices.IsSortedFunc(results, byCall)
	slices.SortStableFunc(results, byCall)
	if reordered {
		d.r.Rewrite("reordered_content", content.Path(), "function responses go first, in the order of their calls")
	}
	for _, one := range results {
		d.r.Messages = append(d.r.Messages, one.message)
	}
	if parts = append(images, parts...); len(parts) > 0 || len(results) == 0 {
		d.r.Messages = append(d.r.Messages, turn.Message{Role: turn.RoleUser, Content: parts})
	}
	return nil
}

func (d *decoder) functionResponse(v body.Value, at, i int) (result, []turn.Part, error) {
	r := result{message: turn.Message{Role: turn.RoleTool}}
	f, err := v.Fields()
	if err != nil {
		return r, nil, err
	}
	id, err := f.Get("id").String()
	if err != nil {
		return r, nil, err
	}
	name, err := f.Get("name").String()
	if err != nil {
		return r, nil, err
	}
	d.drop(f, "id", "name", "response", "parts")
	if id == "" && name == "" {
		return r, nil, f.Get("name").Invalid("is required")
	}
	r.place = d.calls.answer(id, name)
	switch {
	case r.place < len(d.calls.ids):
		r.message.CallID = d.calls.ids[r.place]
	case id != "":
		r.message.CallID = id
	default:
		r.message.CallID = mintPlace(at, i)
	}
	switch response := f.Get("response"); response.Kind() {
	case body.KindAbsent:
	case body.KindString:
		text, err := response.String()
		if err != nil {
			return r, nil, err
		}
		r.message.Content = turn.TextOf(text)
	default:
		r.message.Content = turn.TextOf(string(response.Compact()))
	}
	shown, err := d.shown(f.Get("parts"))
	return r, shown, err
}

// shown reads the images that a function's answer may have beside its response.
func (d *decoder) shown(v body.Value) ([]turn.Part, error) {
	all, err := list(v)
	if err != nil {
		return nil, err
	}
	var images []turn.Part
	for _, v := range all {
		f, err := v.Fields()
		if err != nil {
			return nil, err
		}
		name, held, err := d.kindOf(v, f)
		if err != nil {
			return nil, err
		}
		if name != "inlineData" && name != "fileData" {
			return nil, unsupported(held, "is not supported in a function's response")
		}
		p, err := d.media(name, held)
		if err != nil {
			return nil, err
		}
		d.r.Rewrite("moved_image", v.Path(), "into a user message after the function responses")
		images = append(images, p)
	}
	return images, nil
}
