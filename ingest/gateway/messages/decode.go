package messages

import (
	"encoding/json"
	"slices"
	"strings"

	"icecore/ingest/gateway/body"
	"icecore/ingest/gateway/turn"
)

type raw = json.RawMessage

// decoder makes a call of a body. Its steps run in the order of Provider.Decode.
type decoder struct {
	body     body.Fields
	r        *turn.Request
	counting bool
	// order is when each tool call came, by its id; seen counts them.
	order map[string]int
	seen  int
}

func unsupported(v body.Value, message string) error {
	return turn.Unsupported(v.Path(), v.Path()+": "+message)
}

// fieldThread asks for state on the server's side: then later requests hold only what is
// new, and their history would be lost without a sign.
const fieldThread = "thread"

func (d *decoder) basics() error {
	var err error
	if v := d.body.Get(fieldThread); !v.Absent() {
		return unsupported(v, "the gateway keeps no state between calls: send the whole history")
	}
	if d.r.Model, err = d.body.Get("model").NeedString(); err != nil {
		return err
	}
	if d.r.MaxTokens, err = d.body.Get("max_tokens").Int(); err != nil {
		return err
	}
	switch most := d.r.MaxTokens; {
	case most == nil && !d.counting:
		return d.body.Get("max_tokens").Invalid("is required")
	case most != nil && *most < 1:
		return d.body.Get("max_tokens").Invalid("must be at least 1")
	}
	stream, err := d.body.Get("stream").True()
	if err != nil {
		return err
	}
	d.r.Stream = stream && !d.counting
	return nil
}

// numbers are carried under their own names.
var numbers = []string{"temperature", "top_p", "top_k"}

func (d *decoder) sampling() error {
	for _, name := range numbers {
		v := d.body.Get(name)
		if v.Absent() {
			continue
		}
		if _, err := v.Float(); err != nil {
			return err
		}
		d.r.Sampling[name] = v.Raw()
	}
	stop := d.body.Get("stop_sequences")
	all, err := stop.Array()
	if err != nil || len(all) == 0 {
		return err
	}
	for _, v := range all {
		if _, err := v.NeedString(); err != nil {
			return err
		}
	}
	d.r.Sampling["stop"] = stop.Compact()
	return nil
}

func (d *decoder) thinking() error {
	v := d.body.Get("thinking")
	if v.Absent() {
		return nil
	}
	f, err := v.Fields()
	if err != nil {
		return err
	}
	kind, err := f.Get("type").NeedString()
	if err != nil {
		return err
	}
	on := kind != "disabled"
	if on && kind != "enabled" && kind != "adaptive" {
		return f.Get("type").Invalid("must be enabled, adaptive or disabled")
	}
	f.Drop(d.r, "type", "budget_tokens", "display")
	d.r.Reasoning.Enabled = &on
	if d.r.Reasoning.Budget, err = f.Get("budget_tokens").Int(); err != nil {
		return err
	}
	display, err := f.Get("display").String()
	d.r.Reasoning.Hidden = display == "omitted"
	return err
}

// output reads output_config, and output_format, which is its format's older place.
func (d *decoder) output() error {
	format := d.body.Get("output_format")
	if v := d.body.Get("output_config"); !v.Absent() {
		f, err := v.Fields()
		if err != nil {
			return err
		}
		if d.r.Reasoning.Effort, err = f.Get("effort").String(); err != nil {
			return err
		}
		f.Drop(d.r, "effort", "format")
		if f.Has("format") {
			format = f.Get("format")
		}
	}
	if format.Absent() {
		return nil
	}
	f, err := format.Fields()
	if err != nil {
		return err
	}
	kind, err := f.Get("type").NeedString()
	if err != nil {
		return err
	}
	if kind != "json_schema" {
		return unsupported(f.Get("type"), "only json_schema is supported")
	}
	if _, err := f.Get("schema").Fields(); err != nil {
		return err
	}
	f.Drop(d.r, "type", "schema")
	schema := append(raw(`{"type":"json_schema","json_schema":{"name":"output","schema":`), f.Get("schema").Raw()...)
	d.r.Sampling["response_format"] = append(schema, `,"strict":true}}`...)
	return nil
}

// known are the members that are read, and those that change nothing for an engine.
var known = []string{
	"model", "max_tokens", "stream", "temperature", "top_p", "top_k", "stop_sequences", "thinking",
	"output_config", "output_format", "system", "messages", "tools", "tool_choice",
	"context_management", "metadata", "mcp_servers", "container",
	"anthropic_beta", "anthropic_version", "betas", "cache_control", "inference_geo", "service_tier", "speed",
}

func (d *decoder) rest() error {
	servers := d.body.Get("mcp_servers")
	if all, err := servers.Array(); err != nil {
		return err
	} else if len(all) > 0 {
		return unsupported(servers, "the gateway calls no tools itself: connect the harness to its MCP servers")
	}
	if v := d.body.Get("container"); !v.Absent() {
		return unsupported(v, "the gateway has no containers")
	}
	if err := d.context(); err != nil {
		return err
	}
	d.session()
	for _, m := range d.body.All() {
		if !m.Value.Absent() && !slices.Contains(known, m.Name) {
			d.r.Rewrite("dropped_field", m.Value.Path(), "the gateway does not know it")
		}
	}
	return nil
}

// context lists edits of the history that a harness wants made for it; they are not
// made. To keep all thinking is no edit.
func (d *decoder) context() error {
	v := d.body.Get("context_management")
	if v.Absent() {
		return nil
	}
	f, err := v.Fields()
	if err != nil {
		return err
	}
	f.Drop(d.r, "edits")
	edits, err := f.Get("edits").Array()
	if err != nil {
		return err
	}
	for _, edit := range edits {
		e, err := edit.Fields()
		if err != nil {
			return err
		}
		kind, err := e.Get("type").String()
		if err != nil {
			return err
		}
		if keep, err := e.Get("keep").String(); err == nil && keep == "all" {
			e.Drop(d.r, "type", "keep")
			continue
		}
		d.r.Rewrite("ignored_context_edit", edit.Path(), kind)
	}
	return nil
}

// session reads metadata.user_id, which harnesses fill with JSON or, before that, with
// user_…_account_…_session_…. It is the caller's own text: nothing in it is a fault.
func (d *decoder) session() {
	f, err := d.body.Get("metadata").Fields()
	if err != nil {
		return
	}
	user, err := f.Get("user_id").String()
	if err != nil {
		return
	}
	if inner, err := body.Object([]byte(user), ""); err == nil {
		d.r.Session.ID, _ = inner.Get("session_id").String() // "" where it is no string
		return
	}
	if _, id, found := strings.Cut(user, "_session_"); found {
		d.r.Session.ID = id
	}
}
