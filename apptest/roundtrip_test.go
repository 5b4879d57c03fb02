package apptest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Bodies come back byte for byte, whatever JSON they are.
func TestBodiesAreKept(t *testing.T) {
	t.Parallel()
	s := start(t)
	bodies := []string{
		`{}`, `[]`, `""`, `0`, `true`, `{"a":1,"a":2}`, "{ \"b\" :\t1 ,\r\n \"a\":[ 1 , 2 ]\n}", `"\u00e9\/\ud83d\ude00\b"`, `"é/😀"`,
		`1.0`, `1e400`, `-0`, `123456789012345678901234567890.000`, `"\ud800"`, `{"\ud800":null}`, strings.Repeat("[", 100) + strings.Repeat("]", 100),
		`"` + strings.Repeat("long \\n ", 9000) + `"`, `"</script>&"`, "\"\x7f\"", "\"\xff\xfe\"",
	}
	for i, body := range bodies {
		id := fmt.Sprintf("body-%d", i)
		other := bodies[(i+1)%len(bodies)]
		c := plain("bodies", id, int64(i), ids(1), ids(2)).with("request", json.RawMessage(body), "response", json.RawMessage(other))
		require.Equal(t, "stored", s.traces(c).one(), body)
		a := s.get(path("traces", id) + "?include=bodies").is(200)
		require.Contains(t, string(a.body), `"request":`+body+`,"response":`+other+`,"stored":{`)
		require.Equal(t, "duplicate", s.traces(c).one())
		require.NotContains(t, string(s.get(path("traces", id)).is(200).body), `"request"`)
	}
}

// anyCall draws a trace with any of the fields set.
func anyCall(t *rapid.T, rollout, trace string) call {
	c := call{"trace_id": trace, "rollout_id": rollout}
	some := func(name string, value func() any) {
		if rapid.Bool().Draw(t, "has "+name) {
			c[name] = value()
		}
	}
	from := func(g *rapid.Generator[string], name string) func() any {
		return func() any { return g.Draw(t, name) }
	}
	whole := func(name string) func() any {
		return func() any { return rapid.Int64Range(0, math.MaxInt64).Draw(t, name) }
	}
	anyIDs := rapid.SliceOfN(rapid.OneOf(rapid.Int32Range(0, 5), rapid.Int32Range(0, math.MaxInt32)), 0, 12)
	some("prompt_token_ids", func() any { return anyIDs.Draw(t, "prompt") })
	some("response_token_ids", func() any { return anyIDs.Draw(t, "response") })
	if response, ok := c["response_token_ids"].([]int32); ok {
		some("response_logprobs", func() any {
			l := make(logprobs, len(response))
			for i := range l {
				if bits := rapid.Uint32().Draw(t, "bits"); rapid.IntRange(0, 5).Draw(t, "known") > 0 {
					l[i] = ptr(math.Float32frombits(bits))
				}
				if rapid.IntRange(0, 9).Draw(t, "odd") == 0 {
					l[i] = ptr(rapid.SampledFrom([]float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.Copysign(0, -1))}).Draw(t, "odd value"))
				}
			}
			return l
		})
		if len(response) > 1 {
			some("policy_version_spans", func() any {
				return []object{{"start": int64(0), "version": int64(1)}, {"start": int64(1), "version": rapid.Int64Range(0, math.MaxInt64).Draw(t, "version")}}
			})
		}
	}
	anyText := rapid.StringN(1, 40, -1).Filter(func(s string) bool { return !strings.Contains(s, "\uFFFD") })
	for _, name := range []string{"harness", "harness_version", "model", "tokenizer", "api", "chat_template_hash", "tools_hash", "error"} {
		some(name, from(anyText, name))
	}
	for _, name := range []string{"task_id", "group_id", "parent_rollout_id", "choice_group"} {
		some(name, from(anyID, name))
	}
	for _, name := range []string{"seq", "policy_version", "choice_index", "sample_index"} {
		some(name, whole(name))
	}
	some("ids_incomplete", func() any { return true })
	some("status", from(rapid.SampledFrom([]string{"ok", "aborted", "client_gone", "upstream_error"}), "status"))
	some("kind", from(rapid.SampledFrom([]string{"agent", "auxiliary"}), "kind"))
	some("finish_reason", from(rapid.SampledFrom([]string{"stop", "length", "tool_calls", "content_filter", "abort"}), "finish_reason"))
	for _, name := range []string{"sampling", "usage", "metadata", "request", "response"} {
		some(name, func() any {
			return json.RawMessage(encode(object{anyText.Draw(t, "key"): []any{anyText.Draw(t, "value"), rapid.Int64().Draw(t, "number"), nil}, "\x01": 1.5}))
		})
	}
	// Columns that the contract does not name are text.
	some("ünknown \"field\"", func() any { return anyText.Draw(t, "unknown") })
	for _, name := range []string{"started_at", "first_token_at", "finished_at"} {
		some(name, func() any {
			micros := rapid.Int64Range(time.Date(1678, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro(), time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC).UnixMicro()).Draw(t, name)
			return time.UnixMicro(micros).UTC().Format(time.RFC3339Nano)
		})
	}
	return c
}

// anyID draws printable ids of every script.
var anyID = rapid.StringOfN(rapid.RuneFrom(nil, unicode.L, unicode.N, unicode.P, unicode.S, unicode.M), 1, 24, 100).
	Filter(func(s string) bool { return !strings.Contains(s, "\uFFFD") })

// What is read is what was sent, and sending what was read is a duplicate.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	s := start(t, "--drain-every=1ms")
	n := 0
	rapid.Check(t, func(r *rapid.T) {
		n++
		rollout, id := fmt.Sprintf("%s %d", anyID.Draw(r, "rollout"), n), fmt.Sprintf("%d %s", n, anyID.Draw(r, "id"))
		c := anyCall(r, rollout, id)
		if rapid.Bool().Draw(r, "as Arrow") {
			require.Equal(r, "stored", s.send("POST", "/v1/traces", arrowOf([]call{c}, 1), "Content-Type", typeArrow).one())
		} else {
			require.Equal(r, "stored", s.traces(c).one())
		}
		var raw json.RawMessage
		var got struct{ Stored object }
		s.get(path("traces", id) + "?include=bodies").is(200).into(&raw)
		require.NoError(r, json.Unmarshal(raw, &got))
		sameCall(r, c, raw)
		require.Equal(r, "duplicate", s.post("/v1/traces", []byte(raw)).one())
		require.Equal(r, "duplicate", s.traces(c).one())
		_, has := c["request"]
		require.Equal(r, has, got.Stored["has_request"])
	})
}

func sameCall(r *rapid.T, sent call, raw []byte) {
	got, err := parseCall(raw)
	require.NoError(r, err)
	delete(got, "stored")
	if p, ok := sent["prompt_token_ids"].([]int32); ok {
		require.Equal(r, hash(p), got.text("prompt_hash"))
		delete(got, "prompt_hash")
	}
	for name, fallback := range map[string]string{"status": "ok", "kind": "agent"} {
		if sent[name] == nil {
			require.Equal(r, fallback, got[name])
			delete(got, name)
		}
	}
	require.Equal(r, slices.Sorted(maps.Keys(sent)), slices.Sorted(maps.Keys(got)))
	for name, want := range sent {
		switch want := want.(type) {
		case logprobs:
			require.Equal(r, want.bits(), got[name].(logprobs).bits())
		case json.RawMessage:
			if name == "request" || name == "response" {
				require.Equal(r, string(want), string(got[name].(json.RawMessage)), name)
			} else {
				require.JSONEq(r, string(want), string(got[name].(json.RawMessage)), name)
			}
		case []object:
			require.JSONEq(r, string(encode(want)), string(got[name].(json.RawMessage)), name)
		default:
			if strings.HasSuffix(name, "_at") {
				a, _ := time.Parse(time.RFC3339Nano, want.(string))
				b, err := time.Parse(time.RFC3339Nano, got.text(name))
				require.NoError(r, err)
				require.True(r, a.Equal(b), "%s: %s for %s", name, b, a)
				continue
			}
			require.Equal(r, want, got[name], name)
		}
	}
}

// A trace read from one server and sent to another is the same trace there.
func TestTracesTravel(t *testing.T) {
	t.Parallel()
	a, b := start(t), startOn(t, t.TempDir()+"/data", []string{"TZ=Pacific/Kiritimati", "LC_ALL=tr_TR.UTF-8"})
	c := everything("travel", "t1")
	a.traces(c).all("stored", 1)
	read := func(s *server) []byte { return s.get("/v1/traces/t1?include=bodies").is(200).body }
	meant := func(raw []byte) string {
		text, _, found := bytes.Cut(raw, []byte(`,"stored":`))
		require.True(t, found)
		return string(text)
	}
	require.Equal(t, "stored", b.post("/v1/traces", read(a)).one())
	require.Equal(t, meant(read(a)), meant(read(b)))
	require.Equal(t, "duplicate", b.traces(c).one())
	require.Equal(t, a.merged("travel", "").Trajectories, b.merged("travel", "").Trajectories)
}
