package apptest

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

type conformanceCase struct {
	Name   string
	Traces []json.RawMessage
	Expect struct {
		StrictTree []expectedRow `json:"strict_tree"`
		PerRequest []expectedRow `json:"per_request"`
		Polar      struct {
			EndOfTurn    int32             `json:"end_of_turn"`
			Trajectories []expectedRow     `json:"trajectories"`
			Dispositions map[string]string `json:"dispositions"`
		} `json:"polar_compat"`
		Dispositions map[string]string `json:"dispositions"`
		Boundaries   []boundary        `json:"boundaries"`
	}
}

// The worked cases of the merge law, by way of HTTP: in order, shuffled one by
// one, and asked for before all of it has come.
func TestConformance(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(root + "/testdata/conformance/merge.json")
	require.NoError(t, err)
	var file struct{ Cases []conformanceCase }
	require.NoError(t, json.Unmarshal(raw, &file))
	require.Len(t, file.Cases, 44)
	s := start(t)
	rng := rand.New(rand.NewPCG(1, 9))
	for _, c := range file.Cases {
		for _, way := range []string{"in order", "one by one"} {
			// The law compares trace ids, so a common beginning changes nothing.
			prefix := c.Name + "/" + way + "/"
			rollout := prefix + "r"
			var calls []call
			for _, line := range c.Traces {
				one, err := parseCall(line)
				require.NoError(t, err)
				calls = append(calls, one.with("rollout_id", rollout, "trace_id", prefix+one.text("trace_id")))
			}
			if way == "in order" {
				s.traces(calls...).is(200).all("stored", len(calls))
			} else {
				rng.Shuffle(len(calls), func(i, j int) { calls[i], calls[j] = calls[j], calls[i] })
				for i, one := range calls {
					s.traces(one).is(200).all("stored", 1)
					if i%2 == 0 {
						s.merged(rollout, "policy=per_request")
					}
				}
			}
			c.check(s, rollout, prefix)
		}
	}
}

func (c *conformanceCase) check(s *server, rollout, prefix string) {
	e := &c.Expect
	named := func(in map[string]string) map[string]string {
		out := map[string]string{}
		for id, v := range in {
			out[prefix+id] = v
		}
		return out
	}
	boundaries := []boundary{}
	for _, b := range e.Boundaries {
		b.TraceID = prefix + b.TraceID
		if b.Nearest != nil {
			b.Nearest = ptr(prefix + *b.Nearest)
		}
		boundaries = append(boundaries, b)
	}
	for _, want := range []struct {
		query        string
		rows         []expectedRow
		dispositions map[string]string
	}{
		{"", e.StrictTree, e.Dispositions},
		{"policy=strict_tree", e.StrictTree, e.Dispositions},
		{"policy=per_request", e.PerRequest, e.Dispositions},
		{polar(e.Polar.EndOfTurn), e.Polar.Trajectories, e.Polar.Dispositions},
	} {
		got := s.merged(rollout, want.query)
		require.Equal(s.t, named(want.dispositions), got.Dispositions, "%s %s", c.Name, want.query)
		require.Equal(s.t, boundaries, got.Boundaries, "%s %s", c.Name, want.query)
		require.Len(s.t, got.Trajectories, len(want.rows), "%s %s", c.Name, want.query)
		for i, w := range want.rows {
			for j := range w.Spans {
				w.Spans[j].TraceID = prefix + w.Spans[j].TraceID
			}
			require.Equal(s.t, w.TokenIDs, got.Trajectories[i].TokenIDs)
			require.Equal(s.t, w.Spans, got.Trajectories[i].Spans, "%s %s", c.Name, want.query)
			require.Equal(s.t, w.Rewritten, got.Trajectories[i].Rewritten)
			for j := range w.Spans {
				w.Spans[j].TraceID = w.Spans[j].TraceID[len(prefix):]
			}
		}
	}
}
