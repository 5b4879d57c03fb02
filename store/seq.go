package store

import (
	"context"
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"icecore/trace"
)

// BeginCalls announces calls as PutIntents does, and numbers them: each gets the seq
// after the highest that any trace or announced call of its rollout has. Calls that
// are announced again keep the number that they have. Seq is set when it returns
// without error; what an intent holds there before does not matter.
func (s *Store) BeginCalls(ctx context.Context, intents []*trace.Intent) ([]Outcome, int64, error) {
	// Set after the commit: a number from one that failed must not be seen.
	seqs := make([]*int64, len(intents))
	at := 0
	out, batch, err := each(ctx, s, intents, func(ctx context.Context, k *commit, i *trace.Intent) (o Outcome, err error) {
		o, seqs[at], err = k.beginCall(ctx, i)
		at++
		return o, err
	})
	if err != nil {
		return nil, 0, err
	}
	for i, intent := range intents {
		intent.Seq = seqs[i]
	}
	return out, batch, nil
}

func (k *commit) beginCall(ctx context.Context, i *trace.Intent) (Outcome, *int64, error) {
	key := traceHash(i.TraceID)
	stored, err := k.findTrace(ctx, key)
	if err != nil {
		return Outcome{}, nil, err
	}
	if stored != nil {
		return refuse(&trace.Error{Code: trace.CodeConflict, Field: "trace_id", Message: "is stored already; a new call needs a new trace_id"}), nil, nil
	}
	in, had, err := k.announced(ctx, key)
	if err != nil {
		return Outcome{}, nil, err
	}
	if in != nil {
		if in.ID != i.RolloutID || had == nil {
			return refuse(&trace.Error{Code: trace.CodeConflict, Field: "trace_id",
				Message: "is announced already with another rollout_id, or without a seq"}), nil, nil
		}
		return Outcome{Status: Duplicate}, had, nil
	}
	r, err := k.needRollout(ctx, i.RolloutID)
	if err != nil {
		return Outcome{}, nil, err
	}
	if r.LastSeq == math.MaxInt64 {
		return refuse(&trace.Error{Code: trace.CodeConflict, Field: "rollout_id",
			Message: "a call of this rollout has the highest seq that there is; go on in another rollout"}), nil, nil
	}
	seq := r.LastSeq + 1
	return Outcome{Status: Stored}, &seq, k.addIntent(ctx, r, key, i.TraceID, &seq, i.StartedAt)
}

// number takes over a seq that a trace or an intent of the rollout has.
func (r *Rollout) number(seq *int64) {
	if seq != nil {
		r.LastSeq = max(r.LastSeq, *seq)
	}
}

// floorSeqs gives rollouts of before seqs were counted the highest that their traces
// have. It is one transaction, and done once.
func (s *Store) floorSeqs(ctx context.Context) error {
	done, err := metaOn(ctx, s.control.write, seqsFloored)
	if err != nil || done != 0 {
		return err
	}
	tx, err := s.control.write.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("number calls: %w", err)
	}
	defer tx.Rollback() //nolint:errcheck // after a commit this does nothing
	b := &rebuilder{s: s, tx: tx}
	if err := b.seqs(ctx); err != nil {
		return fmt.Errorf("number calls: %w", err)
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("number calls: %w", err)
	}
	return nil
}

// seqsFloored is 1 when last_seq of all rollouts counts every trace.
const seqsFloored = "seqs_floored"

// seqs moves last_seq of each rollout up to what its traces and intents have. It never
// moves it down: a number may have been given to a call whose trace is lost.
func (b *rebuilder) seqs(ctx context.Context) error {
	highest, err := b.highestSeqs(ctx)
	if err != nil {
		return err
	}
	raise, err := b.tx.PrepareContext(ctx, `UPDATE rollouts SET last_seq = max(last_seq, ?) WHERE rollout_key = ?`)
	if err != nil {
		return fmt.Errorf("prepare control statement: %w", err)
	}
	defer raise.Close() //nolint:errcheck // it belongs to the transaction
	for rollout, seq := range highest {
		if _, err := raise.ExecContext(ctx, seq, rollout); err != nil {
			return fmt.Errorf("write control database: %w", err)
		}
	}
	if err := b.exec(ctx, `UPDATE rollouts SET last_seq = max(last_seq, i.seq) FROM (SELECT rollout_key, max(seq) AS seq
		FROM intents WHERE seq IS NOT NULL GROUP BY rollout_key) i WHERE i.rollout_key = rollouts.rollout_key`); err != nil {
		return err
	}
	return b.exec(ctx, setMetaText, seqsFloored, 1)
}

// highestSeqs gives the highest seq of each rollout's traces, by the rollout's key.
func (b *rebuilder) highestSeqs(ctx context.Context) (map[int64]int64, error) {
	highest := map[int64]int64{}
	err := b.s.wh().Query(ctx, eachRow(func(c *columnsOf) error {
		rollout := c.i64()
		highest[rollout] = c.i64()
		return nil
	}), `SELECT rollout_key, max(seq) FROM ice.traces WHERE seq IS NOT NULL GROUP BY rollout_key`)
	if err != nil {
		return nil, err
	}
	return highest, b.journalledTraces(ctx, func(rec arrow.RecordBatch) error {
		seqs := rec.Column(rec.Schema().FieldIndices("seq")[0]).(*array.Int64)
		for row := range int(rec.NumRows()) {
			if rollout := cell(rec, row, "rollout_key"); seqs.IsValid(row) {
				highest[rollout] = max(highest[rollout], seqs.Value(row))
			}
		}
		return nil
	})
}
