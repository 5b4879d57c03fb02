package gateway

import (
	"bytes"
	"encoding/json"
	"slices"

	"icecore/ingest/gateway/engine"
	"icecore/ingest/gateway/turn"
)

// metadata is what a trace says of its way through the gateway, under "gateway". No
// member of it is a secret: headers are those of keptHeaders.
type metadata struct {
	Engine         string            `json:"engine,omitempty"`
	EngineKind     string            `json:"engine_kind,omitempty"`
	Attempts       []attempt         `json:"engine_attempts,omitempty"`
	RequestedModel string            `json:"requested_model"`
	Stream         bool              `json:"stream"`
	Flags          []string          `json:"flags,omitempty"`
	Rewrites       []turn.Rewrite    `json:"rewrites,omitempty"`
	Anchors        map[int]string    `json:"anchors,omitempty"`
	Session        string            `json:"session,omitempty"`
	Thread         string            `json:"agent_thread,omitempty"`
	Parent         string            `json:"parent_thread,omitempty"`
	RetryOf        string            `json:"retry_of,omitempty"`
	RetryGroup     string            `json:"retry_group,omitempty"`
	Attempt        int               `json:"attempt"`
	RequestHash    string            `json:"request_hash"`
	Continuity     *drift            `json:"continuity,omitempty"`
	Versions       map[string]any    `json:"versions,omitempty"`
	StopReason     string            `json:"stop_reason,omitempty"`
	Raw            map[string]any    `json:"raw,omitempty"`
	FaultCode      string            `json:"fault,omitempty"`
	FaultStatus    int               `json:"fault_status,omitempty"`
	Headers        map[string]string `json:"headers,omitempty"`
}

func (c *call) metadata(o *outcome, s *engine.Sampled, v versionOf, flags []string) ([]byte, error) {
	m := metadata{
		Engine: o.engine, EngineKind: o.kind, RequestedModel: clip(c.requested, 256), Stream: c.request.Stream,
		Rewrites: c.request.Rewrites, Anchors: c.request.Anchors,
		Session: c.agent.session, Thread: c.agent.thread, Parent: c.agent.parent,
		RetryOf: c.link.of, RetryGroup: c.link.group, Attempt: c.link.attempt, RequestHash: c.hash,
		Versions: v.metadata, StopReason: clip(s.StopReason, 256), Raw: s.Raw, Headers: c.headers,
	}
	if len(o.attempts) > 1 {
		m.Attempts = o.attempts
	}
	if o.drift.Label != "" {
		m.Continuity = &o.drift
	}
	if o.fault != nil {
		m.FaultCode, m.FaultStatus = o.fault.Code, o.fault.Status
	}
	m.Flags = slices.Concat(s.Flags, o.flags, flags)
	slices.Sort(m.Flags)
	m.Flags = slices.Compact(m.Flags)
	out, err := sortedJSON(map[string]metadata{"gateway": m})
	if err != nil && m.Raw != nil {
		// Of all members only this one is not ours to shape.
		m.Raw, m.Flags = nil, append(m.Flags, "raw_left_out")
		out, err = sortedJSON(map[string]metadata{"gateway": m})
	}
	return out, err
}

// flagged is metadata with one more flag.
func flagged(raw []byte, flag string) []byte {
	var whole map[string]map[string]any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if d.Decode(&whole) != nil || whole["gateway"] == nil {
		return raw
	}
	flags, _ := whole["gateway"]["flags"].([]any)
	whole["gateway"]["flags"] = append(flags, flag)
	out, err := sortedJSON(whole)
	if err != nil {
		return raw
	}
	return out
}
