package store

import (
	"encoding/json"
	"fmt"
	"time"
)

// rolloutJSON is a Rollout as the HTTP contract shows it.
type rolloutJSON struct {
	RolloutID      string          `json:"rollout_id"`
	TaskID         *string         `json:"task_id"`
	GroupID        *string         `json:"group_id"`
	GroupSize      *int64          `json:"group_size"`
	SampleIndex    *int64          `json:"sample_index"`
	Split          *string         `json:"split"`
	Harness        *string         `json:"harness"`
	HarnessVersion *string         `json:"harness_version"`
	Model          *string         `json:"model"`
	PolicyVersion  *int64          `json:"policy_version"`
	Metadata       json.RawMessage `json:"metadata"`
	Status         *string         `json:"status"`
	Error          *string         `json:"error"`
	FinishedAt     *string         `json:"finished_at"`
	Complete       bool            `json:"complete"`
	Reopened       bool            `json:"reopened"`
	Traces         int64           `json:"traces"`
	OpenIntents    int64           `json:"open_intents"`
	CreatedAt      string          `json:"created_at"`
	UpdatedAt      string          `json:"updated_at"`
}

// MarshalJSON gives the rollout as the HTTP contract shows it; what was not
// said is null.
func (r *Rollout) MarshalJSON() ([]byte, error) {
	said := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	j := rolloutJSON{RolloutID: r.ID, TaskID: said(r.TaskID), GroupID: said(r.GroupID), GroupSize: r.GroupSize,
		SampleIndex: r.SampleIndex, Split: said(r.Split), Harness: said(r.Harness), HarnessVersion: said(r.HarnessVersion),
		Model: said(r.Model), PolicyVersion: r.PolicyVersion, Metadata: r.Metadata, Status: said(r.Status),
		Error: said(r.Error), Complete: r.Complete(), Reopened: r.Reopened, Traces: r.Traces, OpenIntents: r.OpenIntents,
		CreatedAt: FormatTime(r.CreatedAt), UpdatedAt: FormatTime(r.UpdatedAt)}
	if r.FinishedAt != nil {
		j.FinishedAt = said(FormatTime(*r.FinishedAt))
	}
	if len(j.Metadata) == 0 {
		j.Metadata = json.RawMessage("null")
	}
	out, err := json.Marshal(j)
	if err != nil {
		return nil, fmt.Errorf("encode rollout %s: %w", r.ID, err)
	}
	return out, nil
}

// FormatTime writes microseconds since the Unix epoch as RFC 3339, UTC.
func FormatTime(micros int64) string {
	return time.UnixMicro(micros).UTC().Format("2006-01-02T15:04:05.000000Z07:00")
}
