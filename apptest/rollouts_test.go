package apptest

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// rollout is what GET /v1/rollouts/{id} says.
type rollout struct {
	RolloutID      string  `json:"rollout_id"`
	TaskID         *string `json:"task_id"`
	GroupID        *string `json:"group_id"`
	GroupSize      *int64  `json:"group_size"`
	SampleIndex    *int64  `json:"sample_index"`
	Split          *string
	Harness        *string
	HarnessVersion *string `json:"harness_version"`
	Model          *string
	PolicyVersion  *int64 `json:"policy_version"`
	Metadata       object
	Status         *string
	Error          *string
	FinishedAt     *string `json:"finished_at"`
	Complete       bool
	Reopened       bool
	Traces         int
	OpenIntents    int    `json:"open_intents"`
	CreatedAt      string `json:"created_at"`
	UpdatedAt      string `json:"updated_at"`
}

type reward struct {
	RewardID string  `json:"reward_id"`
	TraceID  *string `json:"trace_id"`
	Name     string
	Source   *string
	Revision int64
	Value    float64
	At       *string
	Metadata object
}

func (s *server) rollout(id string) (rollout, []reward) {
	s.t.Helper()
	var got struct {
		rollout
		Rewards []reward
	}
	s.get(path("rollouts", id)).is(200).into(&got)
	require.Equal(s.t, id, got.RolloutID)
	return got.rollout, got.Rewards
}

func TestPutMerges(t *testing.T) {
	t.Parallel()
	// The answers do not depend on the server's own zone.
	s := startOn(t, t.TempDir()+"/data", []string{"TZ=Asia/Kathmandu"})
	s.put("/v1/rollouts/r", object{"task_id": "t", "group_id": "g", "group_size": 4, "split": "train", "metadata": object{"a": 1}}).is(200)
	s.put("/v1/rollouts/r", object{"harness": "codex", "group_size": 8, "sample_index": 0, "policy_version": 1 << 60, "task_id": nil}).is(200)
	s.put("/v1/rollouts/r", object{"metadata": object{"b": 2}, "group_id": ""}).is(200)
	r, _ := s.rollout("r")
	require.Equal(t, "t", *r.TaskID)
	require.Nil(t, r.GroupID)
	require.Equal(t, int64(8), *r.GroupSize)
	require.Equal(t, int64(0), *r.SampleIndex)
	require.Equal(t, "train", *r.Split)
	require.Equal(t, "codex", *r.Harness)
	require.Equal(t, int64(1)<<60, *r.PolicyVersion)
	require.Len(t, r.Metadata, 1)
	require.False(t, r.Complete)
	created, err := time.Parse(time.RFC3339, r.CreatedAt)
	require.NoError(t, err)
	require.Equal(t, byte('Z'), r.CreatedAt[len(r.CreatedAt)-1])
	require.InDelta(t, 0, time.Since(created).Minutes(), 30)

	for body, code := range map[string]string{
		`{"split":"dev"}`: "invalid_field", `{"group_size":0}`: "invalid_field", `{"sample_index":-1}`: "invalid_field", `{"colour":1}`: "invalid_field",
		`{"harness":7}`: "invalid_field", `{"metadata":[]}`: "invalid_field", `{"harness":"a","harness":"b"}`: "duplicate_field",
		`{"model":"\ud800"}`: "invalid_field", `[]`: "not_an_object", `{"rollout_id":"r"}`: "invalid_field",
	} {
		s.put("/v1/rollouts/r", body).problem(422, code)
		s.put("/v1/rollouts/fresh", body).problem(422, code)
	}
	s.put("/v1/rollouts/r", `{"split":`).problem(400, "invalid_json")
	after, _ := s.rollout("r")
	require.Equal(t, r, after)
	s.get("/v1/rollouts/fresh").problem(404, "not_found")
	s.put("/v1/rollouts/fresh", `{}`).is(200)
	s.rollout("fresh")
}

// Attributes may come with traces or with the rollout, in any order: the same
// rollout results.
func TestAttributesInAnyOrder(t *testing.T) {
	t.Parallel()
	s := start(t)
	steps := []func(id string){
		func(id string) {
			s.traces(plain(id, id+"/1", 5, ids(1), ids(2)).with("harness", "late", "model", "m5", "group_id", "g5")).is(200)
		},
		func(id string) {
			s.traces(plain(id, id+"/2", 2, ids(1), ids(3)).with("harness", "early", "model", "m2", "task_id", "t2", "sample_index", int64(2))).is(200)
		},
		func(id string) { s.traces(plain(id, id+"/0", 2, ids(1), ids(4)).with("model", "m0")).is(200) },
		func(id string) {
			s.traces(plain(id, id+"/3", 0, ids(1), ids(5)).with("seq", nil, "harness", "unordered", "harness_version", "9")).is(200)
		},
		func(id string) { s.put(path("rollouts", id), object{"harness": "put", "split": "eval"}).is(200) },
	}
	rng := rand.New(rand.NewPCG(3, 3))
	for n := range 12 {
		id := fmt.Sprintf("order-%d", n)
		for _, i := range rng.Perm(len(steps)) {
			steps[i](id)
		}
		r, _ := s.rollout(id)
		got := []string{*r.Harness, *r.Model, *r.GroupID, *r.TaskID, *r.HarnessVersion, *r.Split}
		require.Equal(t, []string{"put", "m0", "g5", "t2", "9", "eval"}, got)
		require.Equal(t, int64(2), *r.SampleIndex)
		require.Equal(t, 4, r.Traces)
	}
}

func TestFinish(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.traces(plain("f", "f1", 1, ids(1), ids(2))).is(200)
	finish := path("rollouts", "f", "finish")
	for _, body := range []string{`{"status":"won"}`, `{"status":1}`, `{"status":"failed","x":1}`} {
		s.post(finish, body).problem(422, "invalid_field")
	}
	s.post(finish, `{}`).problem(422, "missing_field")
	var a struct {
		Status  string
		Ack     string
		Rollout rollout
	}
	s.post(finish, object{"status": "failed", "error": "tests"}).is(200).into(&a)
	require.Equal(t, []string{"stored", "durable", "failed", "tests"}, []string{a.Status, a.Ack, *a.Rollout.Status, *a.Rollout.Error})
	first := a.Rollout
	s.post(finish, object{"error": "tests", "status": "failed"}).is(200).into(&a)
	require.Equal(t, "duplicate", a.Status)
	require.Equal(t, first.FinishedAt, a.Rollout.FinishedAt)
	require.Equal(t, "status", s.post(finish, object{"status": "succeeded"}).problem(409, "conflict").Field)
	s.post(finish, object{"status": "failed"}).problem(409, "conflict")
	r, _ := s.rollout("f")
	require.True(t, r.Complete)
	require.False(t, r.Reopened)
	require.Equal(t, "failed", *r.Status)

	// A duplicate does not reopen, a new trace does.
	s.traces(plain("f", "f1", 1, ids(1), ids(2))).all("duplicate", 1)
	r, _ = s.rollout("f")
	require.False(t, r.Reopened)
	require.Len(t, s.merged("f", "").Trajectories, 1)
	s.traces(plain("f", "f2", 2, ids(3), ids(4))).all("stored", 1)
	r, _ = s.rollout("f")
	require.True(t, r.Reopened)
	require.True(t, r.Complete)
	require.Len(t, s.merged("f", "").Trajectories, 2)
	s.post(path("rollouts", "unheard", "finish"), object{"status": "timeout"}).is(200)
}

func TestIntents(t *testing.T) {
	t.Parallel()
	s := start(t)
	list := s.post("/v1/traces/begin", []object{
		{"trace_id": "i1", "rollout_id": "in", "seq": 1, "started_at": "2026-01-31T09:30:00Z"}, {"trace_id": "i2", "rollout_id": "in", "seq": 2},
		{"trace_id": "i1", "rollout_id": "in", "seq": 1}, {"trace_id": "i1", "rollout_id": "other", "seq": 1}, {"trace_id": "i2", "rollout_id": "in", "seq": 3},
		{"rollout_id": "in"}, {"trace_id": "i3", "rollout_id": "in", "seq": -1}, {"trace_id": "i4", "rollout_id": "in", "seq": 1.5},
		{"trace_id": "i5", "rollout_id": "in", "colour": "red"},
	}).is(207).items()
	var got []string
	for _, i := range list.Items {
		got = append(got, i.outcome())
	}
	require.Equal(t, []string{"stored", "stored", "duplicate", "conflict", "conflict", "missing_field", "invalid_field", "invalid_field", "stored"}, got)
	require.Len(t, list.Items[8].Warnings, 1)
	s.post(path("rollouts", "in", "finish"), object{"status": "succeeded"}).is(200)
	open := func() int {
		r, _ := s.rollout("in")
		require.Equal(t, r.OpenIntents == 0, r.Complete)
		return r.OpenIntents
	}
	require.Equal(t, 3, open())
	s.traces(plain("in", "i1", 1, ids(1), ids(2))).is(200)
	require.Equal(t, 2, open())
	s.traces(plain("in", "i1", 1, ids(1), ids(2)), plain("in", "i2", 7, ids(1, 2), ids(2)).with("response_logprobs", lps(1, 2))).is(207)
	require.Equal(t, 2, open())
	// Announced for one rollout, come for another.
	s.traces(plain("elsewhere", "i5", 1, ids(1), ids(2)), plain("in", "i2", 2, ids(1, 2), ids(2))).is(200)
	require.Equal(t, 0, open())
	require.Equal(t, "duplicate", s.post("/v1/traces/begin", object{"trace_id": "i1", "rollout_id": "in"}).one())
	require.Equal(t, 0, open())
	require.Equal(t, "stored", s.post("/v1/traces/begin", object{"intents": []object{{"trace_id": "i9", "rollout_id": "in"}}}).one())
	require.Equal(t, 1, open())
	var incomplete struct{ Total int }
	s.get("/v1/rollouts?complete=false").is(200).into(&incomplete)
	require.Equal(t, 2, incomplete.Total)
}

func TestRewards(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.traces(plain("w", "w1", 1, ids(1), ids(2))).is(200)
	for _, c := range []struct {
		body    string
		outcome string
	}{
		{`{"reward_id":"a","rollout_id":"w","value":0}`, "stored"},
		{`{"reward_id":"a","rollout_id":"w","value":-0.0}`, "duplicate"},
		{`{"reward_id":"a","rollout_id":"w","value":1}`, "conflict"},
		{`{"reward_id":"a","rollout_id":"w","value":0,"name":"style"}`, "conflict"},
		{`{"reward_id":"a","rollout_id":"w2","value":0}`, "conflict"},
		{`{"reward_id":"b","rollout_id":"w","value":0}`, "duplicate"},
		{`{"reward_id":"b","rollout_id":"w","value":1}`, "conflict"},
		{`{"reward_id":"c","rollout_id":"w","value":1,"revision":2,"at":"2026-01-31T09:30:00+01:00","metadata":{"b":1,"a":2}}`, "stored"},
		{`{"reward_id":"c","rollout_id":"w","value":1e0,"revision":2,"at":"2026-01-31T08:30:00Z","metadata":{"a":2,"b":1}}`, "duplicate"},
		{`{"reward_id":"d","rollout_id":"w","value":0.5,"revision":1}`, "stored"},
		{`{"reward_id":"e","rollout_id":"w","value":0.25,"name":"style","source":"judge","trace_id":"w1"}`, "stored"},
		{`{"reward_id":"f","rollout_id":"w","value":NaN}`, "invalid_field"},
		{`{"reward_id":"f","rollout_id":"w","value":-Infinity}`, "invalid_field"},
		{`{"reward_id":"f","rollout_id":"w","value":"NaN"}`, "invalid_field"},
		{`{"reward_id":"f","rollout_id":"w","value":1e400}`, "invalid_field"},
		{`{"reward_id":"f","rollout_id":"w","value":null}`, "missing_field"},
		{`{"reward_id":"f","rollout_id":"w"}`, "missing_field"},
		{`{"reward_id":"f","value":1}`, "missing_field"},
		{`{"rollout_id":"w","value":1}`, "missing_field"},
		{`{"reward_id":"f","rollout_id":"w","value":1,"revision":-1}`, "invalid_field"},
		{`{"reward_id":"f","rollout_id":"w","value":1,"colour":1}`, "invalid_field"},
	} {
		require.Equal(t, c.outcome, s.post("/v1/rewards", c.body).one(), c.body)
	}
	_, rewards := s.rollout("w")
	require.Len(t, rewards, 2)
	for _, w := range rewards {
		if w.Name == "style" {
			require.Equal(t, []any{"e", "w1", "judge", 0.25}, []any{w.RewardID, *w.TraceID, *w.Source, w.Value})
			continue
		}
		at, err := time.Parse(time.RFC3339, *w.At)
		require.NoError(t, err)
		require.Equal(t, []any{"c", int64(2), 1.0, int64(1769848200)}, []any{w.RewardID, w.Revision, w.Value, at.Unix()})
		require.Len(t, w.Metadata, 2)
	}
	rows := s.export("rollout_id=w").rows
	require.Len(t, rows, 1)
	require.Equal(t, 1.0, *rows[0].Reward)
	// A reward may come first.
	list := s.post("/v1/rewards", object{"rewards": []object{{"reward_id": "z", "rollout_id": "later", "value": 1}}}).is(200).items()
	require.Len(t, list.Items[0].Warnings, 1)
	s.rollout("later")
}

// Ids are any printable text, and a path carries them percent-encoded.
func TestIdsInPaths(t *testing.T) {
	t.Parallel()
	s := start(t)
	all := []string{"a/b", "ü", "%", "?", "%41", "100%", "a b", "+", "#", "&x=y", "..", ".", "a/finish", "begin", "finish", "%2F", "a%2Fb", "日本語", "😀", ";", ":id", "*", `"`, `\`, "//", "x/"}
	for i, id := range all {
		trace := "t " + id
		s.traces(plain(id, trace, 1, ids(int32(i)), ids(2)).with("group_id", id)).all("stored", 1)
		s.put(path("rollouts", id), object{"task_id": id}).is(200)
		s.post(path("rollouts", id, "finish"), object{"status": "succeeded"}).is(200)
		r, _ := s.rollout(id)
		require.Equal(t, id, *r.TaskID)
		require.Equal(t, 1, r.Traces, id)
		require.Equal(t, []int32{int32(i), 2}, s.merged(id, "").Trajectories[0].TokenIDs)
		var one object
		s.get(path("traces", trace)).is(200).into(&one)
		require.Equal(t, id, one["rollout_id"])
		require.Equal(t, trace, one["trace_id"])
		s.get(path("rollouts", id, "traces")).is(200)
		rows := s.export(url.Values{"rollout_id": {id}, "group_id": {id}}.Encode()).rows
		require.Len(t, rows, 1)
		require.Equal(t, id, rows[0].RolloutID)
	}
	var list struct{ Total int }
	s.get("/v1/rollouts").is(200).into(&list)
	require.Equal(t, len(all), list.Total)
	s.traces(plain("begin", "begin", 2, ids(1), ids(2))).all("stored", 1)
	s.get("/v1/traces/begin").is(200)

	for _, p := range []string{"/v1/rollouts/%00", "/v1/rollouts/a%0Ab", "/v1/rollouts/%ff", "/v1/rollouts/" + url.PathEscape(longText(129))} {
		s.get(p).problem(400, "invalid_parameter")
		s.put(p, `{}`).problem(400, "invalid_parameter")
	}
	s.put(path("rollouts", longText(128)), `{}`).is(200)
}

func longText(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = 'x'
	}
	return string(b)
}
