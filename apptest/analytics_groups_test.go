package apptest

import (
	"encoding/json"
	"fmt"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

type groupPage struct {
	Groups     []json.RawMessage
	Total      int
	NextCursor *string `json:"next_cursor"`
}

func (s *server) groups(query string) (p groupPage) {
	s.t.Helper()
	s.get("/v1/groups?" + query).is(200).into(&p)
	return p
}

func TestGroups(t *testing.T) {
	t.Parallel()
	s := start(t)
	require.Equal(t, groupPage{Groups: []json.RawMessage{}}, s.groups(""))
	s.playSmall()
	s.put(path("rollouts", "lonely"), object{"harness": "alpha"}).is(200)
	p := s.groups("")
	require.Equal(t, 3, p.Total)
	require.Nil(t, p.NextCursor)
	holds(t, `{"group_id": "g1", "task_id": "t1", "split": "train", "harnesses": ["alpha"], "models": ["m"], "group_size": 3, "rollouts": 3,
	 "finished": 3, "not_succeeded": 2, "rewarded": 3, "complete": true, "zero_advantage": false,
	 "reward_mean": 0.3333333333333333, "reward_std": 0.5773502691896257, "reward_min": 0, "reward_max": 1}`, p.Groups[0])
	// No declared size: all that are known count. The rewards differ in their last bit.
	holds(t, `{"group_id": "g2", "group_size": null, "rollouts": 2, "complete": true, "zero_advantage": true}`, p.Groups[1])
	// Two of four are known, one misses a call and the other a reward.
	holds(t, `{"group_id": "g3", "group_size": 4, "rollouts": 2, "finished": 2, "rewarded": 1, "complete": false, "zero_advantage": false,
	 "reward_mean": 1, "reward_std": null}`, p.Groups[2])
	for query, want := range map[string]int{
		"harness=beta": 1, "harness=alpha": 2, "harness=beta&harness=alpha": 3, "model=m": 3, "model=x": 0, "complete=true": 2, "complete=false": 1,
		"zero_advantage=true": 1, "zero_advantage=false": 2, "task_id=t1": 2, "split=eval": 1, "group_id=g1&group_id=g3": 2, "group_id=g1&split=eval": 0,
	} {
		require.Equal(t, want, s.groups(query).Total, query)
	}
	for _, query := range []string{"status=failed", "limit=0", "limit=1001", "cursor=x", "cursor=MS4xLg%3D", "complete=1", "zero_advantage=x", "split=dev"} {
		s.get("/v1/groups?"+query).problem(400, "invalid_parameter")
	}
	// A reward that comes late is in the next answer.
	s.post("/v1/rewards", object{"reward_id": "b2", "rollout_id": "b2", "value": 0}).is(200)
	holds(t, `{"rewarded": 2, "reward_mean": 0.5}`, s.groups("group_id=g3").Groups[0])
}

// Pages are disjoint and miss nothing, also while groups are added.
func TestGroupPages(t *testing.T) {
	t.Parallel()
	s := start(t)
	add := func(i int) {
		s.put(path("rollouts", fmt.Sprintf("r%d", i)), object{"group_id": fmt.Sprintf("g/ü %d", i%7), "harness": "h"}).is(200)
	}
	for i := range 14 {
		add(i)
	}
	var seen []string
	query, cursor := "limit=2&harness=h", ""
	for pages := 0; ; pages++ {
		p := s.groups(query)
		for _, raw := range p.Groups {
			var g struct {
				GroupID  string `json:"group_id"`
				Rollouts int
			}
			require.NoError(t, json.Unmarshal(raw, &g))
			require.Equal(t, 2, g.Rollouts)
			seen = append(seen, g.GroupID)
		}
		require.Equal(t, 7+pages, p.Total)
		if p.NextCursor == nil {
			break
		}
		cursor = *p.NextCursor
		query = "limit=2&harness=h&cursor=" + url.QueryEscape(cursor)
		// It opens behind all pages, so one more page is to come for every second.
		if s.put(path("rollouts", "new"+itoa(pages)), object{"group_id": "new" + itoa(pages), "harness": "h"}).is(200); pages == 2 {
			break
		}
	}
	require.Equal(t, []string{"g/ü 0", "g/ü 1", "g/ü 2", "g/ü 3", "g/ü 4", "g/ü 5"}, seen)
	rest := s.groups("limit=1000&cursor=" + url.QueryEscape(cursor))
	require.Len(t, rest.Groups, 4) // g/ü 6, new0, new1, new2
	require.Equal(t, 10, rest.Total)
}
