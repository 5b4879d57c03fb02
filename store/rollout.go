package store

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"icecore/trace"
)

// Rollout is the state of one rollout. Times are microseconds since the Unix
// epoch, UTC. Empty strings and nil pointers: not said.
type Rollout struct {
	Key            int64
	ID             string
	TaskID         string
	GroupID        string
	GroupSize      *int64
	SampleIndex    *int64
	Split          string
	Harness        string
	HarnessVersion string
	Model          string
	PolicyVersion  *int64
	Metadata       []byte
	// Status is empty until the rollout is finished.
	Status     string
	Error      string
	FinishedAt *int64
	// Reopened: a trace came after the finish.
	Reopened bool
	// Traces counts the stored traces, OpenIntents the announced calls whose
	// trace has not come.
	Traces      int64
	LastBatch   int64
	OpenIntents int64
	// LastSeq is the highest seq that any of them has, 0 when none has one.
	LastSeq   int64
	CreatedAt int64
	UpdatedAt int64

	put        trace.RolloutPatch
	fromTraces map[string]carried
	dirty      bool
	published  bool
	// savedGroup is the group that the control database has it in.
	savedGroup string
}

// Complete says that the rollout is finished and no announced call is missing.
func (r *Rollout) Complete() bool { return r.Status != "" && r.OpenIntents == 0 }

// carried is an attribute that a trace brought. Of several traces the first in
// the order of the merge law counts, so that the order of arrival does not.
type carried struct {
	Text    string `json:"v,omitempty"`
	Int     *int64 `json:"n,omitempty"`
	Seq     *int64 `json:"seq,omitempty"`
	TraceID string `json:"id"`
}

func (c carried) before(o carried) bool {
	switch {
	case c.Seq != nil && o.Seq != nil && *c.Seq != *o.Seq:
		return *c.Seq < *o.Seq
	case (c.Seq == nil) != (o.Seq == nil):
		return c.Seq != nil
	}
	return cmp.Compare(c.TraceID, o.TraceID) < 0
}

const rolloutColumns = `rollout_key, rollout_id, put, from_traces, coalesce(task_id,''), coalesce(group_id,''), group_size,
	sample_index, coalesce(split,''), coalesce(harness,''), coalesce(harness_version,''), coalesce(model,''), policy_version,
	metadata, coalesce(status,''), coalesce(error,''), finished_at, reopened, traces, last_batch, open_intents, last_seq, created_at, updated_at`

type scanner interface{ Scan(dest ...any) error }

func scanRollout(s scanner) (*Rollout, error) {
	var r Rollout
	var put, carried []byte
	err := s.Scan(&r.Key, &r.ID, &put, &carried, &r.TaskID, &r.GroupID, &r.GroupSize, &r.SampleIndex, &r.Split,
		&r.Harness, &r.HarnessVersion, &r.Model, &r.PolicyVersion, &r.Metadata, &r.Status, &r.Error, &r.FinishedAt,
		&r.Reopened, &r.Traces, &r.LastBatch, &r.OpenIntents, &r.LastSeq, &r.CreatedAt, &r.UpdatedAt)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read rollout: %w", err)
	}
	if err := errors.Join(json.Unmarshal(put, &r.put), json.Unmarshal(carried, &r.fromTraces)); err != nil {
		return nil, fmt.Errorf("read rollout %s: %w", r.ID, err)
	}
	return &r, nil
}

// carry takes over what a trace says of its rollout.
func (r *Rollout) carry(t *trace.Trace) {
	set := func(name, text string, n *int64) {
		if text == "" && n == nil {
			return
		}
		c := carried{Text: text, Int: n, Seq: t.Seq, TraceID: t.TraceID}
		if old, ok := r.fromTraces[name]; ok && !c.before(old) {
			return
		}
		if r.fromTraces == nil {
			r.fromTraces = map[string]carried{}
		}
		r.fromTraces[name] = c
	}
	a := &t.Attributes
	set("task_id", a.TaskID, nil)
	set("group_id", a.GroupID, nil)
	set("sample_index", "", a.SampleIndex)
	set("harness", a.Harness, nil)
	set("harness_version", a.HarnessVersion, nil)
	set("model", a.Model, nil)
	r.settle()
}

// patch takes over what was set on the rollout itself.
func (r *Rollout) patch(p *trace.RolloutPatch) {
	str := func(to **string, from *string) {
		if from != nil {
			*to = from
		}
	}
	num := func(to **int64, from *int64) {
		if from != nil {
			*to = from
		}
	}
	str(&r.put.TaskID, p.TaskID)
	str(&r.put.GroupID, p.GroupID)
	num(&r.put.GroupSize, p.GroupSize)
	num(&r.put.SampleIndex, p.SampleIndex)
	str(&r.put.Split, p.Split)
	str(&r.put.Harness, p.Harness)
	str(&r.put.HarnessVersion, p.HarnessVersion)
	str(&r.put.Model, p.Model)
	num(&r.put.PolicyVersion, p.PolicyVersion)
	if p.Metadata != nil {
		r.put.Metadata = p.Metadata
	}
	r.settle()
}

// settle computes what counts: the rollout's own attributes before those that
// its traces carry.
func (r *Rollout) settle() {
	str := func(to *string, own *string, name string) {
		v := r.fromTraces[name].Text
		if own != nil {
			v = *own
		}
		if *to != v {
			*to, r.published = v, false
		}
	}
	num := func(to **int64, own *int64, name string) {
		v := own
		if v == nil {
			v = r.fromTraces[name].Int
		}
		if (*to == nil) != (v == nil) || v != nil && **to != *v {
			*to, r.published = v, false
		}
	}
	str(&r.TaskID, r.put.TaskID, "task_id")
	str(&r.GroupID, r.put.GroupID, "group_id")
	num(&r.GroupSize, r.put.GroupSize, "")
	num(&r.SampleIndex, r.put.SampleIndex, "sample_index")
	str(&r.Split, r.put.Split, "")
	str(&r.Harness, r.put.Harness, "harness")
	str(&r.HarnessVersion, r.put.HarnessVersion, "harness_version")
	str(&r.Model, r.put.Model, "model")
	num(&r.PolicyVersion, r.put.PolicyVersion, "")
	if !bytes.Equal(r.Metadata, r.put.Metadata) {
		r.Metadata, r.published = r.put.Metadata, false
	}
}

// row appends the state to the warehouse's table.
func (r *Rollout) row(to *rows, batch int64) {
	to.i64(r.Key)
	to.str(r.ID)
	to.optStr(r.TaskID)
	to.optStr(r.GroupID)
	to.optI64(r.GroupSize)
	to.optI64(r.SampleIndex)
	to.optStr(r.Split)
	to.optStr(r.Harness)
	to.optStr(r.HarnessVersion)
	to.optStr(r.Model)
	to.optI64(r.PolicyVersion)
	to.optJSON(r.Metadata)
	to.optStr(r.Status)
	to.optStr(r.Error)
	to.optTime(r.FinishedAt)
	to.flag(r.Reopened)
	to.i64(r.OpenIntents)
	to.time(r.CreatedAt)
	to.time(r.UpdatedAt)
	to.i64(batch)
	to.end()
}

func (r *Rollout) save(ctx context.Context, st *sql.Stmt) error {
	put, err := json.Marshal(r.put)
	if err != nil {
		return fmt.Errorf("save rollout %s: %w", r.ID, err)
	}
	brought, err := json.Marshal(r.fromTraces)
	if err != nil {
		return fmt.Errorf("save rollout %s: %w", r.ID, err)
	}
	_, err = st.ExecContext(ctx, string(put), string(brought), null(r.TaskID), null(r.GroupID), r.GroupSize, r.SampleIndex,
		null(r.Split), null(r.Harness), null(r.HarnessVersion), null(r.Model), r.PolicyVersion, null(string(r.Metadata)),
		null(r.Status), null(r.Error), r.FinishedAt, r.Reopened, r.Traces, r.LastBatch, r.OpenIntents, r.LastSeq, r.UpdatedAt, r.Key)
	if err != nil {
		return fmt.Errorf("save rollout %s: %w", r.ID, err)
	}
	return nil
}

func null(s string) any {
	if s == "" {
		return nil
	}
	return s
}
