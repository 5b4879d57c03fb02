package turn

import "encoding/json"

// Head is what is known of an answer before its first delta.
type Head struct {
	// ID is the trace's id of the first choice; APIs make their own ids of it.
	ID string
	// Model is the name that the harness used.
	Model string
	// Created is in seconds since the Unix epoch.
	Created int64
	// PromptTokens is nil while the engine has not said.
	PromptTokens *int64
	// TraceIDs has one entry per choice.
	TraceIDs []string
}

// Delta is what one choice went on by. Its parts are in order: reasoning, text,
// calls. What an engine sends in another order is several deltas.
type Delta struct {
	Choice    int
	Reasoning string
	Text      string
	Refusal   string
	Calls     []CallDelta
	// Logprobs is the engine's own logprobs object for this delta, carried only when
	// the harness asked for it (chat).
	Logprobs json.RawMessage
}

// Empty says that a delta carries nothing.
func (d *Delta) Empty() bool {
	return d.Reasoning == "" && d.Text == "" && d.Refusal == "" && len(d.Calls) == 0 && d.Logprobs == nil
}

// CallDelta is what one tool call went on by. The first of an Index carries ID and
// Name; either may come again and then says nothing new.
type CallDelta struct {
	Index     int
	ID        string
	Name      string
	Arguments string
}

// Why an answer ended, in the words of Chat Completions.
const (
	FinishStop          = "stop"
	FinishLength        = "length"
	FinishToolCalls     = "tool_calls"
	FinishContentFilter = "content_filter"
)

// End is how a choice ended.
type End struct {
	Choice int
	Finish string
	// StopSequence is the text that the harness gave and the engine stopped at.
	StopSequence string
}

// Usage counts tokens as the engine does; nil: not said.
type Usage struct {
	Prompt, Completion, Cached, Reasoning *int64
	// Raw is the engine's own object.
	Raw json.RawMessage
}

// Count gives n, or 0 where it was not said.
func Count(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

// Answer is a whole answer.
type Answer struct {
	Head    Head
	Choices []Choice
	Usage   Usage
}

// Choice is one whole answer of n.
type Choice struct {
	Message  Message
	Refusal  string
	End      End
	Logprobs json.RawMessage
}

// Gather makes whole answers of deltas.
type Gather struct{ choices []*gathered }

type gathered struct {
	reasoning, text, refusal []byte
	calls                    []gatheredCall
	logprobs                 []json.RawMessage
}

type gatheredCall struct {
	index     int
	id, name  string
	arguments []byte
}

// Add takes a delta.
func (g *Gather) Add(d Delta) {
	for len(g.choices) <= d.Choice {
		g.choices = append(g.choices, &gathered{})
	}
	c := g.choices[d.Choice]
	c.reasoning = append(c.reasoning, d.Reasoning...)
	c.text = append(c.text, d.Text...)
	c.refusal = append(c.refusal, d.Refusal...)
	if d.Logprobs != nil {
		c.logprobs = append(c.logprobs, d.Logprobs)
	}
	for _, part := range d.Calls {
		c.call(part)
	}
}

func (c *gathered) call(part CallDelta) {
	at := -1
	for i := range c.calls {
		if c.calls[i].index == part.Index {
			at = i
		}
	}
	if at < 0 {
		c.calls = append(c.calls, gatheredCall{index: part.Index})
		at = len(c.calls) - 1
	}
	to := &c.calls[at]
	if to.id == "" {
		to.id = part.ID
	}
	if to.name == "" {
		to.name = part.Name
	}
	to.arguments = append(to.arguments, part.Arguments...)
}

// Message gives what choice i has said so far, as the assistant's turn that a
// harness sends back.
func (g *Gather) Message(i int) Message {
	m := Message{Role: RoleAssistant}
	if i >= len(g.choices) {
		m.Null = true
		return m
	}
	c := g.choices[i]
	if len(c.reasoning) > 0 {
		text := string(c.reasoning)
		m.Reasoning = &text
	}
	if len(c.text) > 0 {
		m.Content = TextOf(string(c.text))
	} else {
		m.Null = true
	}
	for i := range c.calls {
		m.Calls = append(m.Calls, Call{ID: c.calls[i].id, Name: c.calls[i].name, Arguments: string(c.calls[i].arguments)})
	}
	return m
}

// Refusal gives what choice i refused with.
func (g *Gather) Refusal(i int) string {
	if i >= len(g.choices) {
		return ""
	}
	return string(g.choices[i].refusal)
}

// Logprobs joins the engine's logprobs objects of choice i: their content arrays one
// after the other; nil: there are none.
func (g *Gather) Logprobs(i int) json.RawMessage {
	if i >= len(g.choices) || len(g.choices[i].logprobs) == 0 {
		return nil
	}
	var whole struct {
		Content []json.RawMessage `json:"content"`
	}
	for _, raw := range g.choices[i].logprobs {
		var one struct {
			Content []json.RawMessage `json:"content"`
		}
		if json.Unmarshal(raw, &one) == nil {
			whole.Content = append(whole.Content, one.Content...)
		}
	}
	out, err := json.Marshal(whole)
	if err != nil {
		return nil
	}
	return out
}
