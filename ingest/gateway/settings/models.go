package settings

import (
	"go.yaml.in/yaml/v3"

	"icecore/ingest/gateway/continuity/template"
	"icecore/ingest/gateway/turn"
)

func (r *reader) models(n *yaml.Node, at string) (out []*Model) {
	// aliases says where each is; names are checked when all are known.
	type place struct {
		n  *yaml.Node
		at string
	}
	aliases := map[string]place{}
	r.each(n, at, func(name string, n *yaml.Node, at string) {
		if name == "" {
			r.fault(n, at, "is the empty name")
		}
		m := DefaultModel(name)
		r.model(n, at, m, func(alias string, n *yaml.Node, at string) {
			if other, ok := aliases[alias]; ok {
				r.fault(n, at, "%q is there already at line %d", alias, other.n.Line)
				return
			}
			aliases[alias] = place{n, at}
		})
		out = append(out, m)
	})
	for _, m := range out {
		if p, ok := aliases[m.Name]; ok {
			r.fault(p.n, p.at, "%q is a model of its own, which always comes first", m.Name)
		}
	}
	return out
}

func (r *reader) model(n *yaml.Node, at string, m *Model, alias func(string, *yaml.Node, string)) {
	word := func(to *string, words ...string) func(*yaml.Node, string) {
		return func(n *yaml.Node, at string) { *to = r.oneOf(n, at, words...) }
	}
	r.object(n, at, fields{
		"aliases": func(n *yaml.Node, at string) {
			r.list(n, at, func(n *yaml.Node, at string) {
				v := r.name(n, at)
				m.Aliases = append(m.Aliases, v)
				alias(v, n, at)
			})
		},
		"continuity":         word(&m.Continuity, ContinuityOff, ContinuityExactText),
		"max_tokens":         func(n *yaml.Node, at string) { m.MaxTokens = r.count(n, at, 0) },
		"default_max_tokens": func(n *yaml.Node, at string) { m.DefaultMaxTokens = r.count(n, at, 0) },
		"sampling":           func(n *yaml.Node, at string) { m.Sampling = r.members(n, at) },
		"params":             func(n *yaml.Node, at string) { m.Params = r.members(n, at) },
		"effort": func(n *yaml.Node, at string) {
			m.Effort = map[string]Members{}
			r.each(n, at, func(name string, n *yaml.Node, at string) { m.Effort[name] = r.members(n, at) })
		},
		"reasoning_field": func(n *yaml.Node, at string) {
			m.ReasoningField = turn.ReasoningField(r.oneOf(n, at, string(turn.ReasoningContent), string(turn.ReasoningPlain)))
		},
		"reasoning_parser": func(n *yaml.Node, at string) { m.ReasoningParser = r.name(n, at) },
		"tool_parser":      func(n *yaml.Node, at string) { m.ToolParser = r.name(n, at) },
		"chat_template":    func(n *yaml.Node, at string) { m.ChatTemplate = r.template(n, at) },
		"chat_template_tools": func(n *yaml.Node, at string) {
			m.ChatTemplateTools = template.Form(r.oneOf(n, at, string(template.AsSent), string(template.Filled), string(template.Function)))
		},
		"chat_template_params": func(n *yaml.Node, at string) { m.ChatTemplateParams = r.members(n, at) },
		"logprobs_mode":        func(n *yaml.Node, at string) { m.LogprobsMode = r.name(n, at) },
		"system":               word(&m.System, SystemInPlace, SystemFold),
		"developer":            word(&m.Developer, turn.RoleSystem, turn.RoleDeveloper),
		"strip_billing_line":   func(n *yaml.Node, at string) { m.StripBillingLine = r.flag(n, at) },
		"length_as_completed":  func(n *yaml.Node, at string) { m.LengthAsCompleted = r.flag(n, at) },
	})
	if m.ChatTemplate == nil && (m.ChatTemplateTools != "" || len(m.ChatTemplateParams) > 0) {
		r.fault(n, at, "has chat_template_tools or chat_template_params, and no chat_template that uses them")
	}
	if m.MaxTokens > 0 && m.DefaultMaxTokens > m.MaxTokens {
		r.fault(n, at+".default_max_tokens", "is more than max_tokens")
	}
}

// template reads the chat template in the file that n names.
func (r *reader) template(n *yaml.Node, at string) *template.Template {
	path := r.text(n, at)
	if path == "" {
		return nil
	}
	source, err := r.readFile(path)
	if err != nil {
		r.fault(n, at, "%v", err)
		return nil
	}
	t, err := template.New(string(source))
	if err != nil {
		r.fault(n, at, "%v", err)
	}
	return t
}
