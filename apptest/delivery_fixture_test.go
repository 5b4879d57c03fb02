package apptest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/stretchr/testify/require"
)

// leaseHTTP are the flags of servers on which nothing waits for time alone.
var leaseHTTP = []string{"--group-quiet=0s", "--incomplete-wait=0s"}

// episode is a rollout in the making.
type episode struct {
	id, group string
	// size is group_size; 0: not said.
	size int64
	// status of the finish; "": it is not finished.
	status string
	// reward is nil when there is none.
	reward *float64
	// calls; nil: one, of policy version 1.
	calls []call
	put   object
}

// group makes the episodes of a group that is ready: one per reward.
func group(name string, rewards ...float64) []episode {
	out := make([]episode, len(rewards))
	for i, r := range rewards {
		out[i] = episode{id: fmt.Sprintf("%s/%d", name, i), group: name, size: int64(len(rewards)), status: "succeeded", reward: ptr(r),
			put: object{"sample_index": i}}
	}
	return out
}

// with sets attributes of all rollouts of a group, in pairs.
func withPut(list []episode, fields ...any) []episode {
	for i := range list {
		put := object{}
		for name, v := range list[i].put {
			put[name] = v
		}
		for at := 0; at < len(fields); at += 2 {
			put[fields[at].(string)] = fields[at+1]
		}
		list[i].put = put
	}
	return list
}

// oneCall is what an episode did that says nothing of it.
func oneCall(id string, version int64, tokens int) call {
	prompt := make([]int32, tokens-2)
	for i := range prompt {
		prompt[i] = int32(len(id)*31 + i)
	}
	return plain(id, id+"/t", 1, prompt, ids(7, 8)).with("policy_version", version)
}

// perform stores what happened in episodes, in their order.
func (s *server) perform(list ...episode) {
	s.t.Helper()
	for _, e := range list {
		calls := e.calls
		if calls == nil {
			calls = []call{oneCall(e.id, 1, 6)}
		}
		if len(calls) > 0 {
			s.traces(calls...).is(200)
		}
		put := object{}
		for name, v := range e.put {
			put[name] = v
		}
		if e.group != "" {
			put["group_id"] = e.group
		}
		if e.size != 0 {
			put["group_size"] = e.size
		}
		s.put(path("rollouts", e.id), put).is(200)
		if e.reward != nil {
			s.rewardNow(e.id, *e.reward, 0)
		}
		if e.status != "" {
			s.post(path("rollouts", e.id, "finish"), object{"status": e.status}).is(200)
		}
	}
}

func (s *server) rewardNow(rollout string, value float64, revision int) {
	s.t.Helper()
	id := fmt.Sprintf("%s/w%d", rollout, revision)
	s.post("/v1/rewards", object{"reward_id": id, "rollout_id": rollout, "value": value, "revision": revision}).is(200)
}

// leased is a lease as a learner reads it.
type leased struct {
	*answer
	id, key string
	meta    map[string]string
	rows    []leasedRow
}

// leasedRow is a row of a lease.
type leasedRow struct {
	exported
	GroupIndex      int64    `json:"group_index"`
	RolloutIndex    int64    `json:"rollout_index"`
	GroupFinished   int64    `json:"group_finished"`
	GroupScored     int64    `json:"group_scored"`
	Advantage       *float64 `json:"advantage"`
	ZeroAdvantage   bool     `json:"zero_advantage"`
	Weight          float64  `json:"weight"`
	Shard           int64    `json:"shard"`
	Microbatch      *int64   `json:"microbatch"`
	SharedPrefixRow *int64   `json:"shared_prefix_row"`
	SharedPrefixLen int64    `json:"shared_prefix_len"`
}

func (r *leasedRow) group() string {
	if r.GroupID == nil {
		return ""
	}
	return *r.GroupID
}

// askLease asks for a lease, with whatever comes of it.
func (s *server) askLease(consumer string, request object) *answer {
	s.t.Helper()
	return s.send(http.MethodPost, path("consumers", consumer, "lease"), encode(request), "Content-Type", typeJSON)
}

// lease demands one, whole: headers, metadata, trailer and rows agree.
func (s *server) lease(consumer string, request object) *leased {
	s.t.Helper()
	return s.asLease(s.askLease(consumer, request).is(200))
}

func (s *server) asLease(a *answer) *leased {
	s.t.Helper()
	out := s.readLease(a)
	out.counted()
	return out
}

// shortLease is a lease without its long lists, for large ones.
func (s *server) shortLease(consumer string, request object) *leased {
	s.t.Helper()
	return s.readLease(s.askLease(consumer, request).is(200), "token_ids", "loss_mask", "logprobs", "spans")
}

func (s *server) readLease(a *answer, without ...string) *leased {
	s.t.Helper()
	require.Equal(s.t, typeArrow, a.header.Get("Content-Type"))
	require.Equal(s.t, "true", a.trailer.Get("Icecore-Complete"))
	table, err := readArrow(bytes.NewReader(a.body), without...)
	require.NoError(s.t, err)
	out := &leased{answer: a, id: a.header.Get("Icecore-Lease-Id"), key: a.header.Get("Icecore-Key"), meta: map[string]string{}}
	meta := table.schema.Metadata()
	for i, name := range meta.Keys() {
		name = strings.TrimPrefix(name, "icecore.")
		out.meta[name] = meta.Values()[i]
	}
	for name := range a.header {
		said, ours := strings.CutPrefix(name, "Icecore-")
		if ours && said != "Expires-At" {
			value, known := out.meta[strings.ToLower(strings.ReplaceAll(said, "-", "_"))]
			require.True(s.t, known, name)
			text, err := url.PathUnescape(a.header.Get(name))
			require.NoError(s.t, err)
			require.Equal(s.t, value, text, name)
		}
	}
	raw, err := json.Marshal(table.raw)
	require.NoError(s.t, err)
	require.NoError(s.t, json.Unmarshal(raw, &out.rows))
	require.Equal(s.t, a.header.Get("Icecore-Rows"), itoa(len(out.rows)))
	return out
}

// counted compares the rows with what was said of them.
func (l *leased) counted() {
	l.t.Helper()
	groups, rollouts := map[int64]bool{}, map[string]bool{}
	tokens, trained, longest := 0, 0, 0
	for i := range l.rows {
		r := &l.rows[i]
		groups[r.GroupIndex], rollouts[r.RolloutID] = true, true
		tokens += len(r.TokenIDs)
		longest = max(longest, len(r.TokenIDs))
		own := 0
		for _, bit := range r.LossMask {
			own += int(bit)
		}
		require.EqualValues(l.t, own, r.TrainedTokens)
		trained += own
	}
	for name, want := range map[string]int{"rows": len(l.rows), "groups": len(groups), "rollouts": len(rollouts), "tokens": tokens,
		"trained_tokens": trained, "max_row_tokens": longest} {
		require.Equal(l.t, want, l.count(name), name)
		if l.meta["shard"] == "" && name != "max_row_tokens" {
			require.Equal(l.t, want, l.count("lease_"+name), "lease_"+name)
		}
	}
}

// count reads a number of the metadata.
func (l *leased) count(name string) int {
	l.t.Helper()
	n, err := strconv.Atoi(l.meta[name])
	require.NoError(l.t, err, name)
	return n
}

// groups lists the groups in the order of their rows.
func (l *leased) groups() (out []string) {
	for i := range l.rows {
		if name := l.rows[i].group(); len(out) == 0 || out[len(out)-1] != name {
			out = append(out, name)
		}
	}
	return out
}

// rollouts lists the rollouts in the order of their rows.
func (l *leased) rollouts() (out []string) {
	for i := range l.rows {
		if name := l.rows[i].RolloutID; len(out) == 0 || out[len(out)-1] != name {
			out = append(out, name)
		}
	}
	return out
}

// advantages gives that of each rollout.
func (l *leased) advantages() map[string]*float64 {
	out := map[string]*float64{}
	for i := range l.rows {
		out[l.rows[i].RolloutID] = l.rows[i].Advantage
	}
	return out
}

// nothing demands that there is nothing to lease, and gives what is waited for.
func (s *server) nothing(consumer string, request object) *answer {
	s.t.Helper()
	a := s.askLease(consumer, request).is(204)
	require.Empty(s.t, a.body)
	return a
}

// said is a count in a header of a lease that was not.
func (a *answer) said(name string) int {
	a.t.Helper()
	n, err := strconv.Atoi(a.header.Get("Icecore-" + name))
	require.NoError(a.t, err, name)
	return n
}

// leaseState is what the lease's routes show.
type leaseState struct {
	LeaseID       string `json:"lease_id"`
	Consumer, Key string
	State         string
	Shards        int
	Acknowledged  []int  `json:"acknowledged_shards"`
	ExpiresAt     string `json:"expires_at"`
	Groups        int
	Rows          int
}

func (a *answer) lease() (out leaseState) {
	a.t.Helper()
	a.is(200).into(&out)
	return out
}

func (s *server) ack(id string, body any) *answer {
	s.t.Helper()
	return s.post(path("leases", id, "ack"), body)
}

func (s *server) nack(id string, body any) *answer {
	s.t.Helper()
	return s.post(path("leases", id, "nack"), body)
}

// consumerState is what GET /v1/consumers/{name} shows.
type consumerState struct {
	Consumer          string
	FromPolicyVersion *int64  `json:"from_policy_version"`
	FromTime          *string `json:"from_time"`
	Acknowledged      struct {
		Leases, Groups, Rollouts, Rows, Tokens int
		TrainedTokens                          int `json:"trained_tokens"`
	}
	OpenLeases  []leaseState `json:"open_leases"`
	Expired     int          `json:"expired_leases"`
	Returned    int          `json:"returned_leases"`
	Redelivered int          `json:"redelivered_groups"`
	Changed     struct {
		Rollouts, Reopened int
		Rewarded           int `json:"rewarded_anew"`
		Late               int `json:"late_rollouts"`
	} `json:"changed_after_lease"`
	Skipped map[string]int
	Lag     struct {
		Ready         int     `json:"ready_groups"`
		OldestReadyAt *string `json:"oldest_ready_at"`
		NotFinished   int     `json:"not_finished"`
		Missing       int
		NotRewarded   int `json:"not_rewarded"`
		Quiet, Leased int
	}
}

func (s *server) consumer(name string) (out consumerState) {
	s.t.Helper()
	s.get(path("consumers", name)).is(200).into(&out)
	return out
}
