package apptest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// refusals are items that must be refused, whatever stands around them, and the
// code that says why. They are JSON texts.
func refusals(id string) map[string]string {
	c := plain("refused", id, 1, ids(1, 2), ids(3))
	text := func(name string, value string) string { return string(c.with(name, json.RawMessage(value)).json()) }
	return map[string]string{
		"7":                                      "not_an_object",
		`"text"`:                                 "not_an_object",
		`[1]`:                                    "not_an_object",
		`null`:                                   "not_an_object",
		string(c.with("rollout_id", nil).json()): "missing_field",
		text("rollout_id", `""`):                 "missing_field",
		text("rollout_id", `"a\u0000b"`):         "invalid_field",
		text("prompt_token_ids", `[1,-2]`):       "invalid_token_id",
		text("response_token_ids", `[2147483648]`):                                  "invalid_token_id",
		text("response_logprobs", `[0.5,0.5]`):                                      "length_mismatch",
		string(c.with("response_token_ids", nil).json()):                            "length_mismatch",
		text("status", `"fine"`):                                                    "invalid_field",
		text("seq", `-1`):                                                           "invalid_field",
		text("metadata", strings.Repeat(`{"a":`, 600)+"1"+strings.Repeat("}", 600)): "json_too_deep",
		text("prompt_hash", `"`+hash(ids(7))+`"`):                                   "prompt_hash_mismatch",
		string(c.with("prompt_prefix", object{"trace_id": "nowhere", "length": 1}, "prompt_hash", hash(ids(1, 2))).json()): "unknown_prefix",
		string(c.with("prompt_prefix", object{"trace_id": "nowhere", "length": 1}).json()):                                 "missing_field",
		`{"trace_id":"` + id + `","trace_id":"` + id + `","rollout_id":"r"}`:                                               "duplicate_field",
	}
}

// Any mixture of items is answered item by item, in order, and only what is
// answered as stored is there afterwards.
func TestEveryMixtureOfItems(t *testing.T) {
	t.Parallel()
	s := start(t)
	rng := rand.New(rand.NewPCG(11, 13))
	var known []call
	stored := map[string]int{}
	next := 0
	fresh := func() call {
		next++
		rollout := fmt.Sprintf("mix-%d", rng.IntN(5))
		c := plain(rollout, fmt.Sprintf("t%d", next), int64(next), ids(1, int32(rng.IntN(9))), ids(int32(next)))
		if rng.IntN(4) == 0 {
			c = c.with("request", json.RawMessage(fmt.Sprintf(`{"n": %d}`, next)))
		}
		return c
	}
	statuses := map[int]int{}
	for range 120 {
		var parts []string
		var want []string
		var names []string
		add := func(text []byte, id, outcome string) {
			parts, names, want = append(parts, string(text)), append(names, id), append(want, outcome)
		}
		var fresheners []call
		only := rng.IntN(3) // now and then requests of one kind
		for range 1 + rng.IntN(12) {
			kind := rng.IntN(5)
			if only == 0 {
				kind = 3
			}
			switch {
			case kind == 0 || len(known) == 0 && kind != 3:
				c := fresh()
				add(c.json(), c.text("trace_id"), "stored")
				fresheners = append(fresheners, c)
				stored[c.text("rollout_id")]++
			case kind == 1:
				c := known[rng.IntN(len(known))]
				add(c.json(), c.text("trace_id"), "duplicate")
			case kind == 2:
				c := known[rng.IntN(len(known))]
				add(c.with("response_token_ids", ids(1e6)).json(), c.text("trace_id"), "conflict")
			case kind == 4 && len(fresheners) > 0: // the same id again in the same request
				c := fresheners[rng.IntN(len(fresheners))]
				if rng.IntN(2) == 0 {
					add(c.json(), c.text("trace_id"), "duplicate")
				} else {
					add(c.with("model", "other").json(), c.text("trace_id"), "conflict")
				}
			default:
				for text, code := range refusals(fmt.Sprintf("x%d", next)) { // any one
					id := fmt.Sprintf("x%d", next)
					if code == "not_an_object" {
						id = ""
					}
					add([]byte(text), id, code)
					break
				}
			}
		}
		body, media := "["+strings.Join(parts, ", \n")+"]", typeJSON
		switch rng.IntN(3) {
		case 0:
			body, media = strings.Join(parts, "\n")+"\n", typeNDJSON
		case 1:
			body = ` { "traces" : ` + body + ` } `
		}
		a := s.send(http.MethodPost, "/v1/traces", []byte(body), "Content-Type", media)
		list := a.items()
		require.Equal(t, "durable", list.Ack)
		require.Len(t, list.Items, len(want))
		refused := 0
		for i, got := range list.Items {
			require.Equal(t, want[i], got.outcome(), "item %d %s: %s", i, parts[i], got.Message)
			require.Equal(t, names[i], got.ID)
			if got.Status == "refused" {
				refused++
			}
		}
		status := map[bool]int{true: 422, false: 207}[refused == len(want)]
		if refused == 0 {
			status = 200
		}
		a.is(status)
		statuses[status]++
		known = append(known, fresheners...)
	}
	require.Len(t, statuses, 3, "all three statuses came up")
	for rollout, n := range stored {
		var page struct{ Total int }
		s.get(path("rollouts", rollout, "traces")).is(200).into(&page)
		require.Equal(t, n, page.Total)
	}
	s.get(path("rollouts", "refused")).problem(404, "not_found")
}

// Every refusal alone is 422, and beside a good item 207.
func TestEachRefusal(t *testing.T) {
	t.Parallel()
	s := start(t)
	n := 0
	for text, code := range refusals("bad") {
		n++
		require.Equal(t, code, s.post("/v1/traces", "["+text+"]").is(422).one(), text)
		good := plain("good", "good-"+itoa(n), int64(n), ids(1), ids(2))
		list := s.post("/v1/traces", "["+text+","+string(good.json())+"]").is(207).items()
		require.Equal(t, []string{code, "stored"}, []string{list.Items[0].outcome(), list.Items[1].outcome()})
	}
	s.get(path("traces", "bad")).problem(404, "not_found")
}

func TestEnvelopesThatCannotBeRead(t *testing.T) {
	t.Parallel()
	s := start(t)
	for body, offset := range map[string]int64{
		``: 0, ` `: 1, `{"trace_id":`: 12, `[`: 1, `[{}`: 3, `[{},]`: 4, `nonsense`: 0, `[] x`: 3, `{"traces":5}`: 10,
		`{"traces":[],"x":1}`: 12, `{"trace_id":"a" "b"}`: 16, `{'a':1}`: 1, `[{"seq":01}]`: 8, "[{\"trace_id\":\"a\nb\"}]": 15, `5`: 0, `"a"`: 0, `null`: 0,
	} {
		p := s.post("/v1/traces", body).problem(400, "invalid_json")
		require.NotNil(t, p.Offset, body)
		require.Equal(t, offset, *p.Offset, "%s: %s", body, p.Detail)
		if !strings.Contains(body, "traces") {
			require.Equal(t, offset, *s.post("/v1/rewards", body).problem(400, "invalid_json").Offset)
		}
	}
	for _, body := range []string{`[]`, ` [ ] `, `{"traces":[]}`} {
		require.Empty(t, s.post("/v1/traces", body).is(200).items().Items)
	}
	require.Equal(t, "missing_field", s.post("/v1/traces", `{}`).is(422).one())
	s.send("POST", "/v1/traces", nil, "Content-Type", typeNDJSON).is(200)

	// A line that is not JSON refuses that line only.
	lines := "\r\n" + string(plain("lines", "l1", 1, nil, nil).json()) + "\r\n{\"trace_id\":\"l2\",\n\n  \nnope\n" + string(plain("lines", "l3", 1, nil, nil).json())
	list := s.send("POST", "/v1/traces", []byte(lines), "Content-Type", typeNDJSON).is(207).items()
	require.Len(t, list.Items, 4)
	for i, want := range []string{"stored", "invalid_json", "invalid_json", "stored"} {
		require.Equal(t, want, list.Items[i].outcome())
	}
	require.Contains(t, list.Items[1].Message, "line 3")
}

func TestMediaTypes(t *testing.T) {
	t.Parallel()
	s := start(t)
	c := plain("media", "m", 1, ids(1), ids(2))
	for _, media := range []string{"", typeJSON, "application/json; charset=utf-8", "Application/JSON"} {
		require.Contains(t, []string{"stored", "duplicate"}, s.send("POST", "/v1/traces", c.json(), "Content-Type", media).is(200).one())
	}
	for _, media := range []string{"text/plain", "application/x-www-form-urlencoded", "application/vnd.apache.parquet", "nonsense", "application/json,text/plain"} {
		s.send("POST", "/v1/traces", c.json(), "Content-Type", media).problem(415, "unsupported_media_type")
	}
	for _, p := range []string{"/v1/traces/begin", "/v1/rewards", "/v1/rollouts/r/finish"} {
		s.send("POST", p, c.json(), "Content-Type", typeNDJSON).problem(415, "unsupported_media_type")
	}
	for _, coding := range []string{"br", "deflate", "gzip, gzip", "gzip,zstd", "zstd,zstd", "identity, gzip", "none"} {
		s.send("POST", "/v1/traces", gzipped(c.json()), "Content-Type", typeJSON, "Content-Encoding", coding).problem(415, "unsupported_encoding")
	}
	for coding, body := range map[string][]byte{"identity": c.json(), "gzip": gzipped(c.json()), "x-gzip": gzipped(c.json()), "GZIP": gzipped(c.json()),
		"zstd": zstded(c.json()), "Gzip": append(gzipped(c.json()[:9]), gzipped(c.json()[9:])...)} {
		require.Equal(t, "duplicate", s.send("POST", "/v1/traces", body, "Content-Type", typeJSON, "Content-Encoding", coding).is(200).one(), coding)
	}
	for coding, body := range map[string][]byte{"gzip": gzipped(c.json()), "zstd": zstded(c.json())} {
		for _, n := range []int{1, len(body) / 2, len(body) - 1} {
			s.send("POST", "/v1/traces", body[:n], "Content-Type", typeJSON, "Content-Encoding", coding).problem(400, "corrupt_encoding")
		}
		damaged := bytes.Clone(body)
		damaged[len(body)/2] ^= 0x55
		s.send("POST", "/v1/traces", damaged, "Content-Type", typeJSON, "Content-Encoding", coding).is(400)
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	s := start(t)
	list := s.traces(
		plain("warn", "w1", 1, ids(1), ids(2)),
		plain("warn", "w2", 1, ids(1), ids(2)).with("seq", nil),
		plain("warn", "w3", 1, ids(1), ids(2)).with("colour", "red", "shape", object{"b": 1, "a": nil}),
	).is(200).items()
	require.Empty(t, list.Items[0].Warnings)
	require.Len(t, list.Items[1].Warnings, 1)
	require.Contains(t, list.Items[1].Warnings[0], "seq: absent")
	require.Len(t, list.Items[2].Warnings, 2)
	require.Contains(t, list.Items[2].Warnings[0], "colour")
	var got json.RawMessage
	s.get(path("traces", "w3")).is(200).into(&got)
	require.Contains(t, string(got), `"colour":"red"`)
	require.Contains(t, string(got), `"shape":{"a":null,"b":1}`)
}

func TestAcknowledgements(t *testing.T) {
	t.Parallel()
	// The server may take long to drain, and does not wait for it unasked.
	s := start(t, "--drain-every=1500ms", "--read-timeout=400ms")
	for i, ack := range []string{"", "durable", "received", "queryable", "queryable"} {
		at := "/v1/traces"
		if ack != "" {
			at += "?ack=" + ack
		}
		list := s.send("POST", at, plain("ack", "a"+itoa(i), int64(i), ids(1), ids(2)).json(), "Content-Type", typeJSON).is(200).items()
		want := "durable"
		if ack == "queryable" {
			want = ack
		}
		require.Equal(t, want, list.Ack, "asked for %q", ack)
	}
	s.post("/v1/traces?ack=soon", `[]`).problem(400, "invalid_parameter")
	var put struct{ Ack string }
	s.put("/v1/rollouts/ack?ack=queryable", `{"harness":"h"}`).is(200).into(&put)
	require.Equal(t, "queryable", put.Ack)
}
