package query

import (
	"crypto/sha256"
	"encoding/hex"

	"icecore/trace"
)

// boundaryAnswer follows one sampled response through every station.
type boundaryAnswer struct {
	TraceID    string             `json:"trace_id"`
	RolloutID  string             `json:"rollout_id"`
	Policy     string             `json:"policy"`
	Attributes *boundaryAttribute `json:"attributes"`
	// Shown is the range of response positions of which the stations list
	// tokens; nil: they list none.
	Shown    *shownRange      `json:"shown"`
	Stations boundaryStations `json:"stations"`
	Checks   []check          `json:"checks"`
	OK       bool             `json:"ok"`
}

type boundaryAttribute struct {
	Seq           *int64 `json:"seq"`
	Harness       string `json:"harness"`
	Model         string `json:"model"`
	API           string `json:"api"`
	Kind          string `json:"kind"`
	Status        string `json:"status"`
	FinishReason  string `json:"finish_reason"`
	PolicyVersion *int64 `json:"policy_version"`
	IDsIncomplete bool   `json:"ids_incomplete"`
	ChoiceIndex   *int64 `json:"choice_index"`
}

type shownRange struct {
	From int `json:"from"`
	To   int `json:"to"`
}

type boundaryStations struct {
	Body  bodyStation  `json:"body"`
	Trace traceStation `json:"trace"`
	Tape  tapeStation  `json:"tape"`
	Merge mergeStation `json:"merge"`
	Row   rowStation   `json:"row"`
}

// station is what all stations tell.
type station struct {
	Present bool `json:"present"`
	// Note says why something is not there.
	Note string `json:"note,omitempty"`
}

// carried is the tokens that a station holds. Lengths count tokens and are null
// where it holds none; hashes are SHA-256 over little-endian int32.
type carried struct {
	PromptLength   *int    `json:"prompt_length"`
	ResponseLength *int    `json:"response_length"`
	LogprobsLength *int    `json:"logprobs_length"`
	PromptHash     *string `json:"prompt_hash"`
	ResponseHash   *string `json:"response_hash"`
	// IDs and Logprobs are of the shown positions of the response.
	IDs      []tokenID `json:"ids"`
	Logprobs []logprob `json:"logprobs"`

	prompt, response []int32
	logprobs         *trace.Logprobs
}

type bodyStation struct {
	station
	// Source and LogprobsSource are the places that the shown tokens come from.
	Source         string `json:"source,omitempty"`
	LogprobsSource string `json:"logprobs_source,omitempty"`
	Streamed       bool   `json:"streamed"`
	Events         int    `json:"events"`
	// FinishReason is the engine's own word.
	FinishReason string      `json:"finish_reason,omitempty"`
	Places       []bodyPlace `json:"places"`
	Usage        *bodyUsage  `json:"usage"`
	carried
}

// bodyPlace is a place of a body that carries something; lengths are null where
// it does not carry that.
type bodyPlace struct {
	Sequence string `json:"sequence"`
	Source   string `json:"source"`
	IDs      *int   `json:"ids"`
	Logprobs *int   `json:"logprobs"`
}

type bodyUsage struct {
	Source   string `json:"source"`
	Prompt   *int64 `json:"prompt_tokens"`
	Response *int64 `json:"response_tokens"`
}

type traceStation struct {
	station
	ContentHash string `json:"content_hash,omitempty"`
	carried
}

type tapeStation struct {
	station
	TapeKey int64       `json:"tape_key"`
	Pieces  []tapePiece `json:"pieces"`
	carried
}

// tapePiece says that positions [From, To) of prompt and response lie on a tape.
type tapePiece struct {
	TapeKey int64 `json:"tape_key"`
	From    int   `json:"from"`
	To      int   `json:"to"`
}

type mergeStation struct {
	station
	Disposition string `json:"disposition,omitempty"`
	// StandsFor is the call that stands for a duplicate.
	StandsFor    string         `json:"stands_for,omitempty"`
	TrajectoryID string         `json:"trajectory_id,omitempty"`
	Row          *int           `json:"row"`
	Start        *int           `json:"start"`
	End          *int           `json:"end"`
	Boundary     *mergeBoundary `json:"boundary"`
}

type mergeBoundary struct {
	Kind    string  `json:"kind"`
	Nearest *string `json:"nearest"`
	Shared  int     `json:"shared"`
}

type rowStation struct {
	station
	TrajectoryID string `json:"trajectory_id,omitempty"`
	Length       *int   `json:"length"`
	Start        *int   `json:"start"`
	End          *int   `json:"end"`
	Trainable    bool   `json:"trainable"`
	Rewritten    bool   `json:"history_rewritten"`
	carried
	LossMask []int8 `json:"loss_mask"`

	mask []int8
}

// hold notes what a station holds; nil slices are not known.
func (c *carried) hold(prompt, response []int32, logprobs *trace.Logprobs) {
	c.prompt, c.response, c.logprobs = prompt, response, logprobs
	c.PromptLength, c.PromptHash = lengthOf(prompt), hashOf(prompt)
	c.ResponseLength, c.ResponseHash = lengthOf(response), hashOf(response)
	if logprobs != nil {
		n := logprobs.Len()
		c.LogprobsLength = &n
	}
}

func lengthOf(ids []int32) *int {
	if ids == nil {
		return nil
	}
	n := len(ids)
	return &n
}

func hashOf(ids []int32) *string {
	if ids == nil {
		return nil
	}
	sum := sha256.Sum256(trace.Bytes(ids))
	text := hex.EncodeToString(sum[:])
	return &text
}

// show lists tokens [r.From, r.To).
func (c *carried) show(r *shownRange) {
	c.IDs, c.Logprobs = idsBetween(c.response, r.From, r.To), between(c.logprobs, r.From, r.To)
}

// longest is the length of the longest response of all stations.
func (s *boundaryStations) longest() (n int) {
	for _, c := range []*carried{&s.Body.carried, &s.Trace.carried, &s.Tape.carried, &s.Row.carried} {
		n = max(n, len(c.response))
		if c.logprobs != nil {
			n = max(n, c.logprobs.Len())
		}
	}
	return n
}

func (s *boundaryStations) show(r *shownRange) {
	for _, c := range []*carried{&s.Body.carried, &s.Trace.carried, &s.Tape.carried, &s.Row.carried} {
		c.show(r)
	}
	if s.Row.mask != nil {
		s.Row.LossMask = s.Row.mask[min(r.From, len(s.Row.mask)):min(r.To, len(s.Row.mask))]
	}
}
