package main

import "encoding/json"

// boundary is the answer of GET /v1/traces/{trace_id}/boundary, as far as it is
// printed.
type boundary struct {
	TraceID    string         `json:"trace_id"`
	RolloutID  string         `json:"rollout_id"`
	Policy     string         `json:"policy"`
	Attributes map[string]any `json:"attributes"`
	Stations   struct {
		Body  boundaryStation `json:"body"`
		Trace boundaryStation `json:"trace"`
		Tape  boundaryStation `json:"tape"`
		Merge boundaryStation `json:"merge"`
		Row   boundaryStation `json:"row"`
	} `json:"stations"`
	Checks []boundaryCheck `json:"checks"`
	OK     bool            `json:"ok"`
}

type boundaryStation struct {
	Present        bool    `json:"present"`
	Note           string  `json:"note"`
	Source         string  `json:"source"`
	LogprobsSource string  `json:"logprobs_source"`
	TapeKey        int64   `json:"tape_key"`
	Pieces         []any   `json:"pieces"`
	Disposition    string  `json:"disposition"`
	StandsFor      string  `json:"stands_for"`
	TrajectoryID   string  `json:"trajectory_id"`
	Row            *int    `json:"row"`
	Start          *int    `json:"start"`
	End            *int    `json:"end"`
	Length         *int    `json:"length"`
	PromptLength   *int    `json:"prompt_length"`
	ResponseLength *int    `json:"response_length"`
	LogprobsLength *int    `json:"logprobs_length"`
	PromptHash     *string `json:"prompt_hash"`
	ResponseHash   *string `json:"response_hash"`
	Boundary       *struct {
		Kind    string  `json:"kind"`
		Nearest *string `json:"nearest"`
		Shared  int     `json:"shared"`
	} `json:"boundary"`
	IDs      []json.Number     `json:"ids"`
	Logprobs []json.RawMessage `json:"logprobs"`
	LossMask []json.Number     `json:"loss_mask"`
}

type boundaryCheck struct {
	Name      string `json:"name"`
	OK        bool   `json:"ok"`
	Kind      string `json:"kind"`
	Detail    string `json:"detail"`
	Sequence  string `json:"sequence"`
	Positions []int  `json:"positions"`
	Window    *struct {
		From     int               `json:"from"`
		Expected []json.RawMessage `json:"expected"`
		Got      []json.RawMessage `json:"got"`
	} `json:"window"`
}
