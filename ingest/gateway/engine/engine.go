package engine

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"time"

	"icecore/ingest/gateway/turn"
)

// Kinds of engines.
const (
	KindVLLM   = "vllm"
	KindSGLang = "sglang"
	KindOpenAI = "openai"
)

// Config is one engine.
type Config struct {
	// Name is shown in metadata and metrics; default: host:port of the URL.
	Name string
	// URL is the engine's base, with or without /v1.
	URL string
	// Kind is vllm, sglang or openai; empty: found out by asking.
	Kind string
	// Key is icecore's credential at the engine. It is in no log and no error.
	Key string
	// Models are the served names that the engine is used for; empty: what it lists.
	Models []string
	// MaxConcurrent bounds the calls open at once; 0: unbounded.
	MaxConcurrent int
	// VersionHeader names the header of answers that tells the policy version; may be
	// empty.
	VersionHeader string
}

// Options are those of a pool.
type Options struct {
	Engines []Config
	// HealthEvery is the time between two looks at an engine; default 5 s.
	HealthEvery time.Duration
	// HealthTimeout bounds one look; default 3 s.
	HealthTimeout time.Duration
	// ConnectTimeout bounds the making of a connection; default 10 s.
	ConnectTimeout time.Duration
	// SilenceTimeout ends a call whose engine sends nothing for so long; 0: never.
	SilenceTimeout time.Duration
	// MaxAnswerBytes bounds one answer of an engine; default 1 GiB.
	MaxAnswerBytes int64
	Log            *slog.Logger
	// Client sends the requests; nil: one of our own. It must not follow redirects.
	Client *http.Client
}

// The defaults of Options.
const (
	defaultHealthEvery    = 5 * time.Second
	defaultHealthTimeout  = 3 * time.Second
	defaultConnectTimeout = 10 * time.Second
	defaultMaxAnswerBytes = 1 << 30
)

// Model is a name that engines serve.
type Model struct {
	Name    string
	Engines []string
	// MaxLen is the longest sequence in tokens, prompt and answer; 0: not known.
	MaxLen int64
}

// Status is how one engine does.
type Status struct {
	Name string `json:"name"`
	// URL has no credential.
	URL     string `json:"url"`
	Kind    string `json:"kind,omitempty"`
	Version string `json:"version,omitempty"`
	Healthy bool   `json:"healthy"`
	// Usable: it is healthy, or gets calls where no healthy engine serves their model.
	Usable bool `json:"usable"`
	// Why it is not healthy.
	Why string `json:"why,omitempty"`
	// Downs is how often it went down since the gateway started.
	Downs  int64    `json:"downs"`
	Models []string `json:"models"`
	Open   int64    `json:"open"`
	// Since is when Healthy became what it is.
	Since time.Time `json:"since"`
}

// Call is one call of an engine.
type Call struct {
	Request *turn.Request
	// Model is the engine's name for it.
	Model string
	// TraceIDs has one entry per choice. The first is sent as the request's id.
	TraceIDs []string
	// Params are members that the model's options add to the engine's body. They win
	// over Request.Sampling; what capture needs wins over both.
	Params map[string]json.RawMessage
	// Reasoning is the member that carries an assistant's thinking in the history;
	// empty: by kind.
	Reasoning turn.ReasoningField
	// PromptIDs, when set, are the prompt, and the messages are not.
	PromptIDs []int32
	// ReasoningParser and ToolParser name parsers of package parser, for endpoints that
	// take ids and parse nothing.
	ReasoningParser, ToolParser string
	// KeepRaw keeps the request as it was sent, and the engine's answer as it came.
	KeepRaw bool
}

// Piece is what came next of an answer.
type Piece struct {
	Deltas []turn.Delta
	Ends   []turn.End
	// PromptTokens is set once, when the engine's count is first known.
	PromptTokens *int64
}
