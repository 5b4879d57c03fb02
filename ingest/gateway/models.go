package gateway

import (
	"net/http"
	"slices"
	"strings"

	"icecore/ingest/gateway/settings"
)

// listModels answers the models endpoints in the shape of the API that asks: the models
// of the settings, or else of the engines, and the aliases that are plain names.
func (g *Gateway) listModels(v *visit) error {
	names := g.modelNames()
	if v.route.act == actModel {
		name := strings.TrimPrefix(v.route.model, "models/")
		if _, options := g.resolve(name); options == nil {
			return g.noModel(name)
		}
		return g.answerJSON(v, g.modelIn(v.route.api, name))
	}
	items := make([]any, len(names))
	for i, name := range names {
		items[i] = g.modelIn(v.route.api, name)
	}
	switch v.route.api {
	case apiGenerate:
		return g.answerJSON(v, map[string]any{"models": items})
	case apiMessages:
		list := map[string]any{"data": items, "has_more": false, "first_id": nil, "last_id": nil}
		if len(names) > 0 {
			list["first_id"], list["last_id"] = names[0], names[len(names)-1]
		}
		return g.answerJSON(v, list)
	}
	return g.answerJSON(v, map[string]any{"object": "list", "data": items})
}

func (g *Gateway) modelNames() []string {
	var names []string
	add := func(name string) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, m := range g.settings.Models {
		add(m.Name)
	}
	if len(g.settings.Models) == 0 {
		for _, m := range g.engines.Models() {
			add(m.Name)
		}
	}
	for _, m := range g.settings.Models {
		for _, alias := range m.Aliases {
			if settings.Plain(alias) {
				add(alias)
			}
		}
	}
	return names
}

// modelIn is one entry of a list of models.
func (g *Gateway) modelIn(api, name string) any {
	served, options := g.resolve(name)
	var longest int64
	for _, m := range g.engines.Models() {
		if m.Name == served {
			longest = m.MaxLen
		}
	}
	switch api {
	case apiGenerate:
		m := map[string]any{"name": "models/" + name, "baseModelId": served, "version": "1", "displayName": name,
			"supportedGenerationMethods": []string{"generateContent", "streamGenerateContent", "countTokens"}}
		if longest > 0 {
			m["inputTokenLimit"] = longest
		}
		if options != nil && options.MaxTokens > 0 {
			m["outputTokenLimit"] = options.MaxTokens
		}
		return m
	case apiMessages:
		return map[string]any{"type": "model", "id": name, "display_name": name, "created_at": g.started.UTC().Format("2006-01-02T15:04:05Z")}
	}
	m := map[string]any{"id": name, "object": "model", "created": g.started.Unix(), "owned_by": "icecore"}
	if longest > 0 {
		m["max_model_len"] = longest
	}
	return m
}

func (g *Gateway) answerJSON(v *visit, what any) error {
	body, err := encode(what)
	if err != nil {
		return err
	}
	return g.answerBody(v, body)
}

func (g *Gateway) answerBody(v *visit, body []byte) error {
	o := newOut(v.w, g.settings.Limits.Patience, "", false)
	if err := o.whole(http.StatusOK, nil, body); err != nil {
		g.log.Debug("gateway: answer not delivered", "api", v.route.api, "err", err)
	}
	o.to.Done()
	return nil
}
