package store

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"icecore/store/warehouse"
	"icecore/trace"
)

// The Arrow face of each table and its SQL must name the same columns with the
// same types, in the same order.
func TestTablesMatchMigrations(t *testing.T) {
	s := open(t, Options{})
	sqlTypes := map[string]string{"int64": "BIGINT", "int32": "INTEGER", "float64": "DOUBLE", "utf8": "VARCHAR", "binary": "BLOB",
		"bool": "BOOLEAN", "timestamp[us, tz=UTC]": "TIMESTAMP WITH TIME ZONE", ids.String(): "INTEGER[]", floats.String(): "FLOAT[]",
		spans.String(): `STRUCT("start" BIGINT, "version" BIGINT)[]`}
	for _, table := range append(journalled, tableDrains, tableGenerations, tableMergedTraces, tableTrajectories) {
		var want, have []string
		for _, f := range table.schema.Fields() {
			name, ok := sqlTypes[f.Type.String()]
			require.True(t, ok, f.Type.String())
			want = append(want, f.Name+" "+name)
		}
		rows, err := s.warehouse.(*warehouse.Engine).DB().Query(`SELECT column_name, data_type FROM duckdb_columns() WHERE schema_name = 'ice' AND table_name = ? ORDER BY column_index`, table.name)
		require.NoError(t, err)
		defer rows.Close() //nolint:errcheck,gocritic // a handful, and Err below says what went wrong
		for rows.Next() {
			var name, typ string
			require.NoError(t, rows.Scan(&name, &typ))
			have = append(have, name+" "+typ)
		}
		require.NoError(t, rows.Err())
		require.Equal(t, want, have, table.name)
	}
}

// drawTrace draws every field of a trace, going on from an earlier prompt.
func drawTrace(r *rapid.T, id string, history *[][]int32) *trace.Trace {
	ids := drawSequence(r, *history)
	*history = append(*history, ids)
	n := rapid.IntRange(0, len(ids)).Draw(r, "prompt")
	str := rapid.SampledFrom([]string{"", "a", "b c", "ü"})
	num := rapid.SampledFrom([]*int64{nil, ptr(int64(0)), ptr(int64(3)), ptr(int64(1) << 60)})
	raw := rapid.SampledFrom([]string{"", `{}`, `{"a":[1,2.50]}`})
	text := func(name string) []byte {
		if s := raw.Draw(r, name); s != "" {
			return []byte(s)
		}
		return nil
	}
	t := &trace.Trace{TraceID: id, RolloutID: rapid.SampledFrom([]string{"r1", "r2"}).Draw(r, "rollout"), Seq: num.Draw(r, "seq"),
		PromptIDs: cut(r, ids[:n]), ResponseIDs: append([]int32{}, ids[n:]...), IDsIncomplete: rapid.Bool().Draw(r, "incomplete"),
		PolicyVersion: num.Draw(r, "version"), Status: rapid.SampledFrom(trace.Statuses).Draw(r, "status"),
		FinishReason: rapid.SampledFrom(append(trace.FinishReasons, "")).Draw(r, "finish"), ChoiceGroup: str.Draw(r, "group"),
		ChoiceIndex: num.Draw(r, "choice"), Kind: rapid.SampledFrom(trace.Kinds).Draw(r, "kind"),
		Attributes: trace.Attributes{TaskID: str.Draw(r, "task"), GroupID: str.Draw(r, "gid"), SampleIndex: num.Draw(r, "sample"),
			Harness: str.Draw(r, "harness"), HarnessVersion: str.Draw(r, "hv"), Model: str.Draw(r, "model")},
		Tokenizer: str.Draw(r, "tok"), API: str.Draw(r, "api"), ParentRolloutID: str.Draw(r, "parent"),
		ChatTemplateHash: str.Draw(r, "cth"), ToolsHash: str.Draw(r, "th"), Sampling: text("sampling"), Usage: text("usage"),
		Metadata: text("metadata"), Extra: text("extra"), Error: str.Draw(r, "error"), StartedAt: num.Draw(r, "started"),
		FirstTokenAt: num.Draw(r, "first"), FinishedAt: num.Draw(r, "finished"), RequestBody: text("request"), ResponseBody: text("response"),
		TextRepaired: rapid.Bool().Draw(r, "repaired")}
	switch rapid.IntRange(0, 9).Draw(r, "known") {
	case 0:
		t.PromptIDs = nil
	case 1:
		t.ResponseIDs = nil
		return t
	}
	if rapid.Bool().Draw(r, "logprobs") {
		t.ResponseLogprobs = &trace.Logprobs{Values: []float32{}}
		for range t.ResponseIDs {
			switch rapid.IntRange(0, 5).Draw(r, "lp") {
			case 0:
				t.ResponseLogprobs.AppendUnknown()
			case 1:
				t.ResponseLogprobs.Append(float32(math.NaN()))
			case 2:
				t.ResponseLogprobs.Append(float32(math.Inf(-1)))
			default:
				t.ResponseLogprobs.Append(-rapid.Float32Range(0, 9).Draw(r, "p"))
			}
		}
	}
	if len(t.ResponseIDs) > 1 && rapid.Bool().Draw(r, "spans") {
		t.PolicyVersionSpans = []trace.VersionSpan{{Start: 0, Version: 1}, {Start: 1, Version: 2}}
	}
	return t
}

// meaning puts what means the same into the same form.
func meaning(t *trace.Trace) string {
	c := *t
	c.PromptHash = nil
	prompt, bits := c.PromptIDs.Flat(), []string{}
	if l := c.ResponseLogprobs; l != nil {
		for i := range l.Values {
			v, known := l.At(i)
			bits = append(bits, fmt.Sprint(math.Float32bits(v), known))
		}
	}
	c.PromptIDs, c.ResponseLogprobs = nil, nil
	deref := ""
	for _, n := range []*int64{c.Seq, c.PolicyVersion, c.ChoiceIndex, c.Attributes.SampleIndex, c.StartedAt, c.FirstTokenAt, c.FinishedAt} {
		if n == nil {
			deref += "-,"
		} else {
			deref += fmt.Sprint(*n, ",")
		}
	}
	c.Seq, c.PolicyVersion, c.ChoiceIndex, c.Attributes.SampleIndex, c.StartedAt, c.FirstTokenAt, c.FinishedAt = nil, nil, nil, nil, nil, nil, nil
	return fmt.Sprintf("%v %v %v %v %s %+v", prompt == nil, prompt, t.ResponseLogprobs == nil, bits, deref, c)
}

// Everything that is stored comes back as it was, now and after a restart, and
// sending it again changes nothing.
func TestTracesComeBack(t *testing.T) {
	ctx := context.Background()
	opts := quiet(t, Options{DrainBytes: 1})
	s, err := Open(ctx, opts)
	require.NoError(t, err)
	var all []*trace.Trace
	runs := 0
	rapid.Check(t, func(r *rapid.T) {
		var history [][]int32
		var sent []*trace.Trace
		runs++
		for i := range rapid.IntRange(1, 6).Draw(r, "traces") {
			c := drawTrace(r, fmt.Sprint("t", runs, "-", i), &history)
			c.RolloutID += fmt.Sprint("-", runs)
			sent = append(sent, c)
		}
		for _, want := range []ItemStatus{Stored, Duplicate} {
			for at := 0; at < len(sent); {
				n := rapid.IntRange(1, len(sent)-at).Draw(r, "request")
				out, _, err := s.PutTraces(ctx, sent[at:at+n])
				require.NoError(r, err)
				for _, o := range out {
					require.Equal(r, want, o.Status, o.Err)
				}
				at += n
			}
		}
		comeBack(r, s, sent)
		all = append(all, sent...)
	})
	require.NoError(t, s.Close(ctx))
	s, err = Open(ctx, opts)
	require.NoError(t, err)
	comeBack(t, s, all)
	for _, o := range put(t, s, all...) {
		require.Equal(t, Duplicate, o.Status, o.Err)
	}
	require.NoError(t, s.Close(ctx))
}

func comeBack(t require.TestingT, s *Store, sent []*trace.Trace) {
	for _, w := range sent {
		have, err := s.Trace(context.Background(), w.TraceID, true)
		require.NoError(t, err)
		require.Equal(t, meaning(w), meaning(&have.Trace))
	}
}

// Each field is part of what a trace means: with another value it is a
// conflict. The fields are found by reflection, so a new one cannot be
// forgotten.
func TestEveryFieldIsContent(t *testing.T) {
	base := func() *trace.Trace {
		c := call("t", "r", []int32{1, 2}, []int32{3, 4})
		c.ResponseLogprobs = &trace.Logprobs{Values: []float32{-1, -2}}
		return c
	}
	seen := map[string]string{string(attributesDigest(base())): "unchanged"}
	change := func(name string, alter func(*trace.Trace)) {
		c := base()
		alter(c)
		d := string(attributesDigest(c))
		require.Empty(t, seen[d], "%s gives the same digest", name)
		seen[d] = name
	}
	skip := map[string]string{"PromptIDs": "hashed apart", "PromptPrefix": "resolved before", "PromptHash": "follows from the prompt",
		"TextRepaired": "says how the text came, not what it means"}
	var walk func(path []int, typ reflect.Type)
	walk = func(path []int, typ reflect.Type) {
		for i := range typ.NumField() {
			f, at := typ.Field(i), append(append([]int(nil), path...), i)
			if skip[f.Name] != "" {
				continue
			}
			if f.Type.Kind() == reflect.Struct {
				walk(at, f.Type)
				continue
			}
			change(f.Name, func(c *trace.Trace) {
				v := reflect.ValueOf(c).Elem().FieldByIndex(at)
				switch v.Interface().(type) {
				case *int64:
					v.Set(reflect.ValueOf(ptr(int64(77))))
				case bool:
					v.SetBool(!v.Bool())
				case []byte:
					v.SetBytes([]byte(`{"x":1}`))
				case []int32:
					v.Set(reflect.ValueOf([]int32{3, 5}))
				case *trace.Logprobs:
					v.Set(reflect.ValueOf(&trace.Logprobs{Values: []float32{-1, -3}}))
				case []trace.VersionSpan:
					v.Set(reflect.ValueOf([]trace.VersionSpan{{Start: 0, Version: 5}}))
				default:
					v.SetString("other")
				}
			})
		}
	}
	walk(nil, reflect.TypeFor[trace.Trace]())
	change("no log-probs", func(c *trace.Trace) { c.ResponseLogprobs = nil })
	change("an unknown log-prob", func(c *trace.Trace) { c.ResponseLogprobs.Known = []bool{true, false} })
	change("no response", func(c *trace.Trace) { c.ResponseIDs = nil })
	change("an empty response", func(c *trace.Trace) { c.ResponseIDs = []int32{} })
	nan := func(bits uint32) string {
		c := base()
		c.ResponseLogprobs.Values[0] = math.Float32frombits(bits)
		return string(attributesDigest(c))
	}
	require.Equal(t, nan(0x7fc00000), nan(0xffc12345), "all NaN mean the same")
}

// Of several traces that carry an attribute the first in order counts, whatever
// order they come in, and what is set on the rollout itself wins.
func TestAttributesDoNotDependOnArrival(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var ts []*trace.Trace
		for i := range rapid.IntRange(1, 6).Draw(r, "traces") {
			c := call(fmt.Sprint("t", i), "r", nil, nil)
			c.Seq = rapid.SampledFrom([]*int64{nil, ptr(int64(1)), ptr(int64(2))}).Draw(r, "seq")
			c.Attributes.TaskID = rapid.SampledFrom([]string{"", "x", "y"}).Draw(r, "task")
			c.Attributes.SampleIndex = rapid.SampledFrom([]*int64{nil, ptr(int64(0)), ptr(int64(4))}).Draw(r, "sample")
			ts = append(ts, c)
		}
		state := func(ts []*trace.Trace) string {
			var o Rollout
			for _, c := range ts {
				o.carry(c)
			}
			return fmt.Sprint(o.TaskID, " ", o.fromTraces["sample_index"].TraceID)
		}
		require.Equal(r, state(ts), state(rapid.Permutation(ts).Draw(r, "order")))
		var o Rollout
		for _, c := range ts {
			o.carry(c)
		}
		o.patch(&trace.RolloutPatch{TaskID: ptr("put")})
		o.carry(ts[0])
		require.Equal(r, "put", o.TaskID)
	})
}

func TestSecondProcessIsToldWhoHoldsTheDirectory(t *testing.T) {
	dir := t.TempDir()
	open(t, Options{Dir: dir, Owner: "icecore serve on 127.0.0.1:1"})
	_, err := Open(context.Background(), quiet(t, Options{Dir: dir}))
	require.ErrorIs(t, err, ErrLocked)
	require.ErrorContains(t, err, "icecore serve on 127.0.0.1:1")
	require.ErrorContains(t, err, fmt.Sprint("process ", os.Getpid()))
}

func TestDiskFloorRefuses(t *testing.T) {
	s := open(t, Options{})
	s.opts.DiskFloor = math.MaxInt64
	_, _, err := s.PutTraces(context.Background(), []*trace.Trace{call("t", "r", nil, nil)})
	require.ErrorIs(t, err, ErrDiskFull)
	require.ErrorIs(t, s.Ready(), ErrDiskFull)
	s.opts.DiskFloor = -1
	require.Equal(t, Stored, put(t, s, call("t", "r", nil, nil))[0].Status)
}

func TestBodiesAreReadBackAlongTheirChain(t *testing.T) {
	dir := t.TempDir()
	ctx := context.Background()
	s, err := Open(ctx, quiet(t, Options{Dir: dir}))
	require.NoError(t, err)
	body := func(i int) []byte {
		return []byte(`{"messages":["` + strings.Repeat("history ", 40*i) + fmt.Sprint(i) + `"]}`)
	}
	const n = 3*maxBodyChain + 5
	for i := range n {
		c := call(fmt.Sprint("t", i), "r", []int32{1}, []int32{int32(i)})
		c.RequestBody = body(i)
		if i%2 == 0 {
			c.ResponseBody = []byte(fmt.Sprint(i))
		}
		if i == n/2 { // a restart forgets what bodies were compressed against
			require.NoError(t, s.Close(ctx))
			s, err = Open(ctx, quiet(t, Options{Dir: dir}))
			require.NoError(t, err)
		}
		put(t, s, c)
	}
	for i := range n {
		got, err := s.Trace(ctx, fmt.Sprint("t", i), true)
		require.NoError(t, err)
		require.Equal(t, string(body(i)), string(got.RequestBody))
		require.Equal(t, i%2 == 0, got.ResponseBody != nil)
	}
	require.NoError(t, s.Close(ctx))
}

func TestLimitsOfTheMachine(t *testing.T) {
	whole := machineSize{memory: 8 << 30, cpus: 8}
	for name, c := range map[string]struct {
		files map[string]string
		want  machineSize
	}{
		"none":         {nil, whole},
		"v2":           {map[string]string{"/sys/fs/cgroup/memory.max": "1073741824\n", "/sys/fs/cgroup/cpu.max": "150000 100000\n"}, machineSize{1 << 30, 2}},
		"v2 unlimited": {map[string]string{"/sys/fs/cgroup/memory.max": "max\n", "/sys/fs/cgroup/cpu.max": "max 100000\n"}, whole},
		"v1": {map[string]string{"/sys/fs/cgroup/memory/memory.limit_in_bytes": "2147483648", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000",
			"/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"}, machineSize{2 << 30, 1}},
		"v1 unlimited": {map[string]string{"/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1"}, whole},
	} {
		got := whole.limited(func(path string) ([]byte, error) {
			if text, ok := c.files[path]; ok {
				return []byte(text), nil
			}
			return nil, os.ErrNotExist
		})
		require.Equal(t, c.want, got, name)
	}
}

// A prefix is resolved from memory and, when that is gone, from the warehouse.
func TestResolvePrefix(t *testing.T) {
	dir := t.TempDir()
	ctx := context.Background()
	for _, reopened := range []bool{false, true} {
		s, err := Open(ctx, quiet(t, Options{Dir: dir}))
		require.NoError(t, err)
		put(t, s, call("a", "r", []int32{1, 2}, []int32{3}), call("elsewhere", "q", []int32{9}, nil))
		got, err := s.ResolvePrefix(ctx, "r", "a", 3)
		require.NoError(t, err)
		require.Equal(t, []int32{1, 2, 3}, got.Flat())
		for _, bad := range []struct {
			rollout, trace string
			n              int
			field          string
		}{{"r", "a", 4, "length"}, {"r", "nobody", 1, "trace_id"}, {"r", "elsewhere", 1, "trace_id"}, {"nowhere", "a", 1, "trace_id"}} {
			_, err := s.ResolvePrefix(ctx, bad.rollout, bad.trace, bad.n)
			var fault *trace.Error
			require.ErrorAs(t, err, &fault, "reopened %v: %v", reopened, bad)
			require.Equal(t, trace.CodeUnknownPrefix, fault.Code)
			require.Equal(t, "prompt_prefix."+bad.field, fault.Field)
		}
		require.NoError(t, s.Close(ctx))
	}
}

// The index can be made again from warehouse and journal, and a control
// database that is older than its warehouse is not used.
func TestRebuildIndex(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	s, err := Open(ctx, quiet(t, Options{Dir: dir}))
	require.NoError(t, err)
	a := call("a", "r", []int32{1}, []int32{2})
	a.Attributes.Harness = "codex"
	put(t, s, a)
	_, batch, err := s.PutRewards(ctx, []*trace.Reward{{RewardID: "w", RolloutID: "r", Name: "outcome", Value: 0.5}})
	require.NoError(t, err)
	require.NoError(t, s.WaitDrained(ctx, batch))
	require.NoError(t, s.Close(ctx))
	require.NoError(t, os.Remove(filepath.Join(dir, controlFile)))

	_, err = Open(ctx, quiet(t, Options{Dir: dir}))
	require.ErrorContains(t, err, "--rebuild-index")
	s, err = Open(ctx, quiet(t, Options{Dir: dir, RebuildIndex: true}))
	require.NoError(t, err)
	require.Equal(t, Duplicate, put(t, s, a)[0].Status)
	require.Equal(t, Stored, put(t, s, call("b", "r", []int32{1}, []int32{3}))[0].Status)
	r, err := s.Rollout(ctx, "r")
	require.NoError(t, err)
	require.Equal(t, "codex", r.Harness)
	require.EqualValues(t, 2, r.Traces)
	rewards, err := s.Rewards(ctx, []int64{r.Key})
	require.NoError(t, err)
	require.Len(t, rewards[r.Key], 1)
	require.NoError(t, s.Close(ctx))
}

// Only what is checkpointed leaves the journal, so a log that cannot be
// replayed costs nothing.
func TestDamagedLogIsReplacedByTheJournal(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	s, err := Open(ctx, quiet(t, Options{Dir: dir}))
	require.NoError(t, err)
	for i := range 50 {
		put(t, s, call(fmt.Sprint("t", i), "r", []int32{1, int32(i)}, []int32{2}))
	}
	// What a kill leaves: the files as they are now.
	crashed := t.TempDir()
	for _, name := range []string{controlFile, controlFile + "-wal", warehouseFile, warehouseFile + ".wal"} {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		if strings.HasSuffix(name, ".duckdb.wal") {
			require.Greater(t, len(raw), 1000)
			for i := len(raw) / 2; i < 2*len(raw)/3; i++ {
				raw[i] ^= 0x5a
			}
		}
		require.NoError(t, os.WriteFile(filepath.Join(crashed, name), raw, 0o600))
	}
	require.NoError(t, s.Close(ctx))
	s, err = Open(ctx, quiet(t, Options{Dir: crashed}))
	require.NoError(t, err)
	for i := range 50 {
		got, err := s.Trace(ctx, fmt.Sprint("t", i), false)
		require.NoError(t, err)
		require.Equal(t, []int32{1, int32(i)}, got.PromptIDs.Flat())
	}
	st, err := s.Status(ctx)
	require.NoError(t, err)
	require.Contains(t, st.SetAside, "still in the journal")
	require.NoError(t, s.Close(ctx))
}

func TestDamagedFileIsSetAside(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	s, err := Open(ctx, quiet(t, Options{Dir: dir}))
	require.NoError(t, err)
	a := call("a", "r", []int32{1}, []int32{2})
	put(t, s, a)
	require.NoError(t, s.Close(ctx))
	require.NoError(t, os.WriteFile(filepath.Join(dir, warehouseFile), []byte(strings.Repeat("garbage ", 4096)), 0o600))
	s, err = Open(ctx, quiet(t, Options{Dir: dir}))
	require.NoError(t, err)
	aside, err := filepath.Glob(filepath.Join(dir, warehouseFile+".aside-*.report.txt"))
	require.NoError(t, err)
	require.Len(t, aside, 1)
	_, err = s.Trace(ctx, "a", false)
	require.ErrorIs(t, err, ErrNotFound)
	require.Equal(t, Stored, put(t, s, a)[0].Status, "what was lost can be sent again")
	require.NoError(t, s.Close(ctx))
}

// Such a path would open another file than the one named.
func TestPathsThatDuckDBMisreadsAreRefused(t *testing.T) {
	for _, name := range []string{"a?b", "a%20b", "a#b"} {
		_, err := Open(context.Background(), quiet(t, Options{Dir: filepath.Join(t.TempDir(), name)}))
		require.ErrorContains(t, err, "choose another")
	}
}
