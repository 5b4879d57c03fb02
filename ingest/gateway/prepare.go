package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"icecore/ingest/gateway/settings"
	"icecore/ingest/gateway/turn"
)

// prepare makes of what a harness asked for what the model's options let an engine be
// asked. Each change is a rewrite of r. params are members that go into the engine's
// body beside the request.
func prepare(r *turn.Request, m *settings.Model) (params settings.Members) {
	params = maps.Clone(m.Params)
	if params == nil {
		params = settings.Members{}
	}
	limitTokens(r, m)
	overrideSampling(r, m)
	effort(r, m, params)
	for _, name := range slices.Sorted(maps.Keys(params)) {
		if asked, ok := r.Sampling[name]; ok && !bytes.Equal(asked, params[name]) {
			r.Rewrite("set_param", name, fmt.Sprintf("%s to %s", asked, params[name]))
		}
	}
	developers(r, m)
	if m.StripBillingLine {
		stripBilling(r)
	}
	if m.System == settings.SystemFold {
		foldSystem(r)
	}
	r.LengthAsCompleted = m.LengthAsCompleted
	return params
}

func limitTokens(r *turn.Request, m *settings.Model) {
	switch {
	case r.MaxTokens == nil && m.DefaultMaxTokens > 0:
		n := m.DefaultMaxTokens
		r.MaxTokens = &n
		r.Rewrite("default_max_tokens", "max_tokens", fmt.Sprintf("%d", n))
	case r.MaxTokens != nil && m.MaxTokens > 0 && *r.MaxTokens > m.MaxTokens:
		n := m.MaxTokens
		r.Rewrite("clamped_max_tokens", "max_tokens", fmt.Sprintf("%d to %d", *r.MaxTokens, n))
		r.MaxTokens = &n
	}
}

func overrideSampling(r *turn.Request, m *settings.Model) {
	if len(m.Sampling) > 0 && r.Sampling == nil {
		r.Sampling = settings.Members{}
	}
	for _, name := range slices.Sorted(maps.Keys(m.Sampling)) {
		value := m.Sampling[name]
		if bytes.Equal(r.Sampling[name], value) {
			continue
		}
		r.Rewrite("set_sampling", name, fmt.Sprintf("%s to %s", said(r.Sampling[name]), value))
		r.Sampling[name] = value
	}
}

func said(raw json.RawMessage) string {
	if raw == nil {
		return "unset"
	}
	return clip(string(raw), 64)
}

// effort turns what the harness asked of thinking into what the model's table has for
// it. What the table does not know is dropped: guessing what a template would make of
// it could change the prompt behind the policy's back.
func effort(r *turn.Request, m *settings.Model, params settings.Members) {
	asked := r.Reasoning.Effort
	if asked == "" && r.Reasoning.Enabled != nil && !*r.Reasoning.Enabled {
		asked = "none"
	}
	if table, ok := m.Effort[asked]; ok && asked != "" {
		maps.Copy(params, table)
		r.Rewrite("mapped_effort", "reasoning", asked)
	} else if asked != "" {
		r.Rewrite("dropped_effort", "reasoning", asked)
	}
	if b := r.Reasoning.Budget; b != nil {
		r.Rewrite("dropped_thinking_budget", "reasoning", fmt.Sprintf("%d", *b))
	}
	if e := r.Reasoning.Enabled; e != nil && *e && asked == "" {
		r.Rewrite("dropped_thinking", "reasoning", "enabled")
	}
}

func developers(r *turn.Request, m *settings.Model) {
	if m.Developer == turn.RoleDeveloper {
		return
	}
	for i := range r.Messages {
		if r.Messages[i].Role == turn.RoleDeveloper {
			r.Messages[i].Role = turn.RoleSystem
			r.Rewrite("developer_as_system", fmt.Sprintf("messages[%d]", i), "")
		}
	}
}

func stripBilling(r *turn.Request) {
	if len(r.Messages) == 0 || r.Messages[0].Role != turn.RoleSystem || len(r.Messages[0].Content) == 0 {
		return
	}
	content := slices.Clone(r.Messages[0].Content)
	rest, had := cutBillingLine(content[0].Text)
	if !had {
		return
	}
	r.Rewrite("stripped_billing_line", "messages[0]", "")
	content[0].Text = rest
	r.Messages[0].Content = content
	if rest == "" && len(content) > 1 {
		r.Messages[0].Content = content[1:]
	}
}

// billingLine is the line of a system prompt that stripBilling would take out.
func billingLine(r *turn.Request) string {
	if len(r.Messages) == 0 || len(r.Messages[0].Content) == 0 {
		return ""
	}
	text := r.Messages[0].Content[0].Text
	rest, had := cutBillingLine(text)
	if !had {
		return ""
	}
	return text[:len(text)-len(rest)]
}
