package turn

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"

	"icecore/trace"
)

// Request is what a harness asked for.
type Request struct {
	// Model is the name that the harness used; the gateway maps it to an engine's.
	Model    string
	Messages []Message
	Tools    []Tool
	Choice   ToolChoice
	// Parallel: several calls may come in one answer; nil: not said.
	Parallel *bool
	// Stream: the harness wants the answer as a stream of events.
	Stream bool
	// Array: the stream goes as one JSON array and not as events (Google without
	// alt=sse); its content type is application/json.
	Array bool
	// N is how many answers are wanted; 0 counts as 1.
	N int
	// MaxTokens bounds the answer; nil: not said.
	MaxTokens *int64
	// Sampling holds the other parameters under the names that engines use:
	// temperature, top_p, top_k, min_p, seed, stop (an array), presence_penalty,
	// frequency_penalty, repetition_penalty, logit_bias, response_format, …
	Sampling map[string]json.RawMessage
	// Reasoning is what the harness asked of thinking, unchanged, and what it
	// amounts to. A model's options say how an engine is told of it.
	Reasoning Reasoning
	// Logprobs: the harness itself asked for log-probs (chat only). Top is how many
	// alternatives a position has.
	Logprobs bool
	Top      int64
	// IncludeUsage: the harness asked for usage at the stream's end (chat only).
	IncludeUsage bool
	// Kind is set where the API itself tells that the agent did not ask.
	Kind trace.Kind
	// Rewrites lists what could not be carried as it came.
	Rewrites []Rewrite
	// Names gives back the names by which the harness knows its tools.
	Names Names
	// Anchors are the traces that turns of the history name as their source, by the
	// index of their message.
	Anchors map[int]string
	// Session is what the body tells of its caller, where an API puts that in it.
	Session Session

	// sealed counts the bytes that anchors held.
	sealed int
	// dropped are the rewrites that Dropped made, by their place without its indexes.
	dropped map[string]*dropped

	// LengthAsCompleted is set by the gateway for models so configured: an answer cut
	// by its length is told as a complete one (Responses; Codex gives up otherwise).
	LengthAsCompleted bool
	// Compact: the answer is a summary that takes the place of the history (Responses).
	Compact bool
	// Echo are members of the body that the answer repeats, as they came (Responses).
	Echo map[string]json.RawMessage
}

// Reasoning is what a harness asked of thinking.
type Reasoning struct {
	// Effort is none, minimal, low, medium, high, … as the API named it; empty: not said.
	Effort string
	// Budget is a bound in tokens; nil: not said.
	Budget *int64
	// Enabled is nil where nothing was said.
	Enabled *bool
	// Hidden: the harness does not want to be shown what was thought. It is sampled and
	// sealed into anchors all the same.
	Hidden bool
}

// Session is what a request tells of its caller; each may be empty.
type Session struct {
	ID string
	// Thread is the agent within the session, Parent the thread that began it.
	Thread string
	Parent string
}

// Rewrite says that something did not reach the engine as it came.
type Rewrite struct {
	// What is a stable word: dropped_tool, folded_system, clamped_max_tokens, …
	What string `json:"what"`
	// Where names the place in the harness's body, as tools[3].
	Where string `json:"where,omitempty"`
	// Detail is for a person.
	Detail string `json:"detail,omitempty"`
}

// maxRewrites bounds what a hostile body can make us keep of it.
const maxRewrites = 1000

// Rewrite adds one. Of very many the last says that there were more.
func (r *Request) Rewrite(what, where, detail string) {
	if len(r.Rewrites) >= maxRewrites {
		if len(r.Rewrites) > maxRewrites {
			return
		}
		what, where, detail = "more", "", "there were more than are listed"
	}
	r.Rewrites = append(r.Rewrites, Rewrite{What: what, Where: short(where), Detail: short(detail)})
}

// dropped is one kind of member that engines do not get.
type dropped struct {
	at, places int // at is its rewrite's
	why        string
}

// index is an element's place in a path.
var index = regexp.MustCompile(`\[\d+\]`)

// Dropped says that a member of the body does not reach the engine. A hundred messages
// with the same member are one rewrite, which names the first and counts them.
func (r *Request) Dropped(where, why string) {
	key := index.ReplaceAllString(where, "[]")
	if d := r.dropped[key]; d != nil {
		d.places++
		r.Rewrites[d.at].Detail = short(d.why) + " (" + strconv.Itoa(d.places) + " places)"
		return
	}
	if len(r.Rewrites) < maxRewrites {
		if r.dropped == nil {
			r.dropped = map[string]*dropped{}
		}
		r.dropped[key] = &dropped{len(r.Rewrites), 1, why}
	}
	r.Rewrite("dropped_field", where, why)
}

// short bounds a text that a body may have made as long as it liked.
func short(text string) string {
	const most = 300
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// Choices is how many answers are wanted, at least one.
func (r *Request) Choices() int { return max(r.N, 1) }

// Roles of messages.
const (
	RoleSystem    = "system"
	RoleDeveloper = "developer"
	RoleUser      = "user"
	RoleAssistant = "assistant"
	RoleTool      = "tool"
)

// Message is one message of the history, in the order that the harness gave.
type Message struct {
	Role string
	// Content are the parts. Text stands for a single part of text that came, and is
	// sent, as a string.
	Content []Part
	// Null: the content came as null or was absent (an assistant that only called).
	Null bool
	// AsArray: the text came as an array of parts and goes as one, whatever it holds.
	AsArray bool
	// Reasoning is the thinking of an assistant's turn; nil: there is none.
	Reasoning *string
	Calls     []Call
	// CallID is which call a tool message answers.
	CallID string
	Name   string
	// Extra are members that are carried as they came.
	Extra map[string]json.RawMessage
}

// Part is text, or anything else as it goes to the engine.
type Part struct {
	Text string
	// Raw, when set, is the whole part ({"type":"image_url",…}), and Text is not.
	Raw json.RawMessage
}

// TextOf is a content of one text.
func TextOf(text string) []Part { return []Part{{Text: text}} }

// Text joins the parts that are text.
func (m *Message) Text() string {
	if len(m.Content) == 1 {
		return m.Content[0].Text
	}
	var out strings.Builder
	for _, p := range m.Content {
		out.WriteString(p.Text)
	}
	return out.String()
}

// Call is one tool call of an assistant's turn.
type Call struct {
	ID   string
	Name string
	// Arguments is the text that came; where an API carries objects, their bytes.
	Arguments string
}

// Tool is a function that the model may call.
type Tool struct {
	Name        string
	Description string
	// Described: a description was given, if only an empty one.
	Described bool
	// Parameters is a JSON schema; nil: none was given.
	Parameters json.RawMessage
	Strict     *bool
	// Extra are members of the function that are carried as they came.
	Extra map[string]json.RawMessage
}

// ToolChoice is auto, none, required, or one function by name; zero: not said.
type ToolChoice struct {
	Mode string
	Name string
}

// Names gives back what a harness calls a tool, by the name that the engine knows.
type Names map[string]ToolName

// ToolName is a tool in the harness's own terms.
type ToolName struct {
	Name string
	// Namespace is where the tool is nested (Responses); empty: nowhere.
	Namespace string
	// Custom: the tool takes free text, not JSON. The engine knows it as a function
	// with the one string argument "input".
	Custom bool
}

// Of gives the harness's terms for a tool that the engine names.
func (n Names) Of(name string) ToolName {
	if t, ok := n[name]; ok {
		return t
	}
	return ToolName{Name: name}
}
