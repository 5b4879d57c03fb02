package apptest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// varied stores rollouts that differ in everything a row can say, and gives
// their calls by id.
func varied(s *server) map[string]call {
	s.t.Helper()
	calls := map[string]call{}
	add := func(c call) call {
		calls[c.text("trace_id")] = c
		return c
	}
	a1 := add(plain("a", "a1", 1, ids(1, 2), ids(3, 9)).with("policy_version", int64(5), "finish_reason", "tool_calls",
		"sampling", json.RawMessage(`{"temperature":0.5,"top_p":1,"top_k":20,"logprobs_mode":"processed_logprobs"}`)))
	a2 := add(plain("a", "a2", 2, append(a1.whole(), 7), ids(8, 9)).with("response_logprobs", append(lps(math.NaN()), nil), "policy_version", int64(6),
		"policy_version_spans", []object{{"start": int64(0), "version": int64(6)}, {"start": int64(1), "version": int64(8)}}))
	a3 := add(plain("a", "a3", 3, append(a1.whole(), 6), ids(5, 4, 9)).with("response_logprobs", lps(math.Inf(-1), -1e-30, 0), "finish_reason", "length"))
	b1 := add(plain("b/ü", "b1", 1, ids(1), ids(2)).with("response_logprobs", nil, "policy_version", int64(7), "kind", "auxiliary",
		"sampling", json.RawMessage(`{"temperature":"hot"}`)))
	b2 := add(plain("b/ü", "b2", 2, ids(1), ids(3)).with("status", "client_gone", "policy_version", int64(9)))
	c1 := add(plain("c", "c1", 1, ids(1, 2, 3), ids(4)).with("policy_version", int64(3), "harness", "pi", "model", "m"))
	c2 := add(plain("c", "c2", 2, ids(1, 2, 4), ids(5)).with("policy_version", int64(4)))
	d1 := add(plain("d", "d1", 1, ids(1), ids()))
	e1 := add(plain("e", "e1", 1, ids(), ids(math.MaxInt32, 0)))
	f1 := add(plain("f", "f1", 1, ids(5), ids(6)).with("policy_version", int64(6)))
	s.traces(a1, a2, a3, b1, b2, c1, c2, d1, e1, f1).is(200)
	s.put("/v1/rollouts/a", object{"group_id": "g", "group_size": 2, "sample_index": 1, "split": "train", "task_id": "t", "harness": "codex"}).is(200)
	s.put("/v1/rollouts/b%2F%C3%BC", object{"group_id": "g", "split": "eval", "harness": "codex"}).is(200)
	for _, r := range []string{"a", "c", "f"} {
		s.post("/v1/rollouts/"+r+"/finish", object{"status": "succeeded"}).is(200)
	}
	s.post("/v1/traces/begin", object{"trace_id": "f2", "rollout_id": "f"}).is(200)
	s.post("/v1/rewards", []object{{"reward_id": "ra", "rollout_id": "a", "value": -0.1}, {"reward_id": "rc", "rollout_id": "c", "value": 1e-300},
		{"reward_id": "rt", "rollout_id": "f", "value": 1, "trace_id": "f1"}}).is(200)
	return calls
}

func TestExportedRows(t *testing.T) {
	t.Parallel()
	s := start(t)
	calls := varied(s)
	policies := []string{"", "policy=per_request", polar(9), "policy=polar_compat", url.Values{"policy": {"polar_compat(end_of_turn=9)"}}.Encode()}
	for _, policy := range policies {
		table := s.export(policy)
		lines, raw := s.exportLines(policy)
		require.Len(t, lines, len(table.rows))
		perRollout := map[string][]exported{}
		for i, x := range table.rows {
			sameRow(t, table, i, lines[i], raw[i])
			aligned(t, &x.trajectory, calls)
			perRollout[x.RolloutID] = append(perRollout[x.RolloutID], x)
		}
		for id, rows := range perRollout {
			m := s.merged(id, policy)
			require.Len(t, m.Trajectories, len(rows))
			trained := 0
			for i, x := range rows {
				require.Equal(t, m.Trajectories[i].TrajectoryID, x.TrajectoryID)
				require.Equal(t, m.Trajectories[i].TokenIDs, x.TokenIDs)
				require.Equal(t, m.Trajectories[i].Spans, x.Spans)
				require.Equal(t, m.Trajectories[i].Logprobs.bits(), x.Logprobs.bits())
				require.Equal(t, []int64{int64(i), int64(len(rows))}, []int64{x.RowInRollout, x.RolloutTrajectories})
				require.Equal(t, i == len(rows)-1, x.IsLast)
				require.Equal(t, int64(trainedTokens([]trajectory{x.trajectory})), x.TrainedTokens)
				require.Equal(t, int64(slices.Index(x.LossMask, 1)), x.PromptLength)
				trained += int(x.TrainedTokens)
			}
			require.Equal(t, int64(trained), rows[0].RolloutTrainedTokens)
		}
	}
	rows := map[string]exported{}
	for _, x := range s.export("").rows {
		rows[x.Spans[len(x.Spans)-1].TraceID] = x
	}
	a := rows["a2"]
	require.Equal(t, []any{"g", "t", "train", "codex", int64(2), int64(1), "succeeded", -0.1}, []any{*a.GroupID, *a.TaskID, *a.Split, *a.Harness, *a.GroupSize, *a.SampleIndex, *a.RolloutStatus, *a.Reward})
	require.Equal(t, []any{true, false, false}, []any{a.Complete, a.LogprobsComplete, a.Truncated})
	require.Equal(t, []int64{5, 8}, []int64{*a.PolicyVersionMin, *a.PolicyVersionMax})
	require.True(t, rows["a3"].Truncated)
	require.True(t, rows["a3"].LogprobsComplete, "its first span is not trained in this row, and not finite is known")
	require.False(t, rows["b1"].LogprobsComplete)
	require.False(t, rows["b1"].Complete)
	require.Nil(t, rows["b1"].Reward)
	require.Nil(t, rows["f1"].Reward, "a reward of a trace is not the rollout's")
	require.False(t, rows["f1"].Complete, "an announced call is missing")
	require.Nil(t, rows["e1"].PolicyVersionMin)
	require.NotContains(t, rows, "b2")
	require.NotContains(t, rows, "d1")
}

// sameRow compares a row of NDJSON with the same row of Arrow, column by column.
func sameRow(t *testing.T, table *arrowTable, i int, line exported, raw object) {
	t.Helper()
	require.Equal(t, slices.Sorted(maps.Keys(table.raw[i])), slices.Sorted(maps.Keys(raw)))
	require.Equal(t, table.rows[i].Logprobs.bits(), line.Logprobs.bits())
	for name, want := range table.raw[i] {
		if name != "logprobs" {
			require.JSONEq(t, string(encode(jsonOf(want))), string(encode(jsonOf(raw[name]))), name)
		}
	}
}

// jsonOf lets texts be values, not JSON.
func jsonOf(v any) any { return []any{v} }

func TestExportSchema(t *testing.T) {
	t.Parallel()
	s := start(t)
	for range 2 { // empty, and not
		schema := s.export("").schema
		got := map[string]string{}
		for _, f := range schema.Fields() {
			got[f.Name] = f.Type.String()
			if f.Nullable {
				got[f.Name] += "?"
			}
		}
		dictionary := "dictionary<values=utf8, indices=int32, ordered=false>"
		require.Equal(t, map[string]string{
			"trajectory_id": "utf8", "rollout_id": "utf8", "group_id": "utf8?", "task_id": "utf8?", "split": "utf8?",
			"harness": dictionary + "?", "model": dictionary + "?", "merge_policy": dictionary,
			"token_ids": "list<item: int32>", "loss_mask": "list<item: int8>", "logprobs": "list<item: float32, nullable>",
			"spans": "list<item: struct<trace_id: utf8, start: int32, end: int32, trainable: bool, policy_version: int64 nullable, policy_version_spans: list<item: struct<start: int64, version: int64>> nullable, " +
				"temperature: float64 nullable, top_p: float64 nullable, top_k: int64 nullable, logprobs_mode: utf8, status: utf8, finish_reason: utf8 nullable, kind: utf8>>",
			"prompt_length": "int32", "trained_tokens": "int32", "policy_version_min": "int64?", "policy_version_max": "int64?", "reward": "float64?",
			"group_size": "int64?", "sample_index": "int64?", "rollout_status": dictionary + "?", "complete": "bool", "rollout_trajectories": "int32",
			"rollout_trained_tokens": "int64", "row_in_rollout": "int32", "is_last": "bool", "logprobs_complete": "bool", "truncated": "bool", "history_rewritten": "bool",
		}, got)
		version, _ := schema.Metadata().GetValue("icecore.schema_version")
		require.Equal(t, "1", version)
		varied(s)
	}
}

func TestExportFilters(t *testing.T) {
	t.Parallel()
	s := start(t)
	varied(s)
	for query, want := range map[string][]string{
		"":                          {"a2", "a3", "b1", "c1", "c2", "e1", "f1"},
		"rollout_id=a":              {"a2", "a3"},
		"rollout_id=a&rollout_id=f": {"a2", "a3", "f1"},
		"group_id=g":                {"a2", "a3", "b1"},
		"harness=pi":                {"c1", "c2"},
		"model=m":                   {"c1", "c2"},
		"task_id=t":                 {"a2", "a3"},
		"split=train":               {"a2", "a3"},
		"split=train&split=eval":    {"a2", "a3", "b1"},
		"split=eval&harness=pi":     {},
		"complete=true":             {"a2", "a3", "c1", "c2"},
		"complete=false":            {"b1", "e1", "f1"},
		"status=succeeded":          {"a2", "a3", "c1", "c2", "f1"},
		"policy_version_min=4":      {"a2", "a3", "b1", "c2", "f1"},
		"policy_version_min=5":      {"a2", "a3", "b1", "f1"},
		"policy_version_min=6":      {"b1", "f1"},
		"policy_version_max=7":      {"a3", "b1", "c1", "c2", "f1"},
		"policy_version_max=8":      {"a2", "a3", "b1", "c1", "c2", "f1"},
		"policy_version_min=4&policy_version_max=6": {"a3", "c2", "f1"},
		"policy_version_max=0":                      {},
		"rollout_id=nobody":                         {},
	} {
		got := []string{}
		for _, x := range s.export(query).rows {
			got = append(got, x.Spans[len(x.Spans)-1].TraceID)
		}
		require.Equal(t, want, got, query)
		rows, _ := s.exportLines(query)
		require.Len(t, rows, len(want))
	}
	for _, query := range []string{"x=1", "polic=strict_tree", "rollout=a", "policy=best", "policy=polar_compat(end_of_turn=x)", "end_of_turn=9", "policy=polar_compat&end_of_turn=-1",
		"policy=polar_compat&end_of_turn=2147483648", "limit=0", "limit=-1", "limit=a", "cursor=abc", "cursor=MS4xLjE9", "format=csv", "complete=2", "policy_version_min=x", "policy_version_max=1.5"} {
		s.get("/v1/trajectories?"+query).problem(400, "invalid_parameter")
	}
	s.get("/v1/trajectories", "Accept", "text/html").problem(406, "not_acceptable")
	s.get("/v1/rollouts/nobody/trajectories").problem(404, "not_found")
	s.get("/v1/rollouts/a/trajectories?x=1").problem(400, "invalid_parameter")
}

// Whatever the page size, the pages together are the whole export.
func TestEveryPageSize(t *testing.T) {
	t.Parallel()
	s := start(t)
	varied(s)
	for _, query := range []string{"", "policy=per_request", "policy_version_min=4", "complete=true&" + polar(9)} {
		whole := s.export(query).rows
		for size := 1; size <= len(whole)+1; size++ {
			var rows []exported
			cursor := ""
			for {
				page := s.export(query + "&limit=" + itoa(size) + cursor)
				require.LessOrEqual(t, len(page.rows), size)
				rows = append(rows, page.rows...)
				if page.next == "" {
					break
				}
				cursor = "&cursor=" + page.next
				require.Len(t, page.rows, size)
			}
			require.Equal(t, encodeRows(whole), encodeRows(rows), "%s in pages of %d", query, size)
		}
	}
}

// encodeRows makes rows comparable: NaN equals itself in JSON's words.
func encodeRows(rows []exported) string { return string(encode(rows)) }

func TestExportCodecs(t *testing.T) {
	t.Parallel()
	s := start(t)
	long := make([]int32, 20000)
	s.traces(plain("long", "l", 1, long, ids(1))).is(200)
	varied(s)
	bare := s.get("/v1/trajectories").is(200)
	want := encodeRows(s.export("").rows)
	for accept, packed := range map[string]bool{
		typeArrow: false, "*/*": false, "application/*": false, "": false, typeArrow + `; codecs="zstd, lz4"`: true, typeArrow + `;codecs="lz4"`: true,
		typeArrow + "; codecs=zstd": true, typeArrow + `; codecs="brotli"`: false, typeArrow + `; codecs="brotli,lz4"`: true,
		"text/html, " + typeArrow + `; codecs="zstd"; q=0.5, */*;q=0.1`: true,
	} {
		a := s.get("/v1/trajectories", "Accept", accept).is(200)
		require.Empty(t, a.header.Get("Content-Encoding"))
		require.Equal(t, packed, len(a.body) < len(bare.body)/2, accept)
		require.Equal(t, want, encodeRows(s.export("", "Accept", accept).rows), accept)
	}
	require.Equal(t, "2", py(t, `
import sys, pyarrow as pa
t = pa.ipc.open_stream(sys.stdin.buffer).read_all(); t.validate(full=True)
print(t.num_rows - 6, end="")`, s.get("/v1/trajectories", "Accept", typeArrow+`; codecs="lz4"`).body))
	// A client that asks for an HTTP coding gets none on top.
	a := s.get("/v1/trajectories", "Accept-Encoding", "gzip, zstd").is(200)
	require.Empty(t, a.header.Get("Content-Encoding"))
}

// What was acknowledged is in the next answer, without waiting.
func TestReadYourWrites(t *testing.T) {
	t.Parallel()
	s := start(t, "--drain-every=1h", "--merge-quiet=1h")
	for i := range 15 {
		id := fmt.Sprintf("ryw-%d", i)
		first := plain(id, id+"-1", 1, ids(1, int32(i)), ids(2))
		s.traces(first).is(200)
		require.Len(t, s.merged(id, "").Trajectories, 1)
		require.Len(t, s.export("rollout_id="+id).rows, 1)
		require.Len(t, s.export("").rows, 2*i+1)
		// Late: merged again, and the reward with it.
		s.traces(plain(id, id+"-3", 3, ids(8), ids(9))).is(200)
		s.post("/v1/rewards", object{"reward_id": id, "rollout_id": id, "value": i}).is(200)
		rows := s.export("rollout_id=" + id).rows
		require.Len(t, rows, 2)
		require.Equal(t, float64(i), *rows[1].Reward)
		require.Len(t, s.merged(id, "policy=per_request").Trajectories, 2)
		s.traces(plain(id, id+"-2", 2, append(first.whole(), 5), ids(6))).is(200)
		rows = s.export("rollout_id=" + id).rows
		require.Len(t, rows, 2)
		require.Len(t, rows[0].Spans, 2)
		var page struct{ Traces []object }
		s.get("/v1/rollouts/" + id + "/traces").is(200).into(&page)
		require.Len(t, page.Traces, 3)
	}
}

// A late trace in front of a cursor does not disturb the pages behind it.
func TestCursorAndLateTraces(t *testing.T) {
	t.Parallel()
	s := start(t)
	for i := range 6 {
		s.traces(plain(fmt.Sprintf("l%d", i), fmt.Sprintf("l%d", i), 1, ids(int32(i)), ids(1))).is(200)
	}
	first := s.export("limit=3")
	s.traces(plain("l0", "l0-late", 2, ids(99), ids(1)), plain("l4", "l4-late", 2, ids(99), ids(1)), plain("l9", "l9", 1, ids(9), ids(1))).is(200)
	rest := s.export("cursor=" + first.next)
	var got []string
	for _, x := range slices.Concat(first.rows, rest.rows) {
		got = append(got, x.Spans[0].TraceID)
	}
	require.Equal(t, []string{"l0", "l1", "l2", "l3", "l4", "l4-late", "l5", "l9"}, got)
}

func TestHarnesses(t *testing.T) {
	t.Parallel()
	s := start(t)
	varied(s)
	for _, policy := range []string{"", "policy=per_request", polar(9)} {
		var got struct {
			Policy    string
			Harnesses []struct {
				Harness      *string
				Rollouts     int
				Traces       int
				Trajectories int
				Sampled      int `json:"sampled_tokens"`
				Trained      int `json:"trained_tokens"`
				Dispositions map[string]int
			}
		}
		s.get("/v1/harnesses?" + policy).is(200).into(&got)
		traces, rows := 0, 0
		for _, h := range got.Harnesses {
			sum := 0
			for _, n := range h.Dispositions {
				sum += n
			}
			require.Equal(t, h.Traces, sum)
			traces += h.Traces
			rows += h.Trajectories
		}
		require.Equal(t, 10, traces)
		require.Len(t, s.export(policy).rows, rows)
	}
}

// pyarrow, which learners use, reads the stream, finds it valid to the last
// buffer, and the same as the JSON.
func TestPyarrowReadsTheStream(t *testing.T) {
	t.Parallel()
	s := start(t)
	varied(s)
	out := py(t, `
import json, struct, sys, urllib.request
import pyarrow as pa
base = sys.argv[1]
def bits(v):
    return None if v is None else "nan" if v != v else struct.pack("<f", v)
for query in ["", "policy=per_request&", "policy=polar_compat&end_of_turn=9&", "rollout_id=nobody&"]:
    with urllib.request.urlopen(base + "/v1/trajectories?" + query) as answer:
        headers = answer.headers
        table = pa.ipc.open_stream(answer).read_all()
    table.validate(full=True)
    assert table.num_rows == int(headers["Icecore-Rows"]) == int(table.schema.metadata[b"icecore.rows"])
    lines = urllib.request.urlopen(base + "/v1/trajectories?" + query + "format=ndjson").read().decode().splitlines()
    rows = table.to_pylist()
    assert len(rows) == len(lines), (len(rows), len(lines))
    for row, line in zip(rows, lines):
        want = json.loads(line)
        a, b = row.pop("logprobs"), want.pop("logprobs")
        assert [bits(v) for v in a] == [bits(None if v is None else float(v)) for v in b], (a, b)
        assert row == want, (row, want)
        assert len(a) == len(row["token_ids"]) == len(row["loss_mask"])
    print(len(rows), end=" ")
`, nil, s.url)
	require.Regexp(t, `^7 \d+ \d+ 0 $`, out)
}

func TestEmptyExport(t *testing.T) {
	t.Parallel()
	s := start(t)
	a := s.get("/v1/trajectories").is(200)
	require.Equal(t, "0", a.header.Get("Icecore-Rows"))
	require.Empty(t, s.export("").rows)
	require.Equal(t, "0 29", py(t, `
import sys, pyarrow as pa
r = pa.ipc.open_stream(sys.stdin.buffer); t = r.read_all()
print(t.num_rows, t.num_columns + 1, end="")`, a.body))
	require.Equal(t, []byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}, a.body[len(a.body)-8:], "the end marker is there")
	rows, _ := s.exportLines("")
	require.Empty(t, rows)
	require.True(t, bytes.HasPrefix(a.body, []byte{0xff, 0xff, 0xff, 0xff}))
}

// A rollout that was begun on one page ends on the next as it was: a late trace
// that changes the order of its rows neither repeats nor hides one.
func TestCursorInsideARolloutThatChanges(t *testing.T) {
	t.Parallel()
	s := start(t)
	for i := range int32(4) {
		s.traces(plain("in", fmt.Sprint("leaf", i), int64(10+i), ids(i), ids(9))).is(200)
	}
	var before []string
	for _, r := range s.export("rollout_id=in").rows {
		before = append(before, r.TrajectoryID)
	}
	require.Len(t, before, 4)
	page := s.export("rollout_id=in&limit=2")
	s.traces(plain("in", "late", 1, ids(7), ids(8)), plain("in", "later", 99, ids(6), ids(8))).is(200)
	require.Len(t, s.export("rollout_id=in").rows, 6)
	rest := s.export("rollout_id=in&cursor=" + page.next)
	var got []string
	for _, r := range append(page.rows, rest.rows...) {
		got = append(got, r.TrajectoryID)
	}
	require.Equal(t, before, got)
}
