package trace

// RolloutPatch is what PUT /v1/rollouts/{rollout_id} sets. A nil field leaves
// the rollout's value as it is.
type RolloutPatch struct {
	TaskID         *string
	GroupID        *string
	GroupSize      *int64
	SampleIndex    *int64
	Split          *string
	Harness        *string
	HarnessVersion *string
	Model          *string
	PolicyVersion  *int64
	// Metadata is canonical JSON.
	Metadata []byte
}

// Splits lists the values of a rollout's split.
var Splits = []string{"train", "eval"}

// FinishStatuses lists the values of Finish.Status.
var FinishStatuses = []string{"succeeded", "failed", "timeout", "error", "cancelled"}

// Finish ends a rollout.
type Finish struct {
	Status string
	Error  string
}

// Intent announces a trace before the engine is called. An intent that no trace
// follows makes its rollout incomplete.
type Intent struct {
	TraceID   string
	RolloutID string
	Seq       *int64
	// StartedAt is microseconds since the Unix epoch, UTC.
	StartedAt *int64
}

// Reward is a number given to a rollout, or to one of its traces. The newest
// revision of (rollout, trace, name, source) counts.
type Reward struct {
	RewardID  string
	RolloutID string
	// TraceID is empty when the whole rollout is rewarded.
	TraceID string
	// Name is "outcome" by default, the one that learners train on.
	Name  string
	Value float64
	// Source says who rewarded; empty when not said.
	Source   string
	Revision int64
	// At is microseconds since the Unix epoch, UTC; nil when not said.
	At *int64
	// Metadata is canonical JSON.
	Metadata []byte
}

// NewKey asks for a key with which a harness calls the gateway.
type NewKey struct {
	// Label is for whoever lists keys; empty when not said.
	Label string
	// ExpiresInSeconds is how long the key counts; nil: until it is revoked.
	ExpiresInSeconds *int64
}

// MaxKeySeconds bounds NewKey.ExpiresInSeconds: ten years.
const MaxKeySeconds = 10 * 366 * 24 * 60 * 60

// VersionNotice says which policy version is served from now on.
type VersionNotice struct {
	PolicyVersion *int64
	// Model is the engines' name; empty: all models.
	Model string
	// At is since when, in microseconds since the Unix epoch, UTC; nil: since now.
	At *int64
}

// DefaultReward is the reward name that learners train on.
const DefaultReward = "outcome"

// KeyPrefix begins every key that is minted for a rollout, and no provider's: other
// credentials are the harness's own business, neither checked nor kept.
const KeyPrefix = "ick_"
