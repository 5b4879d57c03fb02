package verify

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	_ "github.com/duckdb/duckdb-go/v2" // the "duckdb" driver
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite" // the "sqlite" driver

	"icecore/merge"
	"icecore/merge/pass"
	"icecore/store"
	"icecore/trace"
	"icecore/wire"
)

const endOfTurn = 151645

// fixture is a data directory as the real store leaves it: killed, with a
// journal of drained and undrained batches, and closed in order.
type fixture struct {
	once           sync.Once
	captures       []string
	limit          int // traces of each capture; 0: all
	killed, closed string
	err            error
}

var (
	full  = &fixture{captures: []string{"plain", "thinking"}}
	small = &fixture{captures: []string{"plain"}, limit: 24}
	made  string // where they lie
)

func TestMain(m *testing.M) {
	var err error
	if made, err = os.MkdirTemp("", "verify"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(made)
	os.Exit(code)
}

func (x *fixture) make(t testing.TB) *fixture {
	x.once.Do(func() {
		dir, err := os.MkdirTemp(made, "")
		require.NoError(t, err)
		x.killed, x.closed = filepath.Join(dir, "killed"), filepath.Join(dir, "closed")
		x.err = x.fill()
	})
	require.NoError(t, x.err)
	return x
}

// fill puts captures and made-up traces through the store and copies its files
// while it lives.
func (x *fixture) fill() error {
	ctx := context.Background()
	s, err := store.Open(ctx, store.Options{Dir: x.closed, DrainInterval: time.Hour, CheckpointInterval: time.Hour,
		MemoryLimit: 1 << 30, Threads: 1, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	f := &filler{ctx: ctx, s: s}
	for _, name := range x.captures {
		f.captures(name, x.limit)
	}
	f.drain()
	f.synthetic()
	f.drain()
	f.merge()
	f.learn(7, -1)
	f.learn(7, -2)
	f.learn(8, -1)
	f.do(f.put(f.made("late", 7, []int32{900, 901}, []int32{902}))) // merges are behind now
	f.drain()
	f.learn(9, -1)
	f.deliver()
	f.do(f.put(f.made("undrained", 0, []int32{5}, []int32{6})))
	f.do(func() error {
		_, _, err := s.PutRewards(ctx, []*trace.Reward{{RewardID: "undrained", RolloutID: "made", Name: "outcome", Value: 1, Revision: 9}})
		return err
	}())
	if f.err == nil {
		f.err = copyDir(x.closed, x.killed)
	}
	if err := s.Close(ctx); f.err == nil {
		f.err = err
	}
	return f.err
}

type filler struct {
	ctx   context.Context
	s     *store.Store
	batch int64
	err   error
	// leased is a rollout of the newest lease.
	leased string
}

func (f *filler) do(err error) {
	if f.err == nil {
		f.err = err
	}
}

func (f *filler) put(ts ...*trace.Trace) error {
	for _, t := range ts {
		if e := t.Validate(trace.Limits{}); e != nil {
			return e
		}
	}
	out, batch, err := f.s.PutTraces(f.ctx, ts)
	f.batch = max(f.batch, batch)
	for _, o := range out {
		if o.Status != store.Stored {
			return fmt.Errorf("not stored: %v", o)
		}
	}
	return err
}

func (f *filler) drain() {
	if f.err == nil {
		f.err = f.s.WaitDrained(f.ctx, f.batch)
	}
}

func (f *filler) captures(name string, limit int) {
	raw, err := os.ReadFile("../testdata/captures/" + name + ".ndjson.zst")
	f.do(err)
	z, err := zstd.NewReader(nil)
	f.do(err)
	if f.err != nil {
		return
	}
	defer z.Close()
	body, err := z.DecodeAll(raw, nil)
	f.do(err)
	items, err := wire.TracesNDJSON(body, wire.Limits{})
	f.do(err)
	if limit > 0 {
		items = items[:limit]
	}
	for at := 0; at < len(items); at += 40 {
		var ts []*trace.Trace
		for _, i := range items[at:min(at+40, len(items))] {
			if i.Err != nil {
				f.do(i.Err)
				return
			}
			ts = append(ts, i.Value)
		}
		f.do(f.put(ts...))
	}
	lines, err := os.ReadFile("../testdata/captures/" + name + ".rollouts.ndjson")
	f.do(err)
	for line := range bytes.Lines(lines) {
		var r struct{ Rollout, Finish, Reward json.RawMessage }
		f.do(json.Unmarshal(line, &r))
		var id struct {
			ID string `json:"rollout_id"`
		}
		f.do(json.Unmarshal(r.Rollout, &id))
		if f.err != nil {
			return
		}
		f.rollout(id.ID, r.Rollout, r.Finish, r.Reward)
	}
}

func (f *filler) rollout(id string, attributes, finish, reward []byte) {
	var fields map[string]json.RawMessage
	f.do(json.Unmarshal(attributes, &fields))
	delete(fields, "rollout_id")
	attributes, err := json.Marshal(fields)
	f.do(err)
	p, err := wire.RolloutPatchJSON(attributes, wire.Limits{})
	f.do(err)
	if f.err != nil {
		return
	}
	_, batch, err := f.s.PatchRollout(f.ctx, id, p)
	f.do(err)
	f.batch = max(f.batch, batch)
	fin, err := wire.FinishJSON(finish, wire.Limits{})
	f.do(err)
	if f.err != nil {
		return
	}
	_, _, batch, err = f.s.FinishRollout(f.ctx, id, fin)
	f.do(err)
	f.batch = max(f.batch, batch)
	ws, err := wire.RewardsJSON(append(append([]byte("["), reward...), ']'), wire.Limits{})
	f.do(err)
	for _, w := range ws {
		_, batch, err := f.s.PutRewards(f.ctx, []*trace.Reward{w.Value})
		f.do(err)
		f.batch = max(f.batch, batch)
	}
}

func num(n int64) *int64 { return &n }

// made makes a trace of the rollout "made".
func (f *filler) made(id string, seq int64, prompt, response []int32) *trace.Trace {
	return &trace.Trace{TraceID: id, RolloutID: "made", Seq: num(seq), PromptIDs: trace.TokensOf(prompt), ResponseIDs: response}
}

// synthetic puts what the captures lack.
func (f *filler) synthetic() {
	long := make([]int32, 9000)
	for i := range long {
		long[i] = int32(i * 7 % 1000)
	}
	values := make([]float32, 9000)
	known := make([]bool, 9000)
	for i := range values {
		values[i], known[i] = -float32(i)/1000, i%10 != 3
	}
	values[1], values[2] = float32(math.NaN()), float32(math.Inf(-1))
	a := f.made("a", 0, []int32{1, 2, 3}, long)
	a.ResponseLogprobs = &trace.Logprobs{Values: values, Known: known}
	a.PolicyVersion, a.PolicyVersionSpans = num(3), []trace.VersionSpan{{Start: 0, Version: 3}, {Start: 4500, Version: 4}}
	b := f.made("b", 1, append(append([]int32{1, 2, 3}, long...), 4, endOfTurn, 5), []int32{6, endOfTurn})
	b.PolicyVersion, b.FinishReason = num(5), "stop"
	ts := []*trace.Trace{a, b}
	for i := range int64(3) { // a choice group
		c := f.made(fmt.Sprintf("choice-%d", i), 2, []int32{50, 51}, []int32{int32(60 + i), endOfTurn})
		c.ChoiceGroup, c.ChoiceIndex = "g", num(i)
		ts = append(ts, c)
	}
	retry, cut, incomplete := f.made("retry", 3, []int32{70}, []int32{71}), f.made("cut", 3, []int32{70}, []int32{71, 72}), f.made("incomplete", 4, []int32{1}, []int32{2})
	cut.Status, incomplete.IDsIncomplete = trace.StatusClientGone, true
	unknown, noPrompt, empty, none := f.made("unknown", 5, nil, nil), f.made("no-prompt", 5, nil, []int32{8, 9}), f.made("empty", 5, []int32{}, []int32{}), f.made("no-answer", 6, []int32{1, 2, 9}, []int32{})
	noPrompt.ResponseLogprobs = &trace.Logprobs{Values: []float32{-1, -2}}
	twin := f.made("twin", 9, []int32{70}, []int32{71})
	twin.Seq = nil
	ts = append(ts, f.made("before", 8, []int32{200}, []int32{201, endOfTurn}),
		f.made("rewritten", 8, []int32{200, 201, 250, endOfTurn, 5}, []int32{202, endOfTurn}), retry, cut, incomplete, unknown, noPrompt, empty, none, twin)
	request := bytes.Repeat([]byte(`{"role":"user","content":"what is in the box"}`), 40)
	for i := range int64(40) {
		request = append(request, fmt.Sprintf(`{"turn":%d,"text":"%x"}`, i, i*i*i*7919)...)
		t := f.made(fmt.Sprintf("body-%02d", i), 100+i, []int32{1000 + int32(i)}, []int32{1, 2, endOfTurn})
		t.RequestBody = bytes.Clone(request)
		if i == 1 {
			t.ResponseBody = []byte{}
		}
		if i%3 == 0 {
			t.ResponseBody = fmt.Appendf(nil, `{"answer":%d}`, i)
		}
		t.Metadata, t.Usage, t.Extra = []byte(`{"é":1}`), []byte(`{"input":3}`), []byte(`{"x":null}`)
		t.StartedAt, t.FirstTokenAt, t.FinishedAt = num(1_700_000_000_000_000+i), num(-5), num(0)
		t.Error, t.Tokenizer, t.API, t.ParentRolloutID = "none", "tk", "openai.chat", "parent"
		t.ChatTemplateHash, t.ToolsHash, t.Sampling = "ct", "th", []byte(`{"t":1}`)
		t.Attributes = trace.Attributes{TaskID: "task", GroupID: "group", SampleIndex: num(0), Harness: "h", HarnessVersion: "1", Model: "m"}
		ts = append(ts, t)
	}
	f.do(f.put(ts...))
	announced := []*trace.Intent{{TraceID: "announced", RolloutID: "made", Seq: num(500)}, {TraceID: "open", RolloutID: "made"}}
	_, _, err := f.s.PutIntents(f.ctx, announced)
	f.do(err)
	f.do(f.put(f.made("announced", 500, []int32{3}, []int32{4})))
	_, batch, err := f.s.PutRewards(f.ctx, []*trace.Reward{
		{RewardID: "w1", RolloutID: "made", TraceID: "a", Name: "step", Value: 0.25, At: num(77), Metadata: []byte(`{"by":"me"}`)},
		{RewardID: "w2", RolloutID: "made", Name: "outcome", Source: "judge", Value: -1},
	})
	f.do(err)
	f.batch = max(f.batch, batch)
	text := "eval"
	_, batch, err = f.s.PatchRollout(f.ctx, "made", &trace.RolloutPatch{Split: &text, GroupSize: num(2), Metadata: []byte(`{"m":[1]}`)})
	f.do(err)
	f.batch = max(f.batch, batch)
	_, _, batch, err = f.s.FinishRollout(f.ctx, "made", &trace.Finish{Status: "failed", Error: "gave up"})
	f.do(err)
	f.batch = max(f.batch, batch)
}

// deliver gives groups to a learner: one lease is acknowledged, one in part, one
// lost to it; one group is skipped, and one still waits.
func (f *filler) deliver() {
	for i := range 4 {
		f.alone(fmt.Sprint("alone-", i))
	}
	lost := f.lease("step-0", 1, 1)
	_, err := f.s.ReturnLease(f.ctx, lost, 0, "no memory")
	f.do(err)
	_, err = f.s.AckLease(f.ctx, f.lease("step-1", 1, 1), nil, nil)
	f.do(err)
	_, err = f.s.AckLease(f.ctx, f.lease("step-2", 2, 2), []int{0}, nil)
	f.do(err)
	list, _, err := f.s.Candidates(f.ctx, "learner")
	f.do(err)
	if f.err == nil {
		f.do(f.s.SkipGroups(f.ctx, "learner", []store.Skip{{Key: list[0].Key, Reason: "stale"}}))
	}
	f.alone("waiting")
	_, _, err = f.s.Candidates(f.ctx, "learner") // sums
	f.do(err)
	// What was leased as the last is rewarded anew.
	_, batch, err := f.s.PutRewards(f.ctx, []*trace.Reward{{RewardID: "anew", RolloutID: f.leased, Name: "outcome", Revision: 99}})
	f.do(err)
	f.batch = max(f.batch, batch)
	f.drain()
}

// alone makes a rollout that is a group by itself.
func (f *filler) alone(id string) {
	_, _, batch, err := f.s.FinishRollout(f.ctx, id, &trace.Finish{Status: "failed"})
	f.do(err)
	f.batch = max(f.batch, batch)
}

// lease leases the oldest groups, each in a shard.
func (f *filler) lease(key string, groups, shards int) string {
	list, _, err := f.s.Candidates(f.ctx, "learner")
	f.do(err)
	n := store.NewLease{Consumer: "learner", Key: key, Plan: []byte("plan"), Shards: shards, Seconds: 3600}
	for i, c := range list {
		if f.err != nil || i == groups {
			break
		}
		rollouts, err := f.s.GroupRollouts(f.ctx, []int64{c.Key})
		f.do(err)
		g := store.LeasedGroup{Key: c.Key, Shards: []int{i % shards}}
		for _, r := range rollouts[c.Key] {
			p := store.Pin{Rollout: r.Key, LastBatch: r.LastBatch}
			rewards, err := f.s.Rewards(f.ctx, []int64{r.Key})
			f.do(err)
			for _, w := range rewards[r.Key] {
				if w.Name == "outcome" {
					p.RewardID = w.RewardID
				}
			}
			g.Pins, f.leased = append(g.Pins, p), r.ID
		}
		n.Groups = append(n.Groups, g)
	}
	if f.err != nil {
		return ""
	}
	l, err := f.s.OpenLease(f.ctx, n)
	if f.do(err); err != nil {
		return ""
	}
	return l.ID
}

func (f *filler) merge() {
	if f.err != nil {
		return
	}
	list, err := f.s.Rollouts(f.ctx, store.Filter{}, 0, 0)
	f.do(err)
	var keys []int64
	for _, r := range list {
		keys = append(keys, r.Key)
	}
	p, err := pass.New(f.ctx, f.s, pass.Options{Quiet: time.Hour, Log: slog.New(slog.DiscardHandler)})
	f.do(err)
	if f.err != nil {
		return
	}
	defer p.Close()
	end := int32(endOfTurn)
	for _, policy := range []merge.Policy{{Name: merge.StrictTree}, {Name: merge.PerRequest}, {Name: merge.PolarCompat},
		{Name: merge.PolarCompat, EndOfTurn: &end}} {
		f.do(p.Ensure(f.ctx, keys, policy))
	}
}

// learn has a version of a learner say v of every second token of the row that
// ends with b.
func (f *filler) learn(version int64, v float32) {
	if f.err != nil {
		return
	}
	id := merge.TrajectoryID("made", merge.Policy{Name: merge.StrictTree}, "b")
	found, err := f.s.FindTrajectories(f.ctx, []string{id})
	f.do(err)
	if f.err != nil || len(found[id]) != 1 {
		f.do(fmt.Errorf("%d rows are called %s", len(found[id]), id))
		return
	}
	row := found[id][0]
	l := &trace.LearnerLogprobs{TrajectoryID: id, PolicyVersion: version, Logprobs: &trace.Logprobs{}}
	for i := range row.Length {
		if i%2 == 0 {
			l.Logprobs.AppendUnknown()
		} else {
			l.Logprobs.Append(v)
		}
	}
	_, batch, err := f.s.PutLearnerLogprobs(f.ctx, []*store.LearnerPost{{LearnerLogprobs: l, Row: row, Trained: row.Trained}})
	f.do(err)
	f.batch = max(f.batch, batch)
}

// copyDir copies the files of a data directory, as a crash would leave them.
func copyDir(from, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	files, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range files {
		if e.IsDir() || filepath.Ext(e.Name()) == ".opening" {
			continue
		}
		if err := copyFile(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string) error {
	r, err := os.Open(from)
	if err != nil {
		return err
	}
	defer r.Close() //nolint:errcheck // it was only read
	w, err := os.Create(to)
	if err != nil {
		return err
	}
	if _, err := io.Copy(w, r); err != nil {
		return err
	}
	return w.Close()
}

// open opens a data directory's two databases by themselves.
func open(t testing.TB, dir string) Source {
	control, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "control.sqlite")+"?_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	warehouse, err := sql.Open("duckdb", filepath.Join(dir, "warehouse.duckdb")+"?threads=1&memory_limit=1GB")
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, control.Close())
		require.NoError(t, warehouse.Close())
	})
	return Source{Control: control, Warehouse: warehouse}
}

// copied opens a copy of a fixture.
func copied(t testing.TB, from string) Source {
	dir := t.TempDir()
	require.NoError(t, copyDir(from, dir))
	return open(t, dir)
}
