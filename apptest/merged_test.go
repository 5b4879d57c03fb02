package apptest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"

	"github.com/stretchr/testify/require"
)

type span struct {
	TraceID   string `json:"trace_id"`
	Start     int    `json:"start"`
	End       int    `json:"end"`
	Trainable bool   `json:"trainable"`
}

type trajectory struct {
	TrajectoryID string   `json:"trajectory_id"`
	TokenIDs     []int32  `json:"token_ids"`
	LossMask     []int32  `json:"loss_mask"`
	Logprobs     logprobs `json:"logprobs"`
	Spans        []span   `json:"spans"`
	Rewritten    bool     `json:"history_rewritten"`
}

type boundary struct {
	TraceID string  `json:"trace_id"`
	Kind    string  `json:"kind"`
	Nearest *string `json:"nearest"`
	Shared  int     `json:"shared"`
}

// merged is the answer of GET /v1/rollouts/{id}/trajectories.
type merged struct {
	RolloutID    string            `json:"rollout_id"`
	Policy       string            `json:"policy"`
	EndOfTurn    *int32            `json:"end_of_turn"`
	Trajectories []trajectory      `json:"trajectories"`
	Dispositions map[string]string `json:"dispositions"`
	Boundaries   []boundary        `json:"boundaries"`
}

func (s *server) merged(rollout, query string) (m merged) {
	s.t.Helper()
	p := path("rollouts", rollout, "trajectories")
	if query != "" {
		p += "?" + query
	}
	// Not by way of a decoder, which would read all of it once more.
	require.NoError(s.t, m.UnmarshalJSON(s.get(p).is(200).body))
	require.Equal(s.t, rollout, m.RolloutID)
	return m
}

// UnmarshalJSON reads the long lists by hand: the tests read millions of ids, and
// package json takes its time under the race detector.
func (m *merged) UnmarshalJSON(raw []byte) error {
	type plain merged
	var long struct {
		*plain
		Trajectories []struct {
			trajectory
			TokenIDs idList `json:"token_ids"`
			LossMask idList `json:"loss_mask"`
		} `json:"trajectories"`
	}
	long.plain = (*plain)(m)
	if err := json.Unmarshal(raw, &long); err != nil {
		return err
	}
	m.Trajectories = make([]trajectory, len(long.Trajectories))
	for i, t := range long.Trajectories {
		m.Trajectories[i] = t.trajectory
		m.Trajectories[i].TokenIDs, m.Trajectories[i].LossMask = t.TokenIDs, t.LossMask
	}
	return nil
}

type idList []int32

// UnmarshalJSON reads a list of ids as the server writes one: digits and commas.
func (l *idList) UnmarshalJSON(raw []byte) error {
	*l = make(idList, 0, bytes.Count(raw, []byte(","))+1)
	inside := bytes.TrimSuffix(bytes.TrimPrefix(raw, []byte("[")), []byte("]"))
	if len(inside) != len(raw)-2 {
		return fmt.Errorf("%.50s is no list", raw)
	}
	if len(inside) == 0 {
		return nil
	}
	for text := range bytes.SplitSeq(inside, []byte(",")) {
		id, err := strconv.ParseInt(string(text), 10, 32)
		if err != nil {
			return err
		}
		*l = append(*l, int32(id))
	}
	return nil
}

// equal is require.Equal for long lists.
func equal[T comparable](t require.TestingT, want, got []T, what ...any) {
	if !slices.Equal(want, got) {
		require.Equal(t, want, got, what...)
	}
}

// polar is the query of polar_compat with an end of turn.
func polar(endOfTurn int32) string {
	return url.Values{"policy": {"polar_compat"}, "end_of_turn": {itoa(int(endOfTurn))}}.Encode()
}

// aligned checks masks and log-probs of a row against the calls that its spans
// name: where a trace sampled, its own log-probs bit for bit, and null
// elsewhere.
func aligned(t require.TestingT, row *trajectory, calls map[string]call) {
	mask, want := make([]int32, len(row.TokenIDs)), make(logprobs, len(row.TokenIDs))
	for _, s := range row.Spans {
		c := calls[s.TraceID]
		require.NotNil(t, c, s.TraceID)
		equal(t, c.ids("response_token_ids"), row.TokenIDs[s.Start:s.End])
		if l, ok := c["response_logprobs"].(logprobs); ok {
			copy(want[s.Start:s.End], l)
		}
		for i := s.Start; i < s.End; i++ {
			if s.Trainable {
				mask[i] = 1
			}
		}
	}
	equal(t, mask, row.LossMask)
	equal(t, want.bits(), row.Logprobs.bits())
}
