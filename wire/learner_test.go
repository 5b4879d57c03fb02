package wire

import (
	"math"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"icecore/trace"
)

func learnerValues(t *testing.T, l *trace.Logprobs) (out []any) {
	t.Helper()
	for i := range l.Values {
		if v, known := l.At(i); known {
			out = append(out, v)
		} else {
			out = append(out, nil)
		}
	}
	return out
}

func TestLearnerLogprobsJSON(t *testing.T) {
	t.Parallel()
	const one = `{"logprobs":[null,-0.5,NaN,"-Infinity",1e-3],"policy_version":9007199254740993,"trajectory_id":"tr_1"}`
	for name, body := range map[string]string{
		"object": one, "array": "[" + one + "]", "envelope": `{ "logprobs" : [ ` + one + ` ] }`,
		"spaces": strings.ReplaceAll(one, ":[null", ": [ null"),
	} {
		items, err := LearnerLogprobsJSON([]byte(body), Limits{})
		require.NoError(t, err, name)
		require.Len(t, items, 1, name)
		require.Nil(t, items[0].Err, name)
		v := items[0].Value
		require.Equal(t, []any{"tr_1", int64(9007199254740993)}, []any{v.TrajectoryID, v.PolicyVersion}, name)
		require.Equal(t, []any{nil, float32(-0.5), nil, float32(math.Inf(-1)), float32(1e-3)}, learnerValues(t, v.Logprobs), name)
	}
	for body, n := range map[string]int{`{"logprobs":[]}`: 0, `[]`: 0, `{"logprobs":[],"trajectory_id":"t","policy_version":1}`: 1} {
		items, err := LearnerLogprobsJSON([]byte(body), Limits{})
		require.NoError(t, err, body)
		require.Len(t, items, n, body)
	}
}

func TestLearnerLogprobsRefused(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"policy_version":1,"logprobs":[]}`:                                                      "missing_field trajectory_id",
		`{"trajectory_id":"t","logprobs":[]}`:                                                     "missing_field policy_version",
		`{"trajectory_id":"t","policy_version":null,"logprobs":[]}`:                               "missing_field policy_version",
		`{"trajectory_id":"t","policy_version":1}`:                                                "missing_field logprobs",
		`{"trajectory_id":"t","policy_version":1,"logprobs":null}`:                                "missing_field logprobs",
		`{"trajectory_id":"t","policy_version":-1,"logprobs":[]}`:                                 "invalid_field policy_version",
		`{"trajectory_id":"t","policy_version":1.5,"logprobs":[]}`:                                "invalid_field policy_version",
		`{"trajectory_id":"t","policy_version":99999999999999999999,"logprobs":[]}`:               "invalid_field policy_version",
		`{"trajectory_id":"t","policy_version":1,"logprobs":[-1,"x"]}`:                            "invalid_field logprobs[1]",
		`{"trajectory_id":"t","policy_version":1,"logprobs":[1e99]}`:                              "invalid_field logprobs[0]",
		`{"trajectory_id":"t","policy_version":1,"logprobs":{}}`:                                  "invalid_field logprobs",
		`{"trajectory_id":7,"policy_version":1,"logprobs":[]}`:                                    "invalid_field trajectory_id",
		`{"logprobs":[1],"logprobs":[1],"trajectory_id":"t","policy_version":1}`:                  "duplicate_field logprobs",
		`{"trajectory_id":"t","policy_version":1,"logprobs":[` + strings.Repeat("0,", 64) + `0]}`: "too_many_tokens logprobs",
	} {
		items, err := LearnerLogprobsJSON([]byte(body), Limits{Limits: trace.Limits{MaxTokens: 64}})
		require.NoError(t, err, body)
		require.Len(t, items, 1, body)
		require.NotNil(t, items[0].Err, body)
		require.Equal(t, want, string(items[0].Err.Code)+" "+items[0].Err.Field, body)
	}
	for _, body := range []string{`{"logprobs":[{}],"x":1}`, `{"logprobs":[{}`, `{"logprobs":[`, `[{}`, ``} {
		_, err := LearnerLogprobsJSON([]byte(body), Limits{})
		requireEnvelope(t, err, trace.CodeInvalidJSON, 400)
	}
	items, err := LearnerLogprobsJSON([]byte(`{"trajectory_id":"t","policy_version":1,"logprobs":[0],"loss":2}`), Limits{})
	require.NoError(t, err)
	require.Nil(t, items[0].Err)
	require.Len(t, items[0].Warnings, 1)
}

// learnerBatches writes one row per list, in any of the types that a column may
// have.
func learnerBatch(id, version, list arrow.DataType, rows []trace.LearnerLogprobs) arrow.RecordBatch {
	schema := arrow.NewSchema([]arrow.Field{{Name: "logprobs", Type: list, Nullable: true}, {Name: "trajectory_id", Type: id},
		{Name: "policy_version", Type: version}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	for i := range rows {
		appendLogprobs(b.Field(0), rows[i].Logprobs)
		appendText(b.Field(1), rows[i].TrajectoryID)
		appendWhole(b.Field(2), &rows[i].PolicyVersion)
	}
	return b.NewRecordBatch()
}

func TestLearnerLogprobsArrow(t *testing.T) {
	t.Parallel()
	rows := []trace.LearnerLogprobs{
		{TrajectoryID: "tr_1", PolicyVersion: 3, Logprobs: &trace.Logprobs{Values: []float32{0, -1, float32(math.NaN()), -2}, Known: []bool{false, true, true, true}}},
		{TrajectoryID: "tr_2", PolicyVersion: 4, Logprobs: &trace.Logprobs{}},
		{TrajectoryID: "tr_3", PolicyVersion: 5},
	}
	for i := range 20 {
		l := layout{list: i / 2}
		batch := learnerBatch(pick(textTypes, i), pick(wholeTypes, i), l.listOf(pick(floatTypes, i)), rows)
		// A slice has offsets, and buffers that hold more than it shows.
		whole := stream(append(batches(batch), batch.NewSlice(1, 3)), codecs[i%len(codecs)]...)
		items, err := LearnerLogprobsArrow(whole, Limits{})
		require.NoError(t, err, "%d", i)
		require.Len(t, items, 5)
		require.Equal(t, []any{nil, float32(-1), nil, float32(-2)}, learnerValues(t, items[0].Value.Logprobs))
		require.Equal(t, []any{"tr_2", int64(4)}, []any{items[3].Value.TrajectoryID, items[3].Value.PolicyVersion})
		require.Equal(t, trace.CodeMissingField, items[2].Err.Code)
		require.Equal(t, []string{"logprobs", "tr_3"}, []string{items[2].Err.Field, items[2].ID})
	}
	text, whole := arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int64
	for _, batch := range []arrow.RecordBatch{
		learnerBatch(whole, whole, arrow.ListOf(arrow.PrimitiveTypes.Float32), nil),
	} {
		_, err := LearnerLogprobsArrow(stream(batches(batch)), Limits{})
		require.NoError(t, err, "no rows say nothing wrong")
	}
	bad := records(t, `[{"trajectory_id":1,"policy_version":1,"logprobs":1}]`, fieldsOf("trajectory_id", "policy_version", "logprobs")...)
	_, err := LearnerLogprobsArrow(stream(batches(bad)), Limits{})
	requireEnvelope(t, err, CodeInvalidArrow, 400)
	twice := records(t, `[{"a":1}]`, fieldsOf("logprobs", "logprobs")...)
	_, err = LearnerLogprobsArrow(stream(batches(twice)), Limits{})
	requireEnvelope(t, err, CodeInvalidArrow, 400)
	extra := learnerBatch(text, whole, arrow.ListOf(arrow.PrimitiveTypes.Float32), rows[:1])
	_, err = LearnerLogprobsArrow(stream(batches(extra))[:40], Limits{})
	requireEnvelope(t, err, CodeInvalidArrow, 400)
}

// Nulls take no bytes: a short stream must not stand for any number of them.
func TestLearnerLogprobsOfNulls(t *testing.T) {
	t.Parallel()
	const n = 1 << 20
	offsets := make([]int32, 65)
	for i := range offsets {
		offsets[i] = int32(i) * n
	}
	nulls := array.NewNull(64 * n)
	lists := array.NewListData(array.NewData(arrow.ListOf(arrow.Null), 64,
		[]*memory.Buffer{nil, memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(offsets))}, []arrow.ArrayData{nulls.Data()}, 0, 0))
	schema := arrow.NewSchema([]arrow.Field{{Name: "logprobs", Type: lists.DataType()}}, nil)
	body := stream(batches(array.NewRecordBatch(schema, []arrow.Array{lists}, 64)), ipc.WithZstd())
	require.Less(t, len(body), 1<<12)
	_, err := LearnerLogprobsArrow(body, Limits{MaxBytes: 8 << 20})
	requireEnvelope(t, err, CodeRequestTooLarge, 413)
	few := array.NewSlice(lists, 0, 2)
	body = stream(batches(array.NewRecordBatch(schema, []arrow.Array{few}, 2)))
	items, err := LearnerLogprobsArrow(body, Limits{})
	require.NoError(t, err)
	require.Equal(t, "trajectory_id", items[1].Err.Field, "the nulls themselves are well")
}
