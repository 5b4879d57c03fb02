package generate

import (
	"strings"

	"icecore/ingest/gateway/body"
	"icecore/ingest/gateway/turn"
)

// media makes the part that engines know of an image.
func (d *decoder) media(name string, v body.Value) (turn.Part, error) {
	f, err := v.Fields()
	if err != nil {
		return turn.Part{}, err
	}
	d.drop(f, "mimeType", map[string]string{"inlineData": "data", "fileData": "fileUri"}[name])
	mime, err := get(f, "mimeType").String()
	if err != nil {
		return turn.Part{}, err
	}
	url := ""
	if name == "fileData" {
		if url, err = get(f, "fileUri").NeedString(); err != nil {
			return turn.Part{}, err
		}
		web := strings.HasPrefix(url, "http://") || strings.HasPrefix(url, "https://")
		if !web || strings.Contains(url, "generativelanguage.googleapis.com/") {
			return turn.Part{}, unsupported(v, "the gateway keeps no files: send inlineData, or an image's http address")
		}
	}
	if !strings.HasPrefix(mime, "image/") && (name != "fileData" || mime != "") {
		return turn.Part{}, unsupported(get(f, "mimeType"), "only images are supported")
	}
	if name == "inlineData" {
		bytes, err := get(f, "data").NeedString()
		if err != nil {
			return turn.Part{}, err
		}
		url = "data:" + mime + ";base64," + bytes
	}
	part := body.AppendString([]byte(`{"type":"image_url","image_url":{"url":`), url)
	return turn.Part{Raw: append(part, "}}"...)}, nil
}
