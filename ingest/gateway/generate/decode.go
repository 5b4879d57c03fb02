package generate

import (
	"encoding/json"
	"slices"

	"icecore/ingest/gateway/body"
	"icecore/ingest/gateway/turn"
)

type raw = json.RawMessage

// decoder makes a call of a body. Its steps run in the order of Provider.Decode.
type decoder struct {
	body  body.Fields
	r     *turn.Request
	calls pending
}

// known are the members of a body that are read, and those that change nothing for an
// engine.
var known = []string{
	"contents", "systemInstruction", "tools", "toolConfig", "generationConfig", "cachedContent",
	"model", "safetySettings", "labels", "serviceTier", "store", "generateContentRequest",
}

func (d *decoder) rest() error {
	cached := get(d.body, "cachedContent")
	if name, err := cached.String(); err != nil {
		return err
	} else if name != "" {
		return unsupported(cached, "the gateway keeps no cached content: send it as part of contents")
	}
	for _, m := range d.body.All() {
		if !m.Value.Absent() && !slices.Contains(known, camel(m.Name)) {
			d.r.Rewrite("dropped_field", m.Value.Path(), "the gateway does not know it")
		}
	}
	return nil
}
