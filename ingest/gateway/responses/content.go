package responses

import (
	"encoding/json"
	"strings"

	"icecore/ingest/gateway/body"
	"icecore/ingest/gateway/turn"
)

// content reads a text or parts. An empty text is no part.
func content(r *turn.Request, v body.Value) ([]turn.Part, error) {
	switch v.Kind() {
	case body.KindString:
		text, err := v.String()
		if err != nil || text == "" {
			return nil, err
		}
		return turn.TextOf(text), nil
	case body.KindAbsent, body.KindArray:
	default:
		return nil, v.Invalid("must be a string or an array of parts, not " + string(v.Kind()))
	}
	list, err := v.Array()
	if err != nil {
		return nil, err
	}
	var parts []turn.Part
	for _, one := range list {
		p, err := part(r, one)
		if err != nil {
			return nil, err
		}
		if p != nil {
			parts = append(parts, *p)
		}
	}
	return parts, nil
}

// part reads one part; nil: it was left out.
func part(r *turn.Request, v body.Value) (*turn.Part, error) {
	f, err := v.Fields()
	if err != nil {
		return nil, err
	}
	kind, err := f.Get("type").NeedString()
	if err != nil {
		return nil, err
	}
	switch kind {
	case "input_text", "output_text", "text", "summary_text", "reasoning_text", "refusal":
		name := "text"
		if kind == "refusal" {
			name = kind
		}
		text := f.Get(name)
		if !text.Given() {
			return nil, text.Invalid("is required")
		}
		f.Drop(r, "type", name, "annotations", "logprobs") // the last two are an answer's notes on its text
		s, err := text.String()
		return &turn.Part{Text: s}, err
	case "input_image":
		return image(r, f)
	case "input_file":
		return file(f)
	case "input_audio":
		return &turn.Part{Raw: f.Unhinted(v)}, nil // the same in Chat Completions
	}
	r.Rewrite("dropped_part", v.Path(), "a part of type "+kind)
	return nil, nil
}

func image(r *turn.Request, f body.Fields) (*turn.Part, error) {
	f.Drop(r, "type", "image_url", "detail")
	if err := noFile(f); err != nil {
		return nil, err
	}
	url, err := f.Get("image_url").NeedString()
	if err != nil {
		return nil, err
	}
	detail, err := f.Get("detail").String()
	if err != nil {
		return nil, err
	}
	inner := map[string]string{"url": url}
	if detail != "" {
		inner["detail"] = detail
	}
	return raw(map[string]any{"type": "image_url", "image_url": inner})
}

func file(f body.Fields) (*turn.Part, error) {
	if err := noFile(f); err != nil {
		return nil, err
	}
	data := f.Get("file_data")
	if data.Absent() {
		return nil, turn.Unsupported(data.Path(), data.Path()+": files are not fetched here; send the data")
	}
	return raw(map[string]any{"type": "file", "file": f.Rest("type")})
}

func noFile(f body.Fields) error {
	if id := f.Get("file_id"); !id.Absent() {
		return turn.Unsupported(id.Path(), id.Path()+": no files are kept here; send the data itself")
	}
	return nil
}

func raw(part any) (*turn.Part, error) {
	text, err := turn.AppendJSON(nil, part)
	return &turn.Part{Raw: json.RawMessage(text)}, err
}

// joined gives the texts of parts, one after the other.
func joined(r *turn.Request, v body.Value) (string, error) {
	if v.Kind() == body.KindString {
		return v.String()
	}
	list, err := v.Array()
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, one := range list {
		f, err := one.Fields()
		if err != nil {
			return "", err
		}
		f.Drop(r, "type", "text")
		text, err := f.Get("text").String()
		if err != nil {
			return "", err
		}
		out.WriteString(text)
	}
	return out.String(), nil
}
