package apptest

import (
	"fmt"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

type rolloutPage struct {
	Rollouts   []rollout
	Total      int
	NextCursor *string `json:"next_cursor"`
}

func (s *server) rolloutPage(q url.Values) (p rolloutPage) {
	s.t.Helper()
	s.get("/v1/rollouts?" + q.Encode()).is(200).into(&p)
	return p
}

func TestRolloutFilters(t *testing.T) {
	t.Parallel()
	s := start(t)
	for i := range 24 {
		id := fmt.Sprintf("r%02d", i)
		s.traces(plain(id, id+"-t", 1, ids(1), ids(2)).with("harness", fmt.Sprintf("h%d", i%2), "model", fmt.Sprintf("m%d", i%3))).is(200)
		s.put("/v1/rollouts/"+id, object{"group_id": fmt.Sprintf("g%d", i%4), "task_id": fmt.Sprintf("t%d", i%6), "split": []string{"train", "eval"}[i%2]}).is(200)
		if i%3 > 0 {
			s.post("/v1/rollouts/"+id+"/finish", object{"status": []string{"", "succeeded", "failed"}[i%3]}).is(200)
		}
	}
	for query, want := range map[string]int{
		"": 24, "harness=h0": 12, "harness=h0&harness=h1": 24, "model=m1": 8, "group_id=g3": 6, "task_id=t5": 4, "split=train": 12,
		"status=failed": 8, "status=failed&status=succeeded": 16, "complete=true": 16, "complete=false": 8, "rollout_id=r01&rollout_id=r02": 2,
		"harness=h0&split=eval": 0, "harness=h0&model=m0": 4, "harness=none": 0,
	} {
		var p rolloutPage
		s.get("/v1/rollouts?" + query).is(200).into(&p)
		require.Equal(t, want, p.Total, query)
		require.Len(t, p.Rollouts, want, query)
		require.Nil(t, p.NextCursor)
		require.Len(t, s.export(query).rows, want, query)
	}
	for _, query := range []string{"harnes=h0", "limit=0", "limit=1001", "limit=x", "cursor=x", "cursor=-1", "complete=maybe"} {
		s.get("/v1/rollouts?"+query).problem(400, "invalid_parameter")
	}
	s.get("/v1/rollouts/r00?x=1").problem(400, "invalid_parameter")
	s.get("/v1/rollouts/r00/traces?x=1").problem(400, "invalid_parameter")
	s.get("/v1/traces/r00-t?include=all").problem(400, "invalid_parameter")
}

// Pages are disjoint and miss nothing that was there when paging began, while
// rollouts are being added.
func TestPagesWhileWriting(t *testing.T) {
	t.Parallel()
	s := start(t)
	const before = 60
	add := func(i int) {
		id := fmt.Sprintf("p%03d", i)
		s.traces(plain(id, id, 1, ids(int32(i)), ids(2))).is(200)
	}
	for i := range before {
		add(i)
	}
	done := make(chan struct{})
	stop := make(chan struct{})
	go func() {
		defer close(done)
		for i := before; i < 400; i++ {
			select {
			case <-stop:
				return
			default:
				add(i)
			}
		}
	}()
	for _, limit := range []int{1, 7, 1000} {
		seen := map[string]int{}
		q := url.Values{"limit": {itoa(limit)}}
		last := 0
		for {
			p := s.rolloutPage(q)
			require.LessOrEqual(t, len(p.Rollouts), limit)
			require.GreaterOrEqual(t, p.Total, last)
			last = p.Total
			for _, r := range p.Rollouts {
				seen[r.RolloutID]++
			}
			if p.NextCursor == nil {
				break
			}
			require.Len(t, p.Rollouts, limit)
			q.Set("cursor", *p.NextCursor)
		}
		for i := range before {
			require.Equal(t, 1, seen[fmt.Sprintf("p%03d", i)])
		}
		for id, n := range seen {
			require.Equal(t, 1, n, id)
		}
	}
	close(stop)
	<-done
}

func TestTracePages(t *testing.T) {
	t.Parallel()
	s := start(t)
	const n = 23
	for i := range n {
		s.traces(plain("tp", fmt.Sprintf("%02d", i), int64(n-i), ids(1), ids(int32(i))).with("request", rawText("x"))).is(200)
	}
	for limit := 1; limit <= n+1; limit++ {
		var got []string
		q := url.Values{"limit": {itoa(limit)}}
		for {
			var p struct {
				RolloutID  string `json:"rollout_id"`
				Traces     []object
				Total      int
				NextCursor *string `json:"next_cursor"`
			}
			s.get("/v1/rollouts/tp/traces?" + q.Encode()).is(200).into(&p)
			require.Equal(t, n, p.Total)
			for _, row := range p.Traces {
				got = append(got, row["trace_id"].(string))
				stored := row["stored"].(map[string]any)
				require.Equal(t, true, stored["has_request"])
				require.NotContains(t, row, "prompt_token_ids")
				require.Equal(t, "1", fmt.Sprint(stored["prompt_tokens"]))
			}
			if p.NextCursor == nil {
				break
			}
			q.Set("cursor", *p.NextCursor)
		}
		require.Len(t, got, n)
		for i, id := range got { // in the order of arrival
			require.Equal(t, fmt.Sprintf("%02d", i), id)
		}
	}
}
