package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"

	"icecore/trace"
)

// LearnerPost is what a learner said of one trajectory, and where that lies.
type LearnerPost struct {
	*trace.LearnerLogprobs
	Row *FoundTrajectory
	// Trained are the spans of Row that are kept. Logprobs reaches to the end of
	// the last of them at least.
	Trained []TrainedSpan
}

// PutLearnerLogprobs keeps what learners said of the trained tokens of
// trajectories. The same as what counts for a trajectory and version is a
// duplicate; anything else counts from now on in its place.
func (s *Store) PutLearnerLogprobs(ctx context.Context, posts []*LearnerPost) ([]Outcome, int64, error) {
	hashes := make([][]byte, len(posts))
	size := 0
	for i, p := range posts {
		hashes[i] = p.contentHash()
		size += 5*p.Logprobs.Len() + itemBytes
	}
	out := make([]Outcome, len(posts))
	batch, err := s.committer.submit(ctx, size, func(ctx context.Context, k *commit) error {
		for i, p := range posts {
			o, err := k.putLearnerPost(ctx, p, hashes[i])
			if err != nil {
				return fmt.Errorf("store the learner's log-probs of %s: %w", p.TrajectoryID, err)
			}
			out[i] = o
		}
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	return out, batch, nil
}

func (k *commit) putLearnerPost(ctx context.Context, p *LearnerPost, content []byte) (Outcome, error) {
	var have []byte
	err := k.c.st.findLearnerPost.QueryRowContext(ctx, p.TrajectoryID, p.PolicyVersion).Scan(&have)
	switch {
	case err == nil && bytes.Equal(have, content):
		return Outcome{Status: Duplicate}, nil
	case err != nil && !errors.Is(err, sql.ErrNoRows):
		return Outcome{}, fmt.Errorf("look up post: %w", err)
	}
	key := k.c.next.post
	k.c.next.post++
	trained, known := 0, 0
	var versions VersionRange
	for _, s := range p.Trained {
		known += k.learnerRows(p, key, s)
		trained += s.End - s.Start
		if s.Versions.Min != nil {
			versions.include(*s.Versions.Min)
			versions.include(*s.Versions.Max)
		}
	}
	row := k.to(tableLearnerPosts)
	row.i64(key)
	row.i64(p.Row.RolloutKey)
	row.str(p.Row.RolloutID)
	row.str(p.TrajectoryID)
	row.str(p.Row.Policy)
	row.i64(p.PolicyVersion)
	row.blob(content)
	row.i32(p.Logprobs.Len())
	row.i32(trained)
	row.i32(known)
	row.optI64(versions.Min)
	row.optI64(versions.Max)
	row.time(k.now)
	row.i64(k.batch)
	row.end()
	if _, err := k.c.st.putLearnerPost.ExecContext(ctx, p.TrajectoryID, p.PolicyVersion, content, key, k.batch); err != nil {
		return Outcome{}, fmt.Errorf("index post: %w", err)
	}
	return Outcome{Status: Stored}, nil
}

// learnerRows gathers one span's log-probs, cut where those of its trace are cut,
// and counts the known ones.
func (k *commit) learnerRows(p *LearnerPost, post int64, s TrainedSpan) (known int) {
	l := p.Logprobs
	for at := s.Start; at < s.End; at += maxList {
		to := min(at+maxList, s.End)
		row := k.to(tableLearnerChunks)
		row.i64(post)
		row.i64(p.Row.RolloutKey)
		row.i64(s.TraceKey)
		row.i32(s.Start)
		row.i32(at - s.Start)
		if l.Known == nil {
			row.floats(l.Values[at:to], nil)
			known += to - at
		} else {
			row.floats(l.Values[at:to], l.Known[at:to])
			for _, ok := range l.Known[at:to] {
				if ok {
					known++
				}
			}
		}
		row.i64(k.batch)
		row.end()
	}
	return known
}

// contentHash is over what is kept: the spans, and the log-probs in them.
func (p *LearnerPost) contentHash() []byte {
	d := &digest{h: sha256.New()}
	d.bytes(1, binary.LittleEndian.AppendUint64(nil, uint64(p.Logprobs.Len())), true)
	for _, s := range p.Trained {
		d.bytes(2, binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(s.TraceKey)), uint64(s.Start)), true)
		part := trace.Logprobs{Values: p.Logprobs.Values[s.Start:s.End]}
		if p.Logprobs.Known != nil {
			part.Known = p.Logprobs.Known[s.Start:s.End]
		}
		d.logprobs(3, &part)
	}
	return d.h.Sum(nil)
}
