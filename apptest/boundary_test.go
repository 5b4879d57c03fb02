package apptest

import (
	"encoding/json"
	"errors"
	"net/url"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// inspected is the answer of GET /v1/traces/{trace_id}/boundary.
type inspected struct {
	TraceID   string `json:"trace_id"`
	RolloutID string `json:"rollout_id"`
	Policy    string
	Shown     *struct{ From, To int }
	Stations  struct {
		Body struct {
			inspectedStation
			Source         string
			LogprobsSource string `json:"logprobs_source"`
			Streamed       bool
		}
		Trace inspectedStation
		Tape  inspectedStation
		Merge struct {
			Present     bool
			Disposition string
			StandsFor   string `json:"stands_for"`
			Start, End  *int
			Boundary    *boundary
		}
		Row struct {
			inspectedStation
			Start, End *int
			Rewritten  bool    `json:"history_rewritten"`
			LossMask   []int32 `json:"loss_mask"`
		}
	}
	Checks []inspectedCheck
	OK     bool
}

type inspectedStation struct {
	Present        bool
	Note           string
	PromptLength   *int `json:"prompt_length"`
	ResponseLength *int `json:"response_length"`
	IDs            []int32
	Logprobs       *logprobs
}

type inspectedCheck struct {
	Name, Kind, Detail, Sequence string
	OK                           bool
	Position                     *int
	Differing                    int
	Positions                    []int
	Expected, Got                any
	Window                       *struct {
		From          int
		Expected, Got []any
	}
}

func (s *server) inspect(trace, query string) (out inspected) {
	s.t.Helper()
	s.get(path("traces", trace, "boundary") + "?" + query).is(200).into(&out)
	require.Equal(s.t, trace, out.TraceID)
	ok := true
	for _, c := range out.Checks {
		require.Equal(s.t, c.OK, c.Kind == "" || c.Name == "row.context" && c.OK, "%+v", c)
		require.NotEmpty(s.t, c.Detail)
		ok = ok && c.OK
	}
	require.Equal(s.t, ok, out.OK)
	return out
}

// bad are the names and kinds of the checks that found a difference.
func (b *inspected) bad() (out []string) {
	for _, c := range b.Checks {
		if !c.OK {
			out = append(out, c.Name+" "+c.Kind)
		}
	}
	return out
}

func (b *inspected) check(t *testing.T, name string) inspectedCheck {
	t.Helper()
	for _, c := range b.Checks {
		if c.Name == name {
			return c
		}
	}
	require.Fail(t, "no such check", "%s among %+v", name, b.Checks)
	return inspectedCheck{}
}

// Every call that the harnesses made agrees with itself at all stations, under
// every policy.
func TestBoundaryOfCaptures(t *testing.T) {
	t.Parallel()
	c, err := captured()
	require.NoError(t, err)
	s := start(t)
	out, stderr, err := command(t, nil, "import", "--quiet", "--server", s.url, capturesDir)
	require.NoError(t, err, "%s%s", out, stderr)
	for turn, policy := range []string{"strict_tree", "per_request", "polar_compat(end_of_turn=151645)"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			trained, rewritten := 0, 0
			for i, one := range c.calls {
				// A check reads the whole rollout: a fifth of the calls takes a fifth
				// of the minutes, and each policy looks at another fifth.
				if i%5 != turn {
					continue
				}
				b := s.inspect(one.text("trace_id"), "tokens=none&policy="+url.QueryEscape(policy))
				require.True(t, b.OK, "%s: %+v", b.TraceID, b.bad())
				require.Equal(t, one.text("rollout_id"), b.RolloutID)
				require.Equal(t, policy, b.Policy)
				require.Nil(t, b.Shown)
				if b.Stations.Row.Present {
					trained++
					require.Equal(t, "trained", b.Stations.Merge.Disposition)
					require.Equal(t, len(one.ids("response_token_ids")), *b.Stations.Row.ResponseLength)
				}
				if context := b.Stations.Row.PromptLength; context != nil && *context != *b.Stations.Trace.PromptLength {
					require.True(t, b.Stations.Row.Rewritten)
					rewritten++
				}
			}
			require.Positive(t, trained)
			require.Equal(t, policy[0] == 'p' && policy[1] == 'o', rewritten > 0)
		})
	}
}

// What the answer shows is what was sent, at all stations alike.
func TestBoundaryShows(t *testing.T) {
	t.Parallel()
	s := start(t)
	first := plain("r", "t-1", 1, ids(1, 2, 3), ids(4, 5, 9))
	second := plain("r", "t-2", 2, ids(1, 2, 3, 4, 5, 9, 6), ids(7, 8, 9)).with("response_logprobs", json.RawMessage(`[-0.1, "NaN", null]`))
	s.traces(first, second, first.with("trace_id", "t-3", "seq", int64(3))).all("stored", 3)
	b := s.inspect("t-2", "tokens=full")
	require.True(t, b.OK, b.bad())
	require.Equal(t, []int{0, 3}, []int{b.Shown.From, b.Shown.To})
	want := logprobs{}
	require.NoError(t, want.UnmarshalJSON([]byte(`[-0.1, "NaN", null]`)))
	for _, at := range []inspectedStation{b.Stations.Trace, b.Stations.Row.inspectedStation} {
		require.Equal(t, ids(7, 8, 9), at.IDs)
		require.Equal(t, want.bits(), at.Logprobs.bits())
		require.Equal(t, 7, *at.PromptLength)
	}
	require.Equal(t, ids(7, 8, 9), b.Stations.Tape.IDs)
	require.Equal(t, ids(1, 1, 1), b.Stations.Row.LossMask)
	require.Equal(t, []int{7, 10}, []int{*b.Stations.Row.Start, *b.Stations.Row.End})
	require.Equal(t, boundary{Kind: "extends", Nearest: ptr("t-1"), Shared: 6}, *b.Stations.Merge.Boundary)
	require.False(t, b.Stations.Body.Present)

	b = s.inspect("t-2", "window=1")
	require.Equal(t, ids(7, 8, 9), b.Stations.Trace.IDs)
	b = s.inspect("t-2", "window=0")
	require.Equal(t, ids(7), b.Stations.Tape.IDs)

	b = s.inspect("t-3", "")
	require.True(t, b.OK, b.bad())
	require.Equal(t, []string{"duplicate", "t-1"}, []string{b.Stations.Merge.Disposition, b.Stations.Merge.StandsFor})
	require.False(t, b.Stations.Row.Present)
	require.Contains(t, b.Stations.Row.Note, "duplicate")
}

// Calls that are not trained, or came without ids, are answered, too.
func TestBoundaryOfUntrained(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.traces(plain("u", "no ids", 1, nil, nil).with("response", object{"content": "x"}), plain("u", "no prompt", 2, nil, ids(1, 2)),
		plain("u", "no answer", 3, ids(1, 2), nil), plain("u", "empty", 4, ids(1), ids()), plain("u", "incomplete", 5, ids(1), ids(2)).
			with("ids_incomplete", true, "usage", object{"completion_tokens": 5}),
		plain("u", "retried", 6, ids(7), ids(8)), plain("u", "again", 7, ids(7), ids(9)), plain("u", "after", 8, ids(7, 9, 1), ids(3))).all("stored", 8)
	for id, disposition := range map[string]string{"no ids": "untokenized", "no prompt": "untokenized", "no answer": "untokenized",
		"empty": "empty_response", "incomplete": "untokenized", "retried": "abandoned_retry", "again": "trained"} {
		b := s.inspect(id, "tokens=full")
		require.True(t, b.OK, "%s: %v", id, b.bad())
		require.Equal(t, disposition, b.Stations.Merge.Disposition, id)
		require.Equal(t, disposition == "trained", b.Stations.Row.Present, id)
	}
	require.Contains(t, s.inspect("no ids", "").Stations.Body.Note, "carries no ids")
}

func TestBoundaryParameters(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.traces(plain("r", "t/1", 1, ids(1), ids(2))).all("stored", 1)
	require.True(t, ptr(s.inspect("t/1", "")).OK)
	s.get("/v1/traces/unheard/boundary").problem(404, "not_found")
	for _, q := range []string{"policy=x", "window=-1", "window=1001", "tokens=some", "colour=red", "end_of_turn=1"} {
		s.get("/v1/traces/t%2F1/boundary?"+q).problem(400, "invalid_parameter")
	}
}

// The command tells by its status whether everything agrees.
func TestTraceCommand(t *testing.T) {
	t.Parallel()
	s := start(t)
	body := json.RawMessage(`{"choices":[{"token_ids":[4,5,6]}],"usage":{"prompt_tokens":3,"completion_tokens":3}}`)
	s.traces(plain("r", "good", 1, ids(1, 2, 3), ids(4, 5, 6)), plain("r", "bad", 2, ids(1, 2, 3), ids(4, 7, 6)).with("response", body, "response_logprobs", nil)).
		all("stored", 2)
	status := func(err error) int {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return exit.ExitCode()
		}
		require.NoError(t, err)
		return 0
	}
	out, _, err := command(t, nil, "trace", "good", "--server", s.url)
	require.Equal(t, 0, status(err), out)
	require.Contains(t, out, "checks agree")
	out, stderr, err := command(t, nil, "trace", "bad", "--server", s.url)
	require.Equal(t, 2, status(err), out)
	require.Contains(t, stderr, "differs")
	require.Regexp(t, `\n +\* +1 +\| +5 +7 +7 `, out)
	require.Regexp(t, `\n +0 +\| +4 +4 +4 `, out)
	require.Contains(t, out, "DIFFERS  body.ids")
	out, _, err = command(t, nil, "trace", "bad", "--server", s.url, "--format", "json", "--window", "0")
	require.Equal(t, 2, status(err), out)
	var b inspected
	require.NoError(t, json.Unmarshal([]byte(out), &b))
	require.Equal(t, []string{"body.ids ids_differ"}, b.bad())
	_, stderr, err = command(t, nil, "trace", "unheard", "--server", s.url)
	require.Equal(t, 1, status(err))
	require.Contains(t, stderr, "not_found")
}
