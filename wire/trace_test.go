package wire

import (
	"math"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/require"

	"icecore/trace"
)

func TestTraceRefused(t *testing.T) {
	deep := strings.Repeat("[", 600) + strings.Repeat("]", 600)
	hash := strings.Repeat("ab", 32)
	for _, c := range []struct {
		body    string
		code    trace.Code
		field   string
		message string // part of it
	}{
		{`[7]`, trace.CodeNotAnObject, "", "a number"},
		{`{"rollout_id":"r"}`, trace.CodeMissingField, "trace_id", "required"},
		{`{"trace_id":"t","rollout_id":null}`, trace.CodeMissingField, "rollout_id", "required"},
		{`{"trace_id":7,"rollout_id":"r"}`, trace.CodeInvalidField, "trace_id", "is a number, not a string"},
		{`{"trace_id":"\ud800","rollout_id":"r"}`, trace.CodeInvalidField, "trace_id", "replaced or invalid"},
		{`{"trace_id":"a\nb","rollout_id":"r"}`, trace.CodeInvalidField, "trace_id", "not printable"},
		{with(`"seq":1`), trace.CodeDuplicateField, "seq", "twice"},
		{with(`"\u0073eq":null`), trace.CodeDuplicateField, "seq", "twice"},
		{with(`"model":null,"model":"x"`), trace.CodeDuplicateField, "model", "twice"},
		{with(`"foo":1,"foo":2`), trace.CodeDuplicateField, "foo", "twice"},
		{with(`"choice_index":1.0`), trace.CodeInvalidField, "choice_index", "1.0 is not written as an integer"},
		{with(`"choice_index":1e3`), trace.CodeInvalidField, "choice_index", "1e3 is not written as an integer"},
		{with(`"choice_index":"1"`), trace.CodeInvalidField, "choice_index", "is a string, not an integer"},
		{with(`"policy_version":9223372036854775808`), trace.CodeInvalidField, "policy_version", "does not fit into 64 bits"},
		{with(`"policy_version":-1`), trace.CodeInvalidField, "policy_version", "less than 0"},
		{with(`"prompt_token_ids":[0,2147483648]`), trace.CodeInvalidTokenID, "prompt_token_ids[1]", "2147483648 is not a token id (int32 ≥ 0)"},
		{with(`"prompt_token_ids":[1.5]`), trace.CodeInvalidTokenID, "prompt_token_ids[0]", "1.5 is not"},
		{with(`"prompt_token_ids":[1e2]`), trace.CodeInvalidTokenID, "prompt_token_ids[0]", "1e2 is not"},
		{with(`"prompt_token_ids":[3 , -1]`), trace.CodeInvalidTokenID, "prompt_token_ids[1]", "-1 is not"},
		{with(`"prompt_token_ids":["7"]`), trace.CodeInvalidTokenID, "prompt_token_ids[0]", `"7" is not`},
		{with(`"prompt_token_ids":[true]`), trace.CodeInvalidTokenID, "prompt_token_ids[0]", "true is not"},
		{with(`"prompt_token_ids":[1,null]`), trace.CodeInvalidTokenID, "prompt_token_ids[1]", "null is not"},
		{with(`"prompt_token_ids":[1,[2]]`), trace.CodeInvalidTokenID, "prompt_token_ids[1]", "[2] is not"},
		{with(`"prompt_token_ids":[99999999999999999999999]`), trace.CodeInvalidTokenID, "prompt_token_ids[0]", "is not"},
		{with(`"prompt_token_ids":"1,2"`), trace.CodeInvalidField, "prompt_token_ids", "is a string, not an array"},
		{with(`"response_token_ids":[1],"response_logprobs":["x"]`), trace.CodeInvalidField, "response_logprobs[0]", `"x" is not a number`},
		{with(`"response_token_ids":[1,2],"response_logprobs":[-1,1e39]`), trace.CodeInvalidField, "response_logprobs[1]", "1e39 is beyond the range of float32"},
		{with(`"response_token_ids":[1],"response_logprobs":[true]`), trace.CodeInvalidField, "response_logprobs[0]", "true is not"},
		{with(`"response_token_ids":[1],"response_logprobs":[NaN,{"a":NaN}]`), trace.CodeInvalidField, "response_logprobs[1]", "is not"},
		{with(`"response_token_ids":[1],"response_logprobs":["Inf"]`), trace.CodeInvalidField, "response_logprobs[0]", `"Inf" is not`},
		{with(`"response_token_ids":[1],"response_logprobs":[]`), trace.CodeLengthMismatch, "response_logprobs", "0 entries for 1"},
		{with(`"response_logprobs":[1]`), trace.CodeLengthMismatch, "response_logprobs", "without"},
		{with(`"ids_incomplete":"true"`), trace.CodeInvalidField, "ids_incomplete", "not true or false"},
		{with(`"status":"done"`), trace.CodeInvalidField, "status", "not one of"},
		{with(`"finish_reason":"eos"`), trace.CodeInvalidField, "finish_reason", "not one of"},
		{with(`"kind":"other"`), trace.CodeInvalidField, "kind", "not one of"},
		{with(`"prompt_prefix":{"trace_id":"a","length":1}`), trace.CodeMissingField, "prompt_hash", "required"},
		{with(`"prompt_prefix":{"trace_id":"a"},"prompt_hash":"` + hash + `"`), trace.CodeMissingField, "prompt_prefix.length", "required"},
		{with(`"prompt_prefix":{"trace_id":"a","length":1,"x":1}`), trace.CodeInvalidField, "prompt_prefix.x", "no field"},
		{with(`"prompt_prefix":{"trace_id":"a","length":1.5}`), trace.CodeInvalidField, "prompt_prefix.length", "1.5 is not"},
		{with(`"prompt_prefix":[]`), trace.CodeInvalidField, "prompt_prefix", "an array, not an object"},
		{with(`"prompt_hash":"ab"`), trace.CodeInvalidField, "prompt_hash", "64 hexadecimal"},
		{with(`"prompt_hash":"` + strings.Repeat("zz", 32) + `"`), trace.CodeInvalidField, "prompt_hash", "64 hexadecimal"},
		{with(`"policy_version_spans":[{"start":0,"version":1},{"start":1}]`), trace.CodeMissingField, "policy_version_spans[1].version", "required"},
		{with(`"policy_version_spans":[{"start":1,"version":1}]`), trace.CodeInvalidField, "policy_version_spans[0].start", "must start at 0"},
		{with(`"sampling":"x"`), trace.CodeInvalidField, "sampling", "is a string, not an object"},
		{with(`"metadata":[]`), trace.CodeInvalidField, "metadata", "is an array, not an object"},
		{with(`"metadata":{"a":{"b":1,"b":2}}`), trace.CodeDuplicateField, "metadata", `the key "b" twice`},
		{with(`"request":` + deep), trace.CodeJSONTooDeep, "request", "deeper than the limit of 512"},
		{with(`"task_id":` + deep), trace.CodeJSONTooDeep, "task_id", "deeper"},
		{with(`"foo":` + deep), trace.CodeJSONTooDeep, "foo", "deeper"},
		{with(`"traces":[]`), trace.CodeInvalidField, "traces", "holds nothing else"},
		{with(`"started_at":1700000000`), trace.CodeInvalidField, "started_at", "is a number, not an RFC 3339"},
	} {
		item := one(t, c.body)
		require.NotNil(t, item.Err, c.body)
		require.Nil(t, item.Value)
		require.Equal(t, c.code, item.Err.Code, "%s: %v", c.body, item.Err)
		require.Equal(t, c.field, item.Err.Field, c.body)
		require.Contains(t, item.Err.Message, c.message, c.body)
		if strings.HasPrefix(c.body, `{"trace_id":"t"`) {
			require.Equal(t, "t", item.ID)
		}
		// Refusing one item leaves those around it.
		items, err := TracesJSON([]byte(`[`+with("")+`,`+strings.Trim(c.body, "[]")+`,`+with("")+`]`), Limits{})
		require.NoError(t, err)
		require.Len(t, items, 3)
		require.Nil(t, items[0].Err)
		require.NotNil(t, items[1].Err)
		require.Nil(t, items[2].Err)
	}
}

func TestTraceLimits(t *testing.T) {
	lim := Limits{Limits: trace.Limits{MaxTokens: 3, MaxBodyBytes: 10, MaxJSONDepth: 4}, MaxItems: 2}
	for body, code := range map[string]trace.Code{
		with(`"prompt_token_ids":[1,2,3,4]`):                                           trace.CodeTooManyTokens,
		with(`"prompt_token_ids":[1,2],"response_token_ids":[1,2]`):                    trace.CodeTooManyTokens,
		with(`"response_token_ids":[1],"response_logprobs":[1,2,3,null]`):              trace.CodeTooManyTokens,
		with(`"prompt_token_ids":[1,2,3]`):                                             "",
		with(`"prompt_token_ids":[ 1 , 2 , 3 ]`):                                       "",
		with(`"request":"123456789"`):                                                  trace.CodeBodyTooLarge,
		with(`"request":"12345678"`):                                                   "",
		with(`"metadata":{"a":"123456789"}`):                                           trace.CodeBodyTooLarge,
		with(`"foo":"12345678","bar":1`):                                               trace.CodeBodyTooLarge,
		with(`"request":[[[]]]`):                                                       "",
		with(`"request":[[[[]]]]`):                                                     trace.CodeJSONTooDeep,
		with(`"metadata":{"a":[[[]]]}`):                                                trace.CodeJSONTooDeep,
		with(`"prompt_token_ids":[1,2,3,4],"request":` + strings.Repeat("1", 1000)):    trace.CodeTooManyTokens,
		`{"request":[[[[]]]],"trace_id":"t","rollout_id":"r","prompt_token_ids":[-1]}`: trace.CodeJSONTooDeep,
	} {
		items, err := TracesJSON([]byte(body), lim)
		require.NoError(t, err)
		if code == "" {
			require.Nil(t, items[0].Err, body)
			continue
		}
		require.NotNil(t, items[0].Err, body)
		require.Equal(t, code, items[0].Err.Code, body)
		require.Equal(t, "t", items[0].ID)
	}
	three := []byte("[" + with("") + "," + with("") + "," + with("") + "]")
	_, err := TracesJSON(three, lim)
	requireEnvelope(t, err, CodeTooManyItems, 413)
	_, err = TracesNDJSON([]byte(strings.Repeat(with("")+"\n", 3)), lim)
	requireEnvelope(t, err, CodeTooManyItems, 413)
	items, err := TracesNDJSON([]byte(strings.Repeat(with("")+"\n\n", 2)), lim)
	require.NoError(t, err)
	require.Len(t, items, 2)
}

func requireEnvelope(t *testing.T, err error, code trace.Code, status int) *EnvelopeError {
	t.Helper()
	var e *EnvelopeError
	require.ErrorAs(t, err, &e)
	require.Equal(t, code, e.Code, e.Message)
	require.Equal(t, status, e.Status())
	return e
}

func TestTraceFields(t *testing.T) {
	item := one(t, with(`
		"prompt_token_ids" : [ 151644, 0 ,2147483647,12345678],
		"response_token_ids":[1,2,3,4,5,6,7],
		"response_logprobs":[-0.5, null ,NaN,"NaN",Infinity,"-Infinity",-Infinity],
		"policy_version": 9223372036854775807,
		"policy_version_spans":[{"start":0,"version":9007199254740993},{"version":3,"start":2}],
		"status":"","finish_reason":null,"task_id":"","model":"Qwen\u0033 \ud83d\ude00/ü",
		"sampling": { "b" : [ 1 , 2.50, {} , [ ] ] , "a" : "\u00e9\/\u001f\"\u2028" },
		"metadata":{"seed":18446744073709551615},"error":{"b":1,"a":[ ]},
		"started_at":"2026-01-31T09:30:00.1234567+02:00",
		"request": {"x" : [1,  2]}, "response":null,
		"zeta":1e2,"alpha":null`))
	require.Nil(t, item.Err)
	v := item.Value
	require.Equal(t, []int32{151644, 0, math.MaxInt32, 12345678}, v.PromptIDs.Flat())
	require.Equal(t, []int64{int64(math.Float32bits(-0.5)), -1, canonicalNaN, canonicalNaN,
		0x7f800000, 0xff800000, 0xff800000}, logprobBits(v.ResponseLogprobs))
	require.EqualValues(t, math.MaxInt64, *v.PolicyVersion)
	require.Equal(t, []trace.VersionSpan{{Start: 0, Version: 9007199254740993}, {Start: 2, Version: 3}}, v.PolicyVersionSpans)
	require.Equal(t, trace.StatusOK, v.Status)
	require.Equal(t, trace.KindAgent, v.Kind)
	require.Empty(t, v.FinishReason)
	require.Equal(t, "Qwen3 😀/ü", v.Attributes.Model)
	require.Equal(t, `{"a":"é/\u001f\"`+"\u2028"+`","b":[1,2.50,{},[]]}`, string(v.Sampling))
	require.Equal(t, `{"seed":18446744073709551615}`, string(v.Metadata))
	require.Equal(t, `{"a":[],"b":1}`, v.Error)
	require.Equal(t, `{"x" : [1,  2]}`, string(v.RequestBody))
	require.Nil(t, v.ResponseBody)
	require.Equal(t, `{"alpha":null,"zeta":1e2}`, string(v.Extra))
	require.Equal(t, []string{"zeta: is no field of a trace; it is kept as it is",
		"alpha: is no field of a trace; it is kept as it is"}, item.Warnings)
	require.EqualValues(t, 1769844600123456, *v.StartedAt)
	require.False(t, v.TextRepaired)

	absent := one(t, `{"trace_id":"t","rollout_id":"r"}`)
	require.Nil(t, absent.Err)
	require.Nil(t, absent.Value.PromptIDs)
	require.Nil(t, absent.Value.ResponseIDs)
	require.Nil(t, absent.Value.ResponseLogprobs)
	require.Equal(t, []string{seqWarning}, absent.Warnings)
	empty := one(t, with(`"prompt_token_ids":[ ],"response_token_ids":[],"response_logprobs":[]`)).Value
	require.NotNil(t, empty.PromptIDs)
	require.NotNil(t, empty.ResponseIDs)
	require.NotNil(t, empty.ResponseLogprobs)
	require.Zero(t, empty.PromptIDs.Len()+len(empty.ResponseIDs)+empty.ResponseLogprobs.Len())
}

func TestTextRepair(t *testing.T) {
	for in, want := range map[string]string{
		`\ud83d\ude00`:       "😀",
		`\ud83d`:             "\uFFFD",
		`\ude00`:             "\uFFFD",
		`\ud83dx\ude00`:      "\uFFFDx\uFFFD",
		`\ud83d\ud83d\ude00`: "\uFFFD😀",
		"a\xff\xfeb":         "a\uFFFD\uFFFDb",
		"\xed\xa0\x80":       "\uFFFD\uFFFD\uFFFD",
		`\ufffd`:             "\uFFFD",
		"\uFFFD":             "\uFFFD",
	} {
		repaired := strings.Contains(want, "\uFFFD") && in != `\ufffd` && in != "\uFFFD"
		for _, f := range []string{`"harness":"` + in + `"`, `"metadata":{"a":"` + in + `"}`, `"error":"` + in + `"`, `"foo":["` + in + `"]`} {
			item := one(t, with(f))
			require.Nil(t, item.Err, f)
			require.Equal(t, repaired, item.Value.TextRepaired, f)
			all := item.Value.Attributes.Harness + string(item.Value.Metadata) + item.Value.Error + string(item.Value.Extra)
			require.Contains(t, all, want)
		}
		// Bodies stay as they came.
		item := one(t, with(`"request":"`+in+`"`))
		require.Equal(t, `"`+in+`"`, string(item.Value.RequestBody))
		require.False(t, item.Value.TextRepaired)
	}
	// The flag belongs to one item only.
	items, err := TracesJSON([]byte(`[`+with(`"harness":"\ud800"`)+`,`+with("")+`]`), Limits{})
	require.NoError(t, err)
	require.True(t, items[0].Value.TextRepaired)
	require.False(t, items[1].Value.TextRepaired)
}

func TestTimes(t *testing.T) {
	for in, want := range map[string]int64{
		"1970-01-01T00:00:00Z":             0,
		"1970-01-01t00:00:00.000001z":      1,
		"1969-12-31T23:59:59.9999999Z":     -1,
		"1970-01-01T01:00:00.123+01:00":    123000,
		"2024-02-29T00:00:00-00:00":        1709164800000000,
		"0001-01-01T00:00:00Z":             firstMicros,
		"9999-12-31T23:59:59.999999999Z":   lastMicros,
		"1970-01-01T00:00:00.000000999Z":   0,
		"1970-01-01T23:59:00.000000+23:59": 0,
	} {
		got, err := parseTime([]byte(in))
		require.Nil(t, err, in)
		require.Equal(t, want, got, in)
	}
	for _, in := range []string{"", "2026-01-31", "2026-01-31T09:30:00", "2026-01-31 09:30:00Z", "2026-01-31T09:30Z",
		"2026-02-30T00:00:00Z", "2026-13-01T00:00:00Z", "2026-00-01T00:00:00Z", "2026-01-31T24:00:00Z", "2026-01-31T23:59:60Z",
		"2026-01-31T09:30:00.Z", "2026-01-31T09:30:00.1234567890Z", "2026-01-31T09:30:00,5Z", "2026-01-31T09:30:00+0200",
		"2026-01-31T09:30:00+24:00", "2026-01-31T09:30:00+02:60", "2026-01-31T09:30:00Zx", "0000-01-01T00:00:00Z",
		"9999-12-31T23:59:59-01:00", "+026-01-31T09:30:00Z", "2026-01-31T9:30:00Z     ", "2026-01-31T09:30:00.5"} {
		_, err := parseTime([]byte(in))
		require.NotNil(t, err, in)
	}
}

func TestNothingPointsIntoTheBody(t *testing.T) {
	body := []byte(with(`"prompt_token_ids":[1,2],"harness":"codex","metadata":{"a":"b"},"request":{"c":"d"},"foo":"bar","error":"e","prompt_hash":"` + strings.Repeat("ab", 32) + `"`))
	items, err := TracesJSON(body, Limits{})
	require.NoError(t, err)
	before := string(EncodeTraceJSON(nil, items[0].Value))
	for i := range body {
		body[i] = 'X'
	}
	require.Equal(t, before, string(EncodeTraceJSON(nil, items[0].Value)))
}

func TestCanonicalWorkIsBounded(t *testing.T) {
	// Unsorted keys at each of many levels above something large.
	inner := `"` + strings.Repeat("x", 1<<20) + `"`
	for range 400 {
		inner = `{"b":0,"a":` + inner + `}`
	}
	item := one(t, with(`"metadata":`+inner))
	require.NotNil(t, item.Err)
	require.Equal(t, "metadata", item.Err.Field)
}

func TestWarningsAreFew(t *testing.T) {
	var fields []string
	for i := range 100 {
		fields = append(fields, `"x`+strings.Repeat("y", i)+`":1`)
	}
	item := one(t, with(strings.Join(fields, ",")))
	require.Nil(t, item.Err)
	require.Len(t, item.Warnings, maxWarnings+1)
}

// A number above 0 is no log-probability. It is kept as it was sent, like anything else
// that can be read, and the sender is told; rounding and what is not finite are ordinary.
func TestImpossibleLogprobsAreTold(t *testing.T) {
	const ids = `"response_token_ids":[1,2,3,4],"response_logprobs":`
	item := one(t, with(ids+`[0.5,null,-1,2.5]`))
	require.Nil(t, item.Err)
	require.Equal(t, []string{"response_logprobs[0]: 0.5 is above 0, which no log-probability is; 2 of 4 are: they are kept as sent, and a learner should leave them out"}, item.Warnings)
	require.Equal(t, []float32{0.5, 0, -1, 2.5}, item.Value.ResponseLogprobs.Values)
	again := one(t, string(EncodeTraceJSON(nil, item.Value)))
	require.Equal(t, item.Value.ResponseLogprobs, again.Value.ResponseLogprobs)
	for _, ordinary := range []string{`[0,-0.0,0.001,1e-9]`, `[NaN,Infinity,-Infinity,null]`, `[-1,-9999,-3.4e38,-1e-30]`} {
		require.Empty(t, one(t, with(ids+ordinary)).Warnings, ordinary)
	}
	rec := rawRecords(t, `[{"trace_id":"t","rollout_id":"r","seq":1,"response_token_ids":[1,2],"response_logprobs":[-1,3]}]`,
		arrow.Field{Name: "trace_id", Type: arrow.BinaryTypes.String}, arrow.Field{Name: "rollout_id", Type: arrow.BinaryTypes.String},
		arrow.Field{Name: "seq", Type: arrow.PrimitiveTypes.Int64}, arrow.Field{Name: "response_token_ids", Type: arrow.ListOf(arrow.PrimitiveTypes.Int32)},
		arrow.Field{Name: "response_logprobs", Type: arrow.ListOf(arrow.PrimitiveTypes.Float32)})
	items, err := TracesArrow(stream([]arrow.RecordBatch{rec}), Limits{})
	require.NoError(t, err)
	require.Len(t, items[0].Warnings, 1)
	require.Contains(t, items[0].Warnings[0], "response_logprobs[1]: 3 is above 0")
}
