package gateway

import (
	"context"
	"errors"

	"icecore/trace"
)

// Capture keeps what calls leave behind. Its methods are called by many goroutines.
type Capture interface {
	// Begin makes intents durable and sets the Seq of each: counted up per rollout, in
	// the order in which they come. An error that wraps ErrNotNow leaves none behind; any
	// other may go away, and one that does not wrap ErrRefused may have left them.
	Begin(ctx context.Context, intents []*trace.Intent) error
	// Withdraw takes intents back whose calls no engine was asked for; those that there are
	// not are no error.
	Withdraw(ctx context.Context, intents []*trace.Intent) error
	// Put stores traces. They are durable when it returns nil. An error that wraps
	// ErrRefused is about the traces themselves; any other may go away. Traces that are
	// stored already, with the same content, are no error.
	Put(ctx context.Context, traces []*trace.Trace) error
}

// ErrRefused says that a trace cannot be stored as it is, however often it is tried.
var ErrRefused = errors.New("the trace was refused")

// ErrNotNow says that the store takes nothing for longer than a call can wait: its disk is
// full, or it closes.
var ErrNotNow = errors.New("the store takes nothing now")

// Keys finds the rollout that a key was minted for.
type Keys interface {
	// Find gives ErrUnknownKey for keys that were never minted, are revoked or expired.
	Find(ctx context.Context, key string) (rolloutID string, err error)
}

// ErrUnknownKey says that a key opens nothing.
var ErrUnknownKey = errors.New("the key is not known")

// Versions tells the policy version that a trainer announced last.
type Versions interface {
	// At gives nil when nothing was announced for the model.
	At(model string) *int64
}

// Rollouts tells what is known of a rollout before a call of it.
type Rollouts interface {
	Known(ctx context.Context, id string) (known bool, harness string, finished bool, err error)
}
