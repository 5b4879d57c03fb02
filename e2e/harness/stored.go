package main

import (
	"context"
	"encoding/json"
	"fmt"
)

// stored is a trace as the server gives it.
type stored struct {
	TraceID  string     `json:"trace_id"`
	Kind     string     `json:"kind"`
	Status   string     `json:"status"`
	Error    any        `json:"error"`
	Prompt   []int32    `json:"prompt_token_ids"`
	IDs      []int32    `json:"response_token_ids"`
	Logprobs []*float32 `json:"response_logprobs"`
	// Incomplete: the engine counted more ids than it told.
	Incomplete bool `json:"ids_incomplete"`
	Metadata   struct {
		Gateway struct {
			Engine     string   `json:"engine"`
			Flags      []string `json:"flags"`
			Rewrites   []any    `json:"rewrites"`
			RetryOf    string   `json:"retry_of"`
			Agent      string   `json:"agent_thread"`
			Continuity struct {
				Label   string `json:"label"`
				Spliced bool   `json:"spliced"`
				Why     string `json:"why"`
			} `json:"continuity"`
		} `json:"gateway"`
	} `json:"metadata"`
}

// merged is what strict_tree makes of a rollout.
type merged struct {
	Trajectories []struct {
		IDs      []int32    `json:"token_ids"`
		Mask     []int      `json:"loss_mask"`
		Logprobs []*float32 `json:"logprobs"`
		Spans    []struct {
			TraceID   string `json:"trace_id"`
			Start     int    `json:"start"`
			End       int    `json:"end"`
			Trainable bool   `json:"trainable"`
		} `json:"spans"`
	} `json:"trajectories"`
	Dispositions map[string]string `json:"dispositions"`
	Boundaries   []struct {
		TraceID string `json:"trace_id"`
		Kind    string `json:"kind"`
	} `json:"boundaries"`
}

func (s *server) traces(ctx context.Context, rollout string) ([]*stored, error) {
	var page struct {
		Next   *string          `json:"next_cursor"`
		Traces []map[string]any `json:"traces"`
	}
	if err := s.call(ctx, "GET", "/v1/rollouts/"+rollout+"/traces?limit=1000", nil, &page); err != nil {
		return nil, err
	}
	if page.Next != nil {
		return nil, fmt.Errorf("read traces of %s: more than 1000", rollout)
	}
	var out []*stored
	for _, t := range page.Traces {
		var one json.RawMessage
		if err := s.call(ctx, "GET", fmt.Sprintf("/v1/traces/%s", t["trace_id"]), nil, &one); err != nil {
			return nil, err
		}
		trace := &stored{}
		if err := json.Unmarshal(one, trace); err != nil {
			return nil, fmt.Errorf("read trace %s: %w", t["trace_id"], err)
		}
		out = append(out, trace)
	}
	return out, nil
}
