package apptest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAcknowledgeLease(t *testing.T) {
	t.Parallel()
	s := start(t, leaseHTTP...)
	s.perform(group("a", 1, 0)...)
	s.perform(group("b", 1, 0)...)
	l := s.lease("c", object{"key": "k", "max_groups": 1})
	state := s.get(path("leases", l.id)).lease()
	require.Equal(t, leaseState{LeaseID: l.id, Consumer: "c", Key: "k", State: "open", Shards: 1, Acknowledged: []int{}, ExpiresAt: state.ExpiresAt, Groups: 1, Rows: 2}, state)
	require.Equal(t, l.header.Get("Icecore-Expires-At"), state.ExpiresAt)
	require.Equal(t, []leaseState{state}, s.consumer("c").OpenLeases)
	var status object
	s.get("/v1/status").is(200).into(&status)
	oldest := status["oldest_open_lease"].(map[string]any)
	require.Equal(t, []any{l.id, "c", state.ExpiresAt}, []any{oldest["lease_id"], oldest["consumer"], oldest["expires_at"]})
	for range 2 {
		done := s.ack(l.id, object{"metrics": object{"loss": 0.25}}).lease()
		require.Equal(t, "acknowledged", done.State)
		require.Equal(t, []int{0}, done.Acknowledged)
	}
	got := s.consumer("c")
	require.Empty(t, got.OpenLeases)
	require.Equal(t, []int{1, 1, 2, 2, 12, 4}, []int{got.Acknowledged.Leases, got.Acknowledged.Groups, got.Acknowledged.Rollouts, got.Acknowledged.Rows,
		got.Acknowledged.Tokens, got.Acknowledged.TrainedTokens})
	require.Contains(t, s.askLease("c", object{"key": "k", "max_groups": 1}).problem(409, "lease_acknowledged").Detail, `key "k" is used up`)
	s.nack(l.id, object{}).problem(409, "lease_acknowledged")
	s.post(path("leases", l.id, "extend"), object{}).problem(409, "lease_acknowledged")
	require.Equal(t, []string{"b"}, s.lease("c", object{}).groups(), "what is acknowledged does not come again")
	require.Equal(t, []string{"a", "b"}, s.lease("d", object{}).groups(), "two consumers each get everything")
	var list struct{ Consumers []consumerState }
	s.get("/v1/consumers").is(200).into(&list)
	require.Len(t, list.Consumers, 2)
	require.Equal(t, "c", list.Consumers[0].Consumer)
}

// A lease of several shards is settled shard by shard.
func TestAcknowledgeShards(t *testing.T) {
	t.Parallel()
	s := start(t, leaseHTTP...)
	s.perform(group("a", 1, 0)...)
	s.perform(group("b", 1, 0)...)
	l := s.lease("c", object{"key": "k", "shards": 2, "lease_seconds": 1})
	mine := map[int64]string{}
	for i := range l.rows {
		mine[l.rows[i].Shard] = l.rows[i].group()
	}
	require.Len(t, mine, 2)
	s.ack(l.id, object{"shard": 2}).problem(422, "invalid_field")
	state := s.ack(l.id, object{"shard": 1}).lease()
	require.Equal(t, []int{1}, state.Acknowledged)
	require.NotEqual(t, "acknowledged", state.State)
	// The other shard's time runs out: only its group comes again.
	again := s.lease("c", object{"wait_seconds": 60})
	require.Equal(t, []string{mine[0]}, again.groups())
	s.ack(l.id, object{"shard": 0}).problem(409, "lease_lost")
	require.Equal(t, []int{1}, s.ack(l.id, object{"shard": 1}).lease().Acknowledged, "what was acknowledged stays so")
	s.ack(again.id, object{"shard": 0}).is(200)
	got := s.consumer("c")
	require.Equal(t, 2, got.Acknowledged.Groups)
	require.Equal(t, 1, got.Redelivered)
	s.nothing("c", object{})
}

func TestReturnLease(t *testing.T) {
	t.Parallel()
	s := start(t, leaseHTTP...)
	s.perform(group("a", 1, 0)...)
	l := s.lease("c", object{"key": "k"})
	require.Equal(t, "returned", s.nack(l.id, object{"delay_seconds": 3600, "reason": "out of memory"}).lease().State)
	require.Equal(t, "returned", s.nack(l.id, object{}).lease().State, "again is the same")
	require.Equal(t, 1, s.nothing("c", object{}).said("Waiting-Leased"), "the delay holds")
	require.Equal(t, 1, s.nothing("c", object{"key": "k"}).said("Waiting-Leased"))
	s.ack(l.id, object{}).problem(409, "lease_lost")
	require.Equal(t, 1, s.consumer("c").Returned)

	// A short delay is waited for, by the key itself too, which is given its lease again.
	l = s.lease("d", object{"key": "k"})
	s.nack(l.id, object{"delay_seconds": 0.2}).is(200)
	again := s.lease("d", object{"key": "k", "wait_seconds": 60})
	require.Equal(t, []any{l.id, l.body}, []any{again.id, again.body})
	s.nack(l.id, object{}).is(200)
	s.post(path("leases", l.id, "extend"), object{}).problem(409, "lease_lost")
	other := s.lease("d", object{"key": "other"})
	require.NotEqual(t, l.id, other.id)
	s.askLease("d", object{"key": "k"}).problem(409, "lease_lost")
	s.nack(l.id, object{}).is(200)
	s.post(path("leases", l.id, "extend"), object{}).problem(409, "lease_lost")
}

// Expiry: the groups come again, unless the late one acknowledges before.
func TestLeaseExpires(t *testing.T) {
	t.Parallel()
	s := start(t, leaseHTTP...)
	s.perform(group("a", 1, 0)...)
	l := s.lease("c", object{"key": "k", "lease_seconds": 1})
	require.Equal(t, 1, s.nothing("c", object{"key": "next"}).said("Waiting-Leased"))
	again := s.lease("c", object{"key": "next", "wait_seconds": 60, "lease_seconds": 1})
	require.Equal(t, l.groups(), again.groups())
	require.NotEqual(t, l.id, again.id)
	require.Equal(t, "expired", s.get(path("leases", l.id)).lease().State)
	s.ack(l.id, object{}).problem(409, "lease_lost")
	require.Contains(t, s.askLease("c", object{"key": "k"}).problem(409, "lease_lost").Detail, `key "k" is used up`)
	eventually(t, "it expires", func() bool { return s.get(path("leases", again.id)).lease().State == "expired" })
	require.Equal(t, 2, s.consumer("c").Expired)
	// Nobody has its groups: it is revived, by its key, by extend, and by an ack.
	require.Equal(t, again.body, s.lease("c", object{"key": "next", "lease_seconds": 1}).body)
	eventually(t, "it expires", func() bool { return s.get(path("leases", again.id)).lease().State == "expired" })
	state := s.post(path("leases", again.id, "extend"), object{}).lease()
	require.Equal(t, "open", state.State)
	eventually(t, "it expires", func() bool { return s.get(path("leases", again.id)).lease().State == "expired" })
	require.Equal(t, "acknowledged", s.ack(again.id, object{}).lease().State)
	s.nothing("c", object{})
}

func TestExtendLease(t *testing.T) {
	t.Parallel()
	s := start(t, leaseHTTP...)
	s.perform(group("a", 1, 0)...)
	l := s.lease("c", object{"lease_seconds": 100})
	at := func(text string) time.Time {
		v, err := time.Parse(time.RFC3339, text)
		require.NoError(t, err)
		return v
	}
	before := at(l.header.Get("Icecore-Expires-At"))
	longer := at(s.post(path("leases", l.id, "extend"), object{"lease_seconds": 5000}).lease().ExpiresAt)
	require.InDelta(t, 4900, longer.Sub(before).Seconds(), 90)
	shorter := at(s.post(path("leases", l.id, "extend"), "").lease().ExpiresAt)
	require.InDelta(t, 0, shorter.Sub(before).Seconds(), 90)
}

func TestSeekConsumer(t *testing.T) {
	t.Parallel()
	s := start(t, leaseHTTP...)
	middle := ""
	for v := range int64(4) {
		g := group(fmt.Sprint("v", v), 1, 0)
		for i := range g {
			g[i].calls = []call{oneCall(g[i].id, v, 6)}
		}
		s.perform(g...)
		if v == 2 {
			var r struct {
				FinishedAt string `json:"finished_at"`
			}
			s.get(path("rollouts", "v2/1")).is(200).into(&r)
			middle = r.FinishedAt
		}
	}
	s.post("/v1/consumers/c/seek", object{"to": "end"}).problem(404, "not_found")
	l := s.lease("c", object{"max_groups": 2})
	s.ack(l.id, object{}).is(200)
	open := s.lease("c", object{"max_groups": 1, "key": "open"})
	s.nothing("c", object{"policy_version": 9, "max_staleness": 1}) // v3 is skipped
	seek := func(to object) (out struct {
		FromTime          *string `json:"from_time"`
		FromPolicyVersion *int64  `json:"from_policy_version"`
		Cancelled         int     `json:"cancelled_leases"`
	}) {
		t.Helper()
		s.post("/v1/consumers/c/seek", to).is(200).into(&out)
		return out
	}
	require.Equal(t, 1, seek(object{"to": "beginning"}).Cancelled)
	s.ack(open.id, object{}).problem(409, "lease_lost")
	s.askLease("c", object{"max_groups": 1, "key": "open"}).problem(409, "lease_lost")
	require.Equal(t, "cancelled", s.get(path("leases", open.id)).lease().State)
	l = s.lease("c", object{})
	require.Equal(t, []string{"v0", "v1", "v2", "v3"}, l.groups())
	s.ack(l.id, object{}).is(200)

	require.Equal(t, middle, *seek(object{"time": middle}).FromTime)
	l = s.lease("c", object{})
	require.Equal(t, []string{"v2", "v3"}, l.groups())
	s.ack(l.id, object{}).is(200)

	require.EqualValues(t, 1, *seek(object{"policy_version": 1}).FromPolicyVersion)
	require.EqualValues(t, 1, *s.consumer("c").FromPolicyVersion)
	l = s.lease("c", object{})
	require.Equal(t, []string{"v1", "v2", "v3"}, l.groups())
	s.ack(l.id, object{}).is(200)
	s.nothing("c", object{})

	require.Zero(t, seek(object{"to": "end"}).Cancelled)
	s.nothing("c", object{})
	s.perform(group("new", 1, 0)...)
	require.Equal(t, []string{"new"}, s.lease("c", object{}).groups())
	for _, bad := range []any{object{}, object{"to": "somewhere"}, object{"time": "yesterday"}, object{"to": "end", "policy_version": 1}, object{"policy_version": -1}} {
		s.post("/v1/consumers/c/seek", bad).problem(422, "invalid_field")
	}

	// Forgotten, it begins anew.
	s.send("DELETE", "/v1/consumers/c", nil).is(200)
	s.get("/v1/consumers/c").problem(404, "not_found")
	s.send("DELETE", "/v1/consumers/c", nil).problem(404, "not_found")
	require.Len(t, s.lease("c", object{}).groups(), 5)
	s.get("/v1/leases/none").problem(404, "not_found")
	s.ack("none", object{}).problem(404, "not_found")
}

// From a version on, older groups that were never given out are passed over.
func TestSeekPassesOverWhatIsOlder(t *testing.T) {
	t.Parallel()
	s := start(t, leaseHTTP...)
	s.perform(group("old", 1, 0)...) // of version 1
	s.nothing("c", object{"where": object{"split": "eval"}})
	s.post("/v1/consumers/c/seek", object{"policy_version": 2}).is(200)
	a := s.nothing("c", object{})
	require.Equal(t, 1, a.said("Skipped-Stale"))
	s.post("/v1/consumers/c/seek", object{"policy_version": 1}).is(200)
	require.Equal(t, []string{"old"}, s.lease("c", object{}).groups())
}
