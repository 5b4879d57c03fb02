package chat

import (
	"icecore/ingest/gateway/body"
	"icecore/ingest/gateway/turn"
)

// thinking reads what is asked of reasoning in the forms that clients of Chat
// Completions have for it: OpenAI's reasoning_effort, reasoning{effort, max_tokens,
// enabled, exclude}, thinking{type, budget_tokens} or a boolean, enable_thinking with
// thinking_budget, include_reasoning. The model's options say what an engine is told.
func thinking(r *turn.Request, f body.Fields) error {
	var err error
	if r.Reasoning.Effort, err = f.Get("reasoning_effort").String(); err != nil {
		return err
	}
	if r.Reasoning.Enabled, err = f.Get("enable_thinking").Bool(); err != nil {
		return err
	}
	if r.Reasoning.Budget, err = f.Get("thinking_budget").Int(); err != nil {
		return err
	}
	shown, err := f.Get("include_reasoning").Bool()
	if err != nil {
		return err
	}
	// It hides the thinking from the harness. The engine is never told: some leave
	// out ids with it.
	r.Reasoning.Hidden = shown != nil && !*shown
	if err := reasoning(r, f.Get("reasoning")); err != nil {
		return err
	}
	return typed(r, f.Get("thinking"))
}

func reasoning(r *turn.Request, v body.Value) error {
	if v.Absent() {
		return nil
	}
	f, err := v.Fields()
	if err != nil {
		return err
	}
	f.Drop(r, "effort", "max_tokens", "enabled", "exclude", "summary") // the last is of what is shown
	to := &r.Reasoning
	effort, err := f.Get("effort").String()
	if err != nil {
		return err
	}
	if effort != "" {
		to.Effort = effort
	}
	if err := override(&to.Budget, f.Get("max_tokens").Int); err != nil {
		return err
	}
	if err := override(&to.Enabled, f.Get("enabled").Bool); err != nil {
		return err
	}
	hidden, err := f.Get("exclude").True()
	if hidden {
		to.Hidden = true
	}
	return err
}

func typed(r *turn.Request, v body.Value) error {
	to := &r.Reasoning
	if v.Kind() == body.KindBool {
		return override(&to.Enabled, v.Bool)
	}
	if v.Absent() {
		return nil
	}
	f, err := v.Fields()
	if err != nil {
		return err
	}
	f.Drop(r, "type", "budget_tokens")
	kind, err := f.Get("type").String()
	if err != nil {
		return err
	}
	switch kind {
	case "enabled", "disabled":
		on := kind == "enabled"
		to.Enabled = &on
	case "adaptive", "auto", "":
	default:
		return f.Get("type").Invalid("must be enabled, disabled or adaptive")
	}
	return override(&to.Budget, f.Get("budget_tokens").Int)
}

func override[T any](to **T, get func() (*T, error)) error {
	v, err := get()
	if err == nil && v != nil {
		*to = v
	}
	return err
}
