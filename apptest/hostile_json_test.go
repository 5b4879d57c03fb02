package apptest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A document cut at any byte is refused as a whole and stores nothing; whole it
// is taken.
func TestJSONCutAtEveryByte(t *testing.T) {
	t.Parallel()
	s := start(t)
	c := everything("cut", "cut").json()
	for n := range len(c) {
		s.post("/v1/traces", c[:n]).problem(400, "invalid_json")
	}
	// One of two lines: the other is stored.
	for _, n := range []int{1, len(c) / 3, len(c) - 1} {
		body := append(append(append([]byte{}, c[:n]...), '\n'), plain("cut", "whole-"+itoa(n), 1, ids(1), ids(2)).json()...)
		list := s.send("POST", "/v1/traces", body, "Content-Type", typeNDJSON).is(207).items()
		require.Equal(t, []string{"invalid_json", "stored"}, []string{list.Items[0].outcome(), list.Items[1].outcome()})
	}
	s.get("/v1/traces/cut").problem(404, "not_found")
	require.Equal(t, "stored", s.post("/v1/traces", c).is(200).one())
	for _, p := range []string{"/v1/rewards", "/v1/traces/begin"} {
		small := `{"reward_id":"w","trace_id":"w","rollout_id":"cut","value":1}`
		for n := range len(small) {
			s.post(p, small[:n]).problem(400, "invalid_json")
		}
	}
	for n := range len(`{"status":"failed"}`) {
		s.post("/v1/rollouts/cut/finish", `{"status":"failed"}`[:n]).problem(400, "invalid_json")
		s.put("/v1/rollouts/cut2", `{"harness": "claude"}`[:n]).problem(400, "invalid_json")
	}
	s.get("/v1/rollouts/cut2").problem(404, "not_found")
}

// Each field takes its own type and no other.
func TestWrongTypes(t *testing.T) {
	t.Parallel()
	s := start(t)
	values := map[string]string{"text": `"x"`, "number": `7`, "fraction": `1.5`, "bool": `true`, "object": `{}`, "list": `[]`, "list of texts": `["1"]`,
		"list of lists": `[[1]]`, "list of nulls": `[null,null,null,null]`, "exponent": `1e3`, "huge": `123456789012345678901234567890`, "negative": `-1`}
	takes := map[string]string{"seq": "number", "policy_version": "number", "choice_index": "number", "sample_index": "number", "ids_incomplete": "bool",
		"sampling": "object", "usage": "object", "metadata": "object", "error": "text number fraction bool object list list of texts list of lists list of nulls exponent huge negative"}
	for _, name := range []string{"trace_id", "rollout_id", "task_id", "group_id", "harness", "harness_version", "model", "tokenizer", "api", "parent_rollout_id", "chat_template_hash", "tools_hash", "choice_group"} {
		takes[name] = "text"
	}
	for _, name := range []string{"status", "kind", "finish_reason", "prompt_hash", "started_at", "first_token_at", "finished_at", "prompt_prefix"} {
		takes[name] = "nothing"
	}
	takes["policy_version_spans"], takes["prompt_token_ids"], takes["response_token_ids"] = "list", "list", "list"
	takes["response_logprobs"] = "list of nulls"
	n := 0
	for name, kinds := range takes {
		for kind, value := range values {
			n++
			c := everything("types", fmt.Sprintf("ty-%d", n)).with(name, json.RawMessage(value))
			if name == "response_token_ids" {
				c = c.with("response_logprobs", nil, "policy_version_spans", nil)
			}
			got := s.traces(c).one()
			taken := kinds == kind || name == "error" && strings.Contains(kinds, kind)
			require.Equal(t, taken, got == "stored", "%s = %s: %s", name, value, got)
			require.Contains(t, []string{"stored", "invalid_field", "invalid_token_id", "length_mismatch", "missing_field"}, got, "%s = %s", name, value)
		}
	}
}

func TestTokenIDsAndNumbers(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, bad := range []string{"2147483648", "-1", "-0", "1.5", "1e3", "1E0", "1.0", "4294967296", "18446744073709551617", "null", `"1"`, "true", "[]", "NaN"} {
		for _, name := range []string{"prompt_token_ids", "response_token_ids"} {
			c := call{"trace_id": "n", "rollout_id": "n", name: json.RawMessage("[1, " + bad + "]")}
			a := s.traces(c)
			if bad == "NaN" {
				a.problem(400, "invalid_json")
				continue
			}
			list := a.is(422).items()
			require.Equal(t, "invalid_token_id", list.Items[0].Code, bad)
			require.Contains(t, list.Items[0].Message, name+"[1]")
		}
	}
	for _, syntax := range []string{"01", "+1", ".5", "1.", "0x10", "1 2", "1,", ",1", "--1", "1e", "Infinity", "nul"} {
		s.traces(call{"trace_id": "n", "rollout_id": "n", "prompt_token_ids": json.RawMessage("[" + syntax + "]")}).problem(400, "invalid_json")
	}
	// Bare NaN and Infinity are words of log-probs alone.
	for _, name := range []string{"seq", "metadata", "request", "harness", "prompt_token_ids", "colour", "usage"} {
		for _, value := range []string{"NaN", `{"a":NaN}`, "[-Infinity]", "Infinity"} {
			s.traces(call{"trace_id": "n", "rollout_id": "n", name: json.RawMessage(value)}).problem(400, "invalid_json")
		}
	}
	for _, bad := range []string{`"nan"`, `"inf"`, `"1.5"`, `true`, `1e39`, `[]`, `"Infinity "`} {
		got := s.traces(plain("n", "n", 1, ids(1), ids(2)).with("response_logprobs", json.RawMessage("["+bad+"]"))).is(422).one()
		require.Equal(t, "invalid_field", got, bad)
	}
	for _, bad := range []string{"nan", "-NaN", "+Infinity", "infinity", "NAN", "Inf"} {
		s.traces(plain("n", "n", 1, ids(1), ids(2)).with("response_logprobs", json.RawMessage("["+bad+"]"))).problem(400, "invalid_json")
	}
	s.get("/v1/rollouts/n").problem(404, "not_found")
	for i, good := range []string{"9223372036854775807", "0"} {
		require.Equal(t, "stored", s.traces(call{"trace_id": "good" + itoa(i), "rollout_id": "n", "seq": json.RawMessage(good), "prompt_token_ids": json.RawMessage("[2147483647,0]")}).one())
	}
	require.Equal(t, "invalid_field", s.traces(call{"trace_id": "n", "rollout_id": "n", "seq": json.RawMessage("9223372036854775808")}).one())
	require.Contains(t, string(s.get("/v1/traces/good0").body), `"seq":9223372036854775807`)
}

// Text that is no Unicode is repaired and flagged; in an id it is refused; in a
// body it stays.
func TestTextThatIsNoUnicode(t *testing.T) {
	t.Parallel()
	s := start(t)
	for i, bad := range []string{`"\ud800"`, `"a\udc00b"`, `"\ud800\ud800"`, `"\ud83dx"`, "\"\xff\"", "\"\xed\xa0\x80\"", "\"\xc3\""} {
		id := "text-" + itoa(i)
		c := plain("text", id, 1, ids(1), ids(2)).with("harness_version", json.RawMessage(bad), "request", json.RawMessage(bad))
		require.Equal(t, "stored", s.traces(c).one(), "%q", bad)
		a := s.get("/v1/traces/" + id + "?include=bodies").is(200)
		require.Contains(t, string(a.body), `"text_repaired":true`)
		require.Contains(t, string(a.body), `"request":`+bad)
		var got struct {
			Harness string `json:"harness_version"`
			Stored  struct {
				TextRepaired bool `json:"text_repaired"`
			}
		}
		require.NoError(t, json.Unmarshal([]byte(strings.ToValidUTF8(string(a.body), "\uFFFD")), &got))
		require.True(t, got.Stored.TextRepaired)
		require.Contains(t, got.Harness, "\uFFFD")
		require.Equal(t, "duplicate", s.traces(c).one())
		require.Equal(t, "stored", s.traces(plain("text", id+"m", 1, ids(1), ids(2)).with("metadata", json.RawMessage(`{"k":`+bad+`}`))).one())
		for _, name := range []string{"trace_id", "rollout_id", "group_id", "task_id", "choice_group", "parent_rollout_id"} {
			require.Equal(t, "invalid_field", s.traces(plain("text", "never", 1, ids(1), ids(2)).with(name, json.RawMessage(bad))).is(422).one(), "%s %q", name, bad)
		}
		require.Equal(t, "invalid_field", s.post("/v1/rewards", `{"reward_id":`+bad+`,"rollout_id":"text","value":1}`).one())
	}
	for _, id := range []string{"a\u0000", "a\nb", "\u200b", "\u202e", "\ufeff", longText(129), "\u0085", "a\tb"} {
		require.Equal(t, "invalid_field", s.traces(plain("text", "never", 1, ids(1), ids(2)).with("trace_id", id)).is(422).one(), "%q", id)
	}
	require.Equal(t, "invalid_field", s.traces(plain("text", "never", 1, ids(1), ids(2)).with("rollout_id", "\uFFFD")).is(422).one())
}

// Nesting a million deep costs no stack and no more than its bytes.
func TestDeepNesting(t *testing.T) {
	t.Parallel()
	s := start(t)
	const deep = 1_000_000
	arrays := strings.Repeat("[", deep) + strings.Repeat("]", deep)
	objects := strings.Repeat(`{"a":`, deep) + "1" + strings.Repeat("}", deep)
	for _, text := range []string{arrays, objects, strings.Repeat("[", deep), strings.Repeat(`{"a":`, deep), strings.Repeat(`[{"a":`, deep/2)} {
		whole := strings.HasSuffix(text, "]") || strings.HasSuffix(text, "}")
		for _, name := range []string{"metadata", "request", "colour", "harness", "seq", "prompt_token_ids", "response_logprobs", "policy_version_spans", "prompt_prefix"} {
			a := s.traces(call{"trace_id": "deep", "rollout_id": "deep", name: json.RawMessage(text)})
			if !whole {
				a.problem(400, "invalid_json")
				continue
			}
			require.Equal(t, "json_too_deep", a.is(422).one(), name)
		}
		s.post("/v1/traces", text).is(map[bool]int{true: 422, false: 400}[whole])
		s.post("/v1/rewards", text).is(map[bool]int{true: 422, false: 400}[whole])
		a := s.put("/v1/rollouts/deep", text)
		require.Contains(t, []int{400, 422}, a.status)
	}
	s.get("/v1/rollouts/deep").problem(404, "not_found")
	require.Less(t, s.peak(), atMost(1<<30))
	s.healthy()
}

// A body that would be huge is refused while it comes, and costs no memory.
func TestHugeBodies(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.traces(plain("huge", "warm", 1, ids(1), ids(2))).is(200)
	zeros := func(n int64) io.Reader { return io.LimitReader(zeroReader{}, n) }
	head := `[{"trace_id":"huge","rollout_id":"huge","prompt_token_ids":[`
	long := func(n int64) io.Reader {
		return io.MultiReader(strings.NewReader(head), io.LimitReader(repeated("1,"), n))
	}
	for name, c := range map[string]struct {
		body          io.Reader
		media, coding string
	}{
		"gzip bomb":          {compressed(gzipWriter, zeros(10<<30)), typeJSON, "gzip"},
		"zstd bomb":          {compressed(zstdWriter, zeros(10<<30)), typeJSON, "zstd"},
		"gzip bomb of lines": {compressed(gzipWriter, io.LimitReader(repeated("{}\n"), 1<<30)), typeNDJSON, "gzip"},
		"zstd bomb as Arrow": {compressed(zstdWriter, zeros(1<<30)), typeArrow, "zstd"},
		"300 MB array":       {long(300 << 20), typeJSON, "identity"},
		"300 MB array, gzip": {compressed(gzipWriter, long(300<<20)), typeJSON, "gzip"},
		"300 MB of text":     {io.MultiReader(strings.NewReader(`[{"harness":"`), io.LimitReader(repeated("x"), 300<<20)), typeJSON, "identity"},
		"300 MB in one line": {long(300 << 20), typeNDJSON, "identity"},
	} {
		a, err := s.try(http.MethodPost, "/v1/traces", c.body, "Content-Type", c.media, "Content-Encoding", c.coding)
		// A client that is still sending may see the connection close instead.
		if err == nil {
			a.problem(413, "request_too_large")
		} else {
			require.Equal(t, "identity", c.coding, "%s: %v", name, err)
		}
	}
	require.Less(t, s.peak(), atMost(700<<20), "resident at most, in bytes")
	s.get("/v1/traces/huge").problem(404, "not_found")
	s.healthy()
}
