package settings

import (
	"encoding/json"
	"time"

	"icecore/ingest/gateway/continuity/template"
	"icecore/ingest/gateway/turn"
)

// Settings is the file, with defaults filled in.
type Settings struct {
	// Engines has at least one.
	Engines []Engine
	// Models are in the order of the file. Empty: every model that the engines serve
	// may be used, with the defaults of Model.
	Models []*Model
	// DefaultModel is used for names that match nothing; empty: the only model there
	// is, otherwise such a name is unknown.
	DefaultModel string
	// FirstServed: with neither Models nor DefaultModel, a name that matches nothing
	// gets the first model that is served. It is so where there is no file.
	FirstServed bool

	Callers  string // CallersAny, CallersDeclared, CallersKey
	Finished string // FinishedAccept, FinishedRefuse
	Bodies   string // BodiesHarness, BodiesEngine, BodiesNone
	Limits   Limits
	Retries  Retries
}

// Who may call.
const (
	// CallersAny is anybody, for any rollout. The default.
	CallersAny = "any"
	// CallersDeclared: the rollout must be known already.
	CallersDeclared = "declared"
	// CallersKey: a key that was minted for the rollout is needed.
	CallersKey = "key"
)

// What a call for a finished rollout does.
const (
	// FinishedAccept reopens the rollout. The default.
	FinishedAccept = "accept"
	// FinishedRefuse answers 409.
	FinishedRefuse = "refuse"
)

// Whose bodies are kept with a trace.
const (
	// BodiesHarness keeps what the harness sent and got. The default.
	BodiesHarness = "harness"
	// BodiesEngine keeps what the engine got and sent.
	BodiesEngine = "engine"
	// BodiesNone keeps none.
	BodiesNone = "none"
)

// Engine is an inference server.
type Engine struct {
	URL string
	// Kind is vllm, sglang or openai; empty: found out by asking.
	Kind string
	// Name is shown in metadata and metrics; empty: host and port.
	Name string
	// Key is the credential, read from where key_env or key_file said. It is not
	// to be logged.
	Key string `json:"-"`
	// Models are the names that it is used for; empty: what it lists.
	Models []string
	// MaxConcurrent bounds its calls at once; 0: no bound.
	MaxConcurrent int
	// VersionHeader is the header of its answers that tells the policy version.
	VersionHeader string
}

// Members are parts of a JSON object, by name.
type Members = map[string]json.RawMessage

// Model is one model of the engines, and how it is used.
type Model struct {
	// Name is the engines' own.
	Name string
	// Aliases are patterns of names that harnesses use: * is any text, ? any one
	// character.
	Aliases []string
	// Continuity is ContinuityOff (default) or ContinuityExactText.
	Continuity string
	// MaxTokens bounds what harnesses ask for; 0: no bound.
	MaxTokens int64
	// DefaultMaxTokens is asked for when the harness says nothing; 0: nothing is.
	DefaultMaxTokens int64
	// Sampling overrides what harnesses send, under the names that engines use.
	Sampling Members
	// Params are added to the body that goes to the engine.
	Params Members
	// Effort has the Params of each reasoning effort; an effort without an entry is
	// dropped.
	Effort map[string]Members
	// ReasoningField is where the history carries thinking; empty: by engine.
	ReasoningField turn.ReasoningField
	// ReasoningParser and ToolParser are used where ids go in and the engine does not
	// parse what it writes.
	ReasoningParser string
	ToolParser      string
	// ChatTemplate renders where the engine cannot say what it makes of messages; nil:
	// nothing does.
	ChatTemplate *template.Template
	// ChatTemplateTools is the form of tools that the engine hands to its template;
	// empty: found out by its prompts.
	ChatTemplateTools template.Form
	// ChatTemplateParams are further variables of the template, as bos_token.
	ChatTemplateParams Members
	// LogprobsMode is kept with the sampling parameters; empty: not said.
	LogprobsMode string
	// System is SystemInPlace (default) or SystemFold.
	System string
	// Developer is the role that messages of role developer get: turn.RoleSystem
	// (default) or turn.RoleDeveloper.
	Developer string
	// StripBillingLine takes Claude Code's billing line out of the system prompt.
	StripBillingLine bool
	// LengthAsCompleted tells Responses that an answer cut by its length is complete.
	LengthAsCompleted bool
}

// Continuity of a model.
const (
	ContinuityOff       = "off"
	ContinuityExactText = "exact_text"
)

// What becomes of system messages amid the history.
const (
	SystemInPlace = "in_place"
	// SystemFold puts them into the user's turn beside them.
	SystemFold = "fold"
)

// Limits of the gateway. A time or number of 0 is none, unless it says otherwise.
type Limits struct {
	// MaxRequest bounds a harness's request, inflated, in bytes; never 0. Default 64 MiB.
	MaxRequest int64
	// MaxAnswer bounds an engine's answer in bytes; never 0. Default 256 MiB.
	MaxAnswer int64
	// MaxOpen bounds calls at once; never 0. Default 4096.
	MaxOpen int
	// MaxOpenPerRollout bounds those of one rollout. Default 0.
	MaxOpenPerRollout int
	// MaxHeld bounds the memory that the requests of open calls hold, in bytes. Default
	// 0: an eighth of the machine's or its cgroup's, at least 512 MiB.
	MaxHeld int64
	// HeldTokens bounds the sequences held for continuity, in ids; never 0. Default 64,000,000.
	HeldTokens int64
	// EngineConnect is how long a connection to an engine may take; never 0. Default 10 s.
	EngineConnect time.Duration
	// FirstByte is how long an engine may take to begin its answer. Default 0.
	FirstByte time.Duration
	// Silence is how long an engine may send nothing once it has begun. Default 0.
	Silence time.Duration
	// Call is how long a whole call may take. Default 0.
	Call time.Duration
	// Heartbeat is after how much silence a waiting harness gets a sign of life; never
	// 0. Default 15 s.
	Heartbeat time.Duration
	// Patience is how long a harness may send, or take, nothing. Default 5 min.
	Patience time.Duration
	// BeginTimeout is how long a call waits for its announcement to be stored; then it is
	// refused. 0: as long as its harness does. Default 10 s.
	BeginTimeout time.Duration
	// CaptureWait is how long the end of an answer waits for its trace to be stored;
	// then the answer is broken off. Default 0: as long as it takes.
	CaptureWait time.Duration
	// HealthEvery is how often engines are asked whether they live; never 0. Default 5 s.
	HealthEvery time.Duration
	// HealthTimeout is how long they may take to say so; never 0. Default 3 s.
	HealthTimeout time.Duration
}

// Retries says what to do with calls that a harness sends again.
type Retries struct {
	// Marked is MarkedCancel (default) or MarkedRun.
	Marked string
}

// What becomes of a call that still runs when the harness sends it again, marked as
// a retry.
const (
	MarkedCancel = "cancel"
	MarkedRun    = "run"
)

// Default gives what holds where a file says nothing. It has no engine.
func Default() *Settings {
	return &Settings{
		Callers: CallersAny, Finished: FinishedAccept, Bodies: BodiesHarness,
		Limits: Limits{
			MaxRequest: 64 << 20, MaxAnswer: 256 << 20, MaxOpen: 4096, HeldTokens: 64_000_000,
			EngineConnect: 10 * time.Second, Heartbeat: 15 * time.Second, Patience: 5 * time.Minute, BeginTimeout: 10 * time.Second,
			HealthEvery: 5 * time.Second, HealthTimeout: 3 * time.Second,
		},
		Retries: Retries{Marked: MarkedCancel},
	}
}

// DefaultModel gives a model of that name with the defaults.
func DefaultModel(name string) *Model {
	return &Model{Name: name, Continuity: ContinuityOff, System: SystemInPlace, Developer: turn.RoleSystem}
}
