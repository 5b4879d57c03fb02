package trajectory

import (
	"context"
	"fmt"

	"icecore/merge"
	"icecore/store"
	"icecore/trace"
)

// Source is where the calls and their log-probs are read.
type Source interface {
	LoadCalls(ctx context.Context, keys []int64, through int64) ([]*store.RolloutCalls, error)
	LoadLogprobs(ctx context.Context, rs []*store.RolloutCalls) (map[int64]*trace.Logprobs, error)
}

// Plan is which rows to send, in their order. The rows of a rollout stand one
// behind another, those of a group too.
type Plan struct {
	Policy merge.Policy
	// Kinds restricts every row, see Row.Restrict; nil: rows go whole.
	Kinds []trace.Kind
	Wants []Want
	// Rollouts holds by rollout_key those that Wants name.
	Rollouts map[int64]*Rollout
}

// Want is one row to send.
type Want struct {
	// Rollout is a rollout_key.
	Rollout int64
	// Through is the batch up to which the row's merge saw traces, so that the same
	// row can be made again whatever comes meanwhile. The same for all rows of a
	// rollout.
	Through int64
	// Row is the row's place among those of the merge, ascending in a rollout.
	Row int
	// Length counts the ids of the row as it is delivered. A row that comes out
	// with another is an error.
	Length int
	// InRollout is the row's place among the rows delivered of its rollout.
	InRollout int
	// Delivered is what a lease says of the row; nil in an export.
	Delivered *Delivered
}

// Rollout is what delivery says of a row's rollout.
type Rollout struct {
	store.Rollout
	// Rows and Trained count the rows and trained tokens that are delivered of it.
	Rows    int
	Trained int64
	// Reward is its outcome; nil: never given.
	Reward *float64
}

// Sink takes the rows of a stream in one format.
type Sink interface {
	// Row adds one row; it may keep it until Flush.
	Row(r *Row, w *Want, k *Rollout) error
	// Flush sends what was added.
	Flush() error
	// End closes the stream so that readers see a whole one.
	End() error
	// Poison leaves bytes that no reader takes for an end.
	Poison()
}

// Bounds of one batch of rows: what is held, and how far a list's 32-bit
// offsets may go. The first is smaller, so that it is out soon.
const (
	batchRows   = 1024
	firstTokens = 1 << 17
	batchTokens = 1 << 20
)

// Send makes the rows of a plan and hands them to out, which it ends. What comes
// next is read meanwhile. After an error the caller poisons out.
func Send(ctx context.Context, from Source, p *Plan, out Sink) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sent, rows, tokens, most := 0, 0, 0, firstTokens
	for l := range loads(ctx, from, p) {
		if l.err != nil {
			return l.err
		}
		for _, r := range l.rows {
			if rows > 0 && (rows >= batchRows || tokens+r.length > most) {
				most = batchTokens
				if err := out.Flush(); err != nil {
					return err
				}
				rows, tokens = 0, 0
			}
			w := &p.Wants[sent]
			if err := out.Row(r, w, p.Rollouts[w.Rollout]); err != nil {
				return err
			}
			rows++
			tokens += r.length
			sent++
		}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("send trajectories: %w", err)
	}
	if sent != len(p.Wants) {
		return fmt.Errorf("send trajectories: %d rows made of %d promised", sent, len(p.Wants))
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return out.End()
}
