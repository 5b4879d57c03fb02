package wire

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/trace"
)

func TestEnvelopes(t *testing.T) {
	for body, n := range map[string]int{
		with(""):               1,
		" [ ] ":                0,
		`{"traces":[]}`:        0,
		`{ "traces" : [ {} ]}`: 1,
		"[" + with("") + "]":   1,
		`{"tr\u0061ces":[` + with("") + ` , ` + with("") + `]}` + "\r\n": 2,
		`[7,null,"x",[],{}]`: 5,
		`{}`:                 1,
	} {
		items, err := TracesJSON([]byte(body), Limits{})
		require.NoError(t, err, body)
		require.Len(t, items, n, body)
	}
	for body, offset := range map[string]int64{
		"":                             0,
		"  ":                           2,
		"7":                            0,
		"null":                         0,
		`{"traces":{}}`:                10,
		`{"traces":[],"x":1}`:          12,
		`{"traces":[]} {}`:             14,
		`[{}] x`:                       5,
		`[{},]`:                        4,
		`{"trace_id":"a" "b":1}`:       16,
		`{"trace_id":NaN}`:             12,
		`{"a":01}`:                     5,
		`{"a":"` + "\x01" + `"}`:       6,
		`{"a":"\x"}`:                   6,
		`{"prompt_token_ids":[1`:       22,
		`{"prompt_token_ids":[1 2]}`:   23,
		`{"prompt_token_ids":[01]}`:    21,
		`{"prompt_token_ids":[1,]}`:    23,
		`{"prompt_token_ids":[,1]}`:    21,
		`{"response_logprobs":[Nan]}`:  22,
		`{"response_logprobs":[1.]}`:   24,
		`{"response_logprobs":["NaN]}`: 28,
		`{"metadata":{"a":Infinity}}`:  17,
		`{"foo":[1,{"a":tru}]}`:        15,
		"\ufeff{}":                     0,
	} {
		_, err := TracesJSON([]byte(body), Limits{})
		e := requireEnvelope(t, err, trace.CodeInvalidJSON, 400)
		require.Equal(t, offset, e.Offset, "%s: %v", body, e)
	}
}

func TestNDJSON(t *testing.T) {
	body := with("") + "\r\n \t\n" + `{"trace_id":"bad","rollout_id":` + "\n" + `[` + with("") + `]` + "\n" +
		with("") + " x\n" + `{"trace_id":"u","rollout_id":"r","seq":-1}` + "\n" + with(`"foo":1`)
	items, err := TracesNDJSON([]byte(body), Limits{})
	require.NoError(t, err)
	require.Len(t, items, 6)
	require.Nil(t, items[0].Err)
	require.Equal(t, trace.CodeInvalidJSON, items[1].Err.Code)
	require.Equal(t, "bad", items[1].ID)
	require.Equal(t, "line 3, byte 77 of the body: the text ends too early", items[1].Err.Message)
	require.Equal(t, trace.CodeNotAnObject, items[2].Err.Code)
	require.Contains(t, items[3].Err.Message, "line 5, byte")
	require.Equal(t, "t", items[3].ID)
	require.Nil(t, items[3].Value)
	require.Equal(t, "u", items[4].ID)
	require.Equal(t, "seq", items[4].Err.Field)
	require.Nil(t, items[5].Err)
	none, err := TracesNDJSON([]byte("\n \r\n"), Limits{})
	require.NoError(t, err)
	require.Empty(t, none)
}

func TestIntents(t *testing.T) {
	items, err := IntentsJSON([]byte(`{"intents":[{"trace_id":"t","rollout_id":"r","seq":3,"started_at":"1970-01-01T00:00:01Z"},
		{"trace_id":"t","harness":"x","rollout_id":"r"},{"trace_id":"t"}]}`), Limits{})
	require.NoError(t, err)
	require.EqualValues(t, 3, *items[0].Value.Seq)
	require.EqualValues(t, 1e6, *items[0].Value.StartedAt)
	require.Nil(t, items[1].Err)
	require.Len(t, items[1].Warnings, 1)
	require.Equal(t, "rollout_id", items[2].Err.Field)
}

func TestRewards(t *testing.T) {
	const head = `{"reward_id":"w","rollout_id":"r",`
	items, err := RewardsJSON([]byte(head+`"value":-1.5e-1,"revision":9007199254740993,"at":"1970-01-01T00:00:00.5Z","metadata":{"b":1,"a":2}}`), Limits{})
	require.NoError(t, err)
	require.Nil(t, items[0].Err)
	r := items[0].Value
	require.Equal(t, -0.15, r.Value)
	require.Equal(t, "outcome", r.Name)
	require.EqualValues(t, 9007199254740993, r.Revision)
	require.EqualValues(t, 500000, *r.At)
	require.Equal(t, `{"a":2,"b":1}`, string(r.Metadata))
	for fields, message := range map[string]string{
		`"value":NaN`:                  "value: is NaN, not a finite number",
		`"value":-Infinity`:            "value: is -Infinity, not a finite number",
		`"value":"NaN"`:                "value: is a string, not a finite number",
		`"value":1e999`:                "value: 1e999 is beyond the range of float64",
		`"value":true`:                 "value: is a boolean, not a finite number",
		`"value":null`:                 "value: is required",
		`"name":"x"`:                   "value: is required",
		`"value":1,"revison":2`:        "revison: is no field here",
		`"value":1,"revision":1.0`:     "revision: 1.0 is not written as an integer (digits only)",
		`"value":1,"revision":-1`:      "revision: is -1, less than 0",
		`"value":1,"metadata":"x"`:     "metadata: is a string, not an object",
		`"value":1,"value":1`:          "value: is given twice",
		`"value":1,"source":"\ud800"`:  "source: holds a replaced or invalid character at byte 0",
		`"value":1,"at":"2026-01-01T"`: `at: "2026-01-01T" is not an RFC 3339 time with a zone, as 2026-01-31T09:30:00.5Z is`,
	} {
		items, err := RewardsJSON([]byte(`{"rewards":[`+head+fields+`}]}`), Limits{})
		require.NoError(t, err, fields)
		require.NotNil(t, items[0].Err, fields)
		require.Equal(t, message, items[0].Err.Error())
		require.Equal(t, "w", items[0].ID)
	}
}

func TestRolloutPatchAndFinish(t *testing.T) {
	p, err := RolloutPatchJSON([]byte(`{"task_id":"a","group_size":8,"split":"eval","harness":null,"model":"","metadata":{"z":1,"a":0}}`), Limits{})
	require.NoError(t, err)
	require.Equal(t, "a", *p.TaskID)
	require.EqualValues(t, 8, *p.GroupSize)
	require.Nil(t, p.Harness)
	require.Equal(t, "", *p.Model)
	require.Equal(t, `{"a":0,"z":1}`, string(p.Metadata))
	f, err := FinishJSON([]byte(` {"status":"failed","error":{"code": 7}} `), Limits{})
	require.NoError(t, err)
	require.Equal(t, trace.Finish{Status: "failed", Error: `{"code":7}`}, *f)

	for body, message := range map[string]string{
		`{"taskid":"a"}`:         "taskid: is no field here",
		`{"group_size":0}`:       "group_size: is less than 1",
		`{"split":"dev"}`:        `split: is "dev", not one of train, eval`,
		`{"harness":"\ud800"}`:   "harness: holds a lone surrogate or invalid UTF-8",
		`{"policy_version":"1"}`: "policy_version: is a string, not an integer",
		`[]`:                     "is an array, not an object",
	} {
		_, err := RolloutPatchJSON([]byte(body), Limits{})
		var wrong *trace.Error
		require.True(t, errors.As(err, &wrong), "%v", err)
		require.Equal(t, message, wrong.Error())
	}
	for _, body := range []string{"", "{", "{} {}", `{"harness":}`} {
		_, err := RolloutPatchJSON([]byte(body), Limits{})
		requireEnvelope(t, err, trace.CodeInvalidJSON, 400)
	}
	for _, body := range []string{`{}`, `{"status":"done"}`, `{"status":null}`, `{"status":"failed","why":1}`} {
		_, err := FinishJSON([]byte(body), Limits{})
		var wrong *trace.Error
		require.ErrorAs(t, err, &wrong, body)
	}
}

func TestCapturesDecode(t *testing.T) {
	for _, name := range []string{"plain", "thinking", "long"} {
		body := capture(t, name)
		items, err := TracesNDJSON(body, Limits{})
		require.NoError(t, err)
		require.Equal(t, strings.Count(string(body), "\n"), len(items))
		for _, item := range items {
			require.Nil(t, item.Err)
			again, err := TracesJSON(EncodeTraceJSON(nil, item.Value), Limits{})
			require.NoError(t, err)
			equalTraces(t, item.Value, again[0].Value)
		}
	}
}
