package apptest

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// everything sets every field of the contract.
func everything(rollout, trace string) call {
	return call{
		"trace_id": trace, "rollout_id": rollout, "seq": int64(9007199254740993),
		"prompt_token_ids": ids(1, 2, 3), "response_token_ids": ids(4, 5, 6, 7),
		"response_logprobs": append(lps(-0.25, math.NaN(), math.Inf(-1)), nil),
		"ids_incomplete":    true, "policy_version": int64(41),
		"policy_version_spans": []object{{"start": int64(0), "version": int64(41)}, {"start": int64(2), "version": int64(42)}},
		"status":               "aborted", "finish_reason": "length", "choice_group": "g", "choice_index": int64(1), "kind": "auxiliary",
		"task_id": "task", "group_id": "group", "sample_index": int64(3), "harness": "codex", "harness_version": "1.2", "model": "m",
		"tokenizer": "qwen", "api": "openai.chat", "parent_rollout_id": "parent", "chat_template_hash": "c0ffee", "tools_hash": "beef",
		"sampling": json.RawMessage(`{"temperature":0.7,"top_k":20,"top_p":0.9}`), "usage": json.RawMessage(`{"prompt_tokens":9007199254740993}`),
		"metadata":   json.RawMessage(`{"a":[1,2.50,{"x":null}],"b":"ü\u20ac"}`),
		"started_at": "2026-01-31T09:30:00.123456Z", "first_token_at": "2026-01-31T09:30:01Z", "finished_at": "2026-01-31T09:30:02.5Z",
		"error": "broke off", "request": json.RawMessage(`{"messages": [ ]}`), "response": json.RawMessage(`"\u00e9 done"`),
		"colour": "red",
	}
}

// Other content in any single field is a conflict, and changes nothing.
func TestConflictInEachField(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, sent := range []call{everything("con", "full"), plain("con", "bare", 1, ids(1, 2, 3), ids(4, 5, 6, 7))} {
		require.Equal(t, "stored", s.traces(sent).one())
		before := s.get(path("traces", sent.text("trace_id")) + "?include=bodies").is(200).body
		for name, other := range map[string]any{
			"rollout_id": "con2", "seq": int64(9007199254740992), "prompt_token_ids": ids(1, 2, 4), "response_token_ids": ids(4, 5, 6, 8),
			"response_logprobs": append(lps(-0.25, math.NaN(), math.Inf(1)), nil),
			"ids_incomplete":    sent["ids_incomplete"] == nil, "policy_version": int64(40),
			"policy_version_spans": []object{{"start": int64(0), "version": int64(41)}, {"start": int64(3), "version": int64(42)}},
			"status":               "client_gone", "finish_reason": "stop", "choice_group": "h", "choice_index": int64(2),
			"kind":    map[bool]string{true: "agent", false: "auxiliary"}[sent["kind"] != nil],
			"task_id": "task2", "group_id": "group2", "sample_index": int64(4), "harness": "pi", "harness_version": "1.3", "model": "m2",
			"tokenizer": "other", "api": "anthropic", "parent_rollout_id": "p2", "chat_template_hash": "1", "tools_hash": "2",
			"sampling": json.RawMessage(`{"temperature":0.8,"top_k":20,"top_p":0.9}`), "usage": json.RawMessage(`{"prompt_tokens":9007199254740992}`),
			"metadata":   json.RawMessage(`{"a":[1,2.5,{"x":null}],"b":"ü€"}`),
			"started_at": "2026-01-31T09:30:00.123457Z", "first_token_at": "2026-01-31T09:30:01.1Z", "finished_at": "2026-01-31T09:30:03Z",
			"error": "other", "request": json.RawMessage(`{"messages":[]}`), "response": json.RawMessage(`"é done"`), "colour": "blue",
		} {
			list := s.traces(sent.with(name, other)).is(422).items()
			require.Equal(t, "conflict", list.Items[0].outcome(), name)
			require.Equal(t, sent.text("trace_id"), list.Items[0].ID)
			if _, has := sent[name]; has && name != "rollout_id" {
				gone := sent.with(name, nil)
				if name == "response_token_ids" {
					gone = gone.with("response_logprobs", nil, "policy_version_spans", nil)
				}
				require.Equal(t, "conflict", s.traces(gone).is(422).one(), "without %s", name)
			}
		}
		// Known is not unknown, and empty is not absent.
		require.Equal(t, "conflict", s.traces(sent.with("response_logprobs", append(lps(-0.25, math.NaN(), math.Inf(-1)), ptr(float32(0))))).one())
		require.Equal(t, "conflict", s.traces(sent.with("prompt_token_ids", ids())).one())
		require.Equal(t, before, s.get(path("traces", sent.text("trace_id"))+"?include=bodies").is(200).body)
		require.Equal(t, "duplicate", s.traces(sent).one())
	}
	s.get(path("rollouts", "con2")).problem(404, "not_found")
}

// The same meaning in other words is a duplicate.
func TestDuplicateInOtherWords(t *testing.T) {
	t.Parallel()
	s := start(t)
	full := everything("dup", "full")
	bare := plain("dup", "bare", 1, ids(1, 2, 3), ids(4, 5)).with("response_logprobs", lps(-0.30000001192092896, 0))
	empty := call{"trace_id": "empty", "rollout_id": "dup", "prompt_token_ids": ids(), "response_token_ids": ids(), "response_logprobs": logprobs{}}
	s.traces(full, bare, empty).is(200).all("stored", 3)
	for name, c := range map[string]call{
		"key order and white space": full.with("metadata", json.RawMessage("{ \"b\" : \"\\u00fc\u20ac\",\n\"a\":[1,2.50,{\"x\":null}]}")),
		"sampling's key order":      full.with("sampling", json.RawMessage(`{"top_p":0.9,"top_k":20,"temperature":0.7}`)),
		"time zones":                full.with("started_at", "2026-01-31T14:00:00.123456+04:30", "finished_at", "2026-01-31T09:30:02.500000Z"),
		"finer than microseconds":   full.with("started_at", "2026-01-31T09:30:00.123456789Z"),
		"escapes":                   full.with("harness", json.RawMessage(`"c\u006fde\u0078"`), "model", json.RawMessage(`"\u006d"`)),
		"null is absent":            bare.with("metadata", json.RawMessage("null"), "request", json.RawMessage("null"), "policy_version_spans", json.RawMessage("null")),
		"said defaults":             bare.with("status", "ok", "kind", "agent", "ids_incomplete", false, "policy_version_spans", json.RawMessage("[]")),
		"empty texts":               bare.with("finish_reason", "", "model", "", "choice_group", ""),
		"other decimals":            bare.with("response_logprobs", json.RawMessage(`[-0.3, 0.000e5]`)),
		"the hash beside it":        bare.with("prompt_hash", hash(ids(1, 2, 3))),
		"NaN as a bare word":        full.with("response_logprobs", json.RawMessage(`[-0.25,NaN,-Infinity,null]`)),
		"NaN as a string":           full.with("response_logprobs", json.RawMessage(`[-25e-2,"NaN","-Infinity", null ]`)),
		"a prefix":                  bare.prefixed(full, 99),
		"a prefix of nothing":       bare.prefixed(full, 0),
	} {
		require.Equal(t, "duplicate", s.traces(c).one(), name)
		c = c.with("response_token_ids", ids(8, 8, 8, 8)).with("response_logprobs", nil)
		require.Equal(t, "conflict", s.traces(c).one(), name)
	}

	all := []call{full, bare, empty}
	s.send("POST", "/v1/traces", arrowOf(all, 2), "Content-Type", typeArrow).is(200).all("duplicate", 3)
	payload := math.Float32frombits(0xffc00123)
	nan := full.with("response_logprobs", logprobs{ptr(float32(-0.25)), &payload, ptr(float32(math.Inf(-1))), nil})
	s.send("POST", "/v1/traces", arrowOf([]call{nan}, 1), "Content-Type", typeArrow).is(200).all("duplicate", 1)
	s.send("POST", "/v1/traces", arrowOf([]call{full.with("request", json.RawMessage(" {\"messages\": [ ]}\n"))}, 1), "Content-Type", typeArrow).all("duplicate", 1)

	// Minus zero is another value, and so is a known zero in place of null.
	require.Equal(t, "conflict", s.traces(bare.with("response_logprobs", json.RawMessage(`[-0.3,-0.0]`))).one())
	require.Equal(t, "conflict", s.traces(empty.with("response_logprobs", nil)).one())
	require.Equal(t, "conflict", s.traces(empty.with("prompt_token_ids", nil)).one())
}

// A prefix is resolved against what is stored or stands earlier in the request,
// of the same rollout, and never guessed.
func TestPrefixes(t *testing.T) {
	t.Parallel()
	s := start(t)
	base := plain("pre", "base", 1, ids(1, 2, 3), ids(4, 5))
	next := plain("pre", "next", 2, ids(1, 2, 3, 4, 5, 6), ids(7))
	third := plain("pre", "third", 3, append(next.whole(), 8), ids(9))
	// Before its base: refused, nothing stored.
	list := s.traces(next.prefixed(base, 99), base).is(207).items()
	require.Equal(t, []string{"unknown_prefix", "stored"}, []string{list.Items[0].outcome(), list.Items[1].outcome()})
	s.get(path("traces", "next")).problem(404, "not_found")
	// After it, in one request, also one upon the other.
	s.traces(next.prefixed(base, 99), third.prefixed(next, 99)).is(200).all("stored", 2)
	s.traces(base, next, third).is(200).all("duplicate", 3)

	sha := func(c call) call { return c.with("prompt_hash", hash(c.ids("prompt_token_ids"))) }
	for name, c := range map[string]call{
		"longer than its base": sha(plain("pre", "x", 4, ids(1, 2, 3, 4, 5, 6), nil)).with("prompt_prefix", object{"trace_id": "base", "length": 6}),
		"another hash":         plain("pre", "x", 4, ids(9), nil).with("prompt_prefix", object{"trace_id": "base", "length": 5}, "prompt_hash", hash(ids(1))),
		"another rollout":      sha(plain("pre2", "x", 4, ids(), nil)).with("prompt_prefix", object{"trace_id": "base", "length": 0}),
		"itself":               sha(plain("pre", "x", 4, ids(), nil)).with("prompt_prefix", object{"trace_id": "x", "length": 0}),
	} {
		require.Equal(t, "unknown_prefix", s.traces(c).is(422).one(), name)
	}
	for name, prefix := range map[string]string{"negative": `{"trace_id":"base","length":-1}`, "too large": `{"trace_id":"base","length":2147483648}`,
		"fraction": `{"trace_id":"base","length":1.5}`, "unknown field": `{"trace_id":"base","length":1,"x":1}`, "a list": `[]`} {
		require.Equal(t, "invalid_field", s.traces(plain("pre", "x", 4, ids(), nil).with("prompt_prefix", json.RawMessage(prefix), "prompt_hash", hash(nil))).is(422).one(), name)
	}
	s.get(path("traces", "x")).problem(404, "not_found")
	s.get(path("rollouts", "pre2")).problem(404, "not_found")

	// A base whose ids are not known cannot be gone on from.
	s.traces(call{"trace_id": "dark", "rollout_id": "pre", "response_token_ids": ids(4)}).all("stored", 1)
	require.Equal(t, "unknown_prefix", s.traces(plain("pre", "x", 4, ids(), nil).with("prompt_prefix", object{"trace_id": "dark", "length": 1}, "prompt_hash", hash(ids(4)))).is(422).one())

	// Also when the server has forgotten what it held in memory.
	s.stop()
	again := startOn(t, s.dir, nil)
	require.Equal(t, "stored", again.traces(plain("pre", "fourth", 4, append(third.whole(), 1), ids(2)).prefixed(third, 99)).one())
	var got call
	again.get(path("traces", "fourth")).is(200).into(&got)
	require.Equal(t, "[1 2 3 4 5 6 7 8 9 1]", fmt.Sprint(got["prompt_token_ids"]))
}
