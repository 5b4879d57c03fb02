package torture

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"

	"github.com/stretchr/testify/require"
)

// gatewayCall is a stored trace.
type gatewayCall struct {
	TraceID  string     `json:"trace_id"`
	Rollout  string     `json:"rollout_id"`
	Seq      int64      `json:"seq"`
	Status   string     `json:"status"`
	Prompt   []int32    `json:"prompt_token_ids"`
	Response []int32    `json:"response_token_ids"`
	Logprobs []*float32 `json:"response_logprobs"`
	Group    string     `json:"choice_group"`
	Index    *int64     `json:"choice_index"`
}

// look starts the server anew and holds what it has against what the engine and the
// harnesses noted.
func (g *gatewayWorld) look() {
	t := g.t
	t.Helper()
	s := start(t, g.dir)
	calls := g.calls(s)
	s.stop(t)
	groups := map[string]int{} // traces of each call
	for _, c := range calls {
		groups[c.Group]++
	}
	intents := g.intents()
	ledger := g.engine.ledger(t)
	g.numbered(calls, intents)
	for id, entries := range ledger {
		require.True(t, calls[id] != nil || intents[id] != nil, "the engine sampled call %s, and nothing is known of it: %+v", id, entries)
	}
	for _, c := range calls {
		require.Nil(t, intents[c.TraceID], "%s is stored, and shows as missing", c.TraceID)
		if ledger[c.Group] == nil { // no engine heard of it
			require.NotEqual(t, "ok", c.Status, "%+v", c)
			require.Empty(t, append(c.Prompt, c.Response...), "%+v", c)
			continue
		}
		require.True(t, c.sampledAs(ledger[c.Group]), "trace %+v is not what the engine noted: %+v", c, ledger[c.Group])
	}
	g.begun, g.ended = 0, 0
	last := map[string]int64{}
	for _, s := range g.seen {
		c := calls[s.Trace]
		if !s.End {
			g.begun++
			require.True(t, c != nil || intents[s.Trace] != nil, "call %s was begun, and nothing is known of it", s.Trace)
			seq := int64(0)
			if c != nil {
				seq = c.Seq
			} else {
				seq = *intents[s.Trace]
			}
			require.Greater(t, seq, last[s.Rollout], "calls of %s are numbered in their order", s.Rollout)
			last[s.Rollout] = seq
			continue
		}
		g.ended++
		require.NotNil(t, c, "the harness saw the end of %s, and its trace is not stored", s.Trace)
		require.Equal(t, "ok", c.Status, "the harness saw the end of %s", s.Trace)
		require.Equal(t, s.Choices, groups[s.Trace], "choices of %s", s.Trace)
	}
	g.noted, g.stored, g.missing = len(ledger), len(calls), map[string]bool{}
	for id := range intents {
		g.missing[id] = true
	}
	verified(t, g.dir)
}

// calls are all stored traces. Those that were read before are not read again: they
// never change.
func (g *gatewayWorld) calls(s *server) map[string]*gatewayCall {
	g.t.Helper()
	all := map[string]*gatewayCall{}
	for _, rollout := range g.rollouts {
		for cursor := ""; ; {
			status, body := g.get(s, "/v1/rollouts/"+rollout+"/traces?limit=1000"+cursor)
			if status == http.StatusNotFound {
				break // none was announced yet
			}
			require.Equal(g.t, http.StatusOK, status, "%s", body)
			var page struct {
				Traces []struct {
					TraceID string `json:"trace_id"`
				}
				Next *string `json:"next_cursor"`
			}
			require.NoError(g.t, json.Unmarshal(body, &page))
			for _, listed := range page.Traces {
				all[listed.TraceID] = g.call(s, listed.TraceID)
			}
			if page.Next == nil {
				break
			}
			cursor = "&cursor=" + *page.Next
		}
	}
	return all
}

func (g *gatewayWorld) call(s *server, id string) *gatewayCall {
	g.t.Helper()
	if g.known[id] == nil {
		c := &gatewayCall{}
		_, body := g.get(s, "/v1/traces/"+id)
		require.NoError(g.t, json.Unmarshal(body, c))
		if c.Group == "" {
			c.Group = id
		}
		g.known[id] = c
	}
	return g.known[id]
}

// numbered demands that no two calls of a rollout have one number.
func (g *gatewayWorld) numbered(calls map[string]*gatewayCall, intents map[string]*int64) {
	g.t.Helper()
	taken := map[string]string{}
	take := func(rollout, id string, seq int64) {
		key := fmt.Sprintf("%s %d", rollout, seq)
		require.Positive(g.t, seq)
		require.Empty(g.t, taken[key], "%s and another call have number %s", id, key)
		taken[key] = id
	}
	for id, c := range calls {
		take(c.Rollout, id, c.Seq)
	}
	for id, seq := range intents {
		require.NotNil(g.t, seq, "%s has no number", id)
		take(g.rolloutOf(id), id, *seq)
	}
}

// intents are the announced calls without a trace, with their numbers. No server runs.
func (g *gatewayWorld) intents() map[string]*int64 {
	g.t.Helper()
	out := map[string]*int64{}
	g.query(`SELECT trace_id, seq FROM intents`, func(rows *sql.Rows) error {
		var id string
		var seq *int64
		err := rows.Scan(&id, &seq)
		out[id] = seq
		return err
	})
	return out
}

func (g *gatewayWorld) rolloutOf(traceID string) (rollout string) {
	g.t.Helper()
	g.query(`SELECT rollout_id FROM intents JOIN rollouts USING (rollout_key) WHERE trace_id = '`+traceID+`'`, func(rows *sql.Rows) error {
		return rows.Scan(&rollout)
	})
	return rollout
}

func (g *gatewayWorld) query(statement string, row func(*sql.Rows) error) {
	g.t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(g.dir, "control.sqlite"))
	require.NoError(g.t, err)
	defer db.Close() //nolint:errcheck // only read
	rows, err := db.QueryContext(g.t.Context(), statement)
	require.NoError(g.t, err)
	defer rows.Close() //nolint:errcheck // only read
	for rows.Next() {
		require.NoError(g.t, row(rows))
	}
	require.NoError(g.t, rows.Err())
}
