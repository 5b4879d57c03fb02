package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"icecore/trace"
)

var codecs = [][]ipc.Option{nil, {ipc.WithZstd()}, {ipc.WithLZ4()}, {ipc.WithZstd(), ipc.WithMinSpaceSavings(0.3)}, {ipc.WithDictionaryDeltas(true)}}

func TestArrowNamesAllFields(t *testing.T) {
	const inAnswersOnly = "stored"
	for _, f := range traceFields.fields {
		if f.name != inAnswersOnly {
			require.Contains(t, arrowColumns, f.name)
		}
	}
	require.Len(t, arrowColumns, len(traceFields.fields)-1)
}

func TestArrowRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		choice := rapid.IntRange(0, 39)
		l := layout{text: choice.Draw(t, "text"), body: choice.Draw(t, "body"), whole: choice.Draw(t, "whole"), list: choice.Draw(t, "list"),
			elem: choice.Draw(t, "elem"), float: choice.Draw(t, "float"), stamp: choice.Draw(t, "stamp"), hash: choice.Draw(t, "hash")}
		var traces []*trace.Trace
		for range rapid.IntRange(1, 4).Draw(t, "traces") {
			v := anyTrace(t)
			v.Extra = nil
			traces = append(traces, v)
		}
		all := l.batch(traces)
		from := rapid.IntRange(0, len(traces)-1).Draw(t, "from")
		to := rapid.IntRange(from, len(traces)).Draw(t, "to")
		part := all.NewSlice(int64(from), int64(to))

		check := func(items []Item[trace.Trace], err error, want []*trace.Trace) {
			require.NoError(t, err)
			require.Len(t, items, len(want))
			for i, item := range items {
				require.Nil(t, item.Err)
				equalTraces(t, want[i], item.Value)
			}
		}
		items, err := TracesRecordBatch(part, Limits{})
		check(items, err, traces[from:to])
		body := stream([]arrow.RecordBatch{all, part}, codecs[rapid.IntRange(0, len(codecs)-1).Draw(t, "codec")]...)
		items, err = TracesArrow(body, Limits{})
		check(items, err, append(append([]*trace.Trace{}, traces...), traces[from:to]...))
		before := string(EncodeTraceJSON(nil, items[0].Value))
		clear(body)
		require.Equal(t, before, string(EncodeTraceJSON(nil, items[0].Value)), "points into the body")
	})
}

// records makes a batch from JSON rows, with trace_id and rollout_id added.
func records(t testing.TB, rows string, fields ...arrow.Field) arrow.RecordBatch {
	t.Helper()
	rows = strings.ReplaceAll(rows, "{", `{"trace_id":"t","rollout_id":"r"`)
	return rawRecords(t, rows, append([]arrow.Field{{Name: "trace_id", Type: arrow.BinaryTypes.String}, {Name: "rollout_id", Type: arrow.BinaryTypes.String}}, fields...)...)
}

func rawRecords(t testing.TB, rows string, fields ...arrow.Field) arrow.RecordBatch {
	t.Helper()
	for i := range fields {
		fields[i].Nullable = true
	}
	rec, _, err := array.RecordFromJSON(memory.DefaultAllocator, arrow.NewSchema(fields, nil), strings.NewReader(rows))
	require.NoError(t, err)
	return rec
}

func TestArrowRefusesItems(t *testing.T) {
	i64, u32, u64 := arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Uint32, arrow.PrimitiveTypes.Uint64
	text := arrow.BinaryTypes.String
	for _, c := range []struct {
		name  string
		dt    arrow.DataType
		value string
		field string
		part  string
	}{
		{"prompt_token_ids", arrow.ListOf(i64), `[1,2147483648]`, "prompt_token_ids[1]", "2147483648 is not a token id"},
		{"prompt_token_ids", arrow.ListOf(u32), `[4294967295]`, "prompt_token_ids[0]", "4294967295 is not"},
		{"prompt_token_ids", arrow.LargeListOf(u64), `[18446744073709551615]`, "prompt_token_ids[0]", "18446744073709551615 is not"},
		{"prompt_token_ids", arrow.ListOf(arrow.PrimitiveTypes.Int32), `[1,-1]`, "prompt_token_ids[1]", "-1 is not"},
		{"prompt_token_ids", arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Int32), `[1,null]`, "prompt_token_ids[1]", "null is not"},
		{"response_token_ids", arrow.ListOf(arrow.PrimitiveTypes.Int8), `[-3]`, "response_token_ids[0]", "-3 is not"},
		{"response_logprobs", arrow.ListOf(arrow.PrimitiveTypes.Float64), `[1e39]`, "response_logprobs[0]", "1e+39 is beyond"},
		{"seq", u64, `9223372036854775808`, "seq", "does not fit"},
		{"seq", i64, `-1`, "seq", "less than 0"},
		{"metadata", text, `"[1]"`, "metadata", "is an array, not an object"},
		{"metadata", text, `"{\"a\":}"`, "metadata", "is not JSON: byte 5"},
		{"metadata", text, `""`, "metadata", "is not JSON"},
		{"request", text, `"nope"`, "request", "is not JSON: byte 0"},
		{"request", text, `"{} {}"`, "request", "something follows"},
		{"started_at", text, `"2026-01-01T00:00:00"`, "started_at", "RFC 3339"},
		{"started_at", &arrow.TimestampType{Unit: arrow.Second}, `"2026-01-01"`, "", ""},
		{"prompt_hash", text, `"abc"`, "prompt_hash", "64 hex"},
		{"policy_version_spans", arrow.ListOf(arrow.StructOf(arrow.Field{Name: "version", Type: i64, Nullable: true}, arrow.Field{Name: "start", Type: i64})),
			`[{"start":0,"version":1},{"start":1,"version":null}]`, "policy_version_spans[1]", "null"},
		{"prompt_prefix", arrow.StructOf(arrow.Field{Name: "length", Type: i64, Nullable: true}, arrow.Field{Name: "trace_id", Type: text}),
			`{"trace_id":"a","length":null}`, "prompt_prefix.length", "required"},
		{"task_id", text, `"\u0007"`, "task_id", "not printable"},
	} {
		rec := rawRecords(t, fmt.Sprintf(`[{"trace_id":"t","rollout_id":"r"},{"trace_id":"t","rollout_id":"r",%q:%s}]`, c.name, c.value),
			arrow.Field{Name: "trace_id", Type: text}, arrow.Field{Name: "rollout_id", Type: text}, arrow.Field{Name: c.name, Type: c.dt})
		items, err := TracesArrow(stream([]arrow.RecordBatch{rec}), Limits{})
		require.NoError(t, err, c.name)
		require.Nil(t, items[0].Err, c.name)
		if c.part == "" {
			require.Nil(t, items[1].Err, c.name)
			continue
		}
		require.NotNil(t, items[1].Err, "%s %s", c.name, c.value)
		require.Equal(t, c.field, items[1].Err.Field)
		require.Contains(t, items[1].Err.Message, c.part)
		require.Equal(t, "t", items[1].ID)
	}
}

func TestArrowRefusesColumns(t *testing.T) {
	text := arrow.BinaryTypes.String
	for _, c := range []struct {
		field arrow.Field
		part  string
	}{
		{arrow.Field{Name: "prompt_token_ids", Type: text}, `column "prompt_token_ids": wanted a list of integers, found utf8`},
		{arrow.Field{Name: "prompt_token_ids", Type: arrow.ListOf(text)}, `wanted a list of integers, found list<item: utf8, nullable>`},
		{arrow.Field{Name: "response_logprobs", Type: arrow.ListOf(arrow.PrimitiveTypes.Int32)}, "wanted a list of float32 or float64"},
		{arrow.Field{Name: "seq", Type: arrow.PrimitiveTypes.Float64}, `column "seq": wanted an integer, found float64`},
		{arrow.Field{Name: "model", Type: arrow.PrimitiveTypes.Int32}, "wanted a string, found int32"},
		{arrow.Field{Name: "model", Type: arrow.BinaryTypes.Binary}, "wanted a string, found binary"},
		{arrow.Field{Name: "ids_incomplete", Type: arrow.PrimitiveTypes.Int8}, "wanted bool"},
		{arrow.Field{Name: "started_at", Type: arrow.PrimitiveTypes.Int64}, "wanted a timestamp or a string"},
		{arrow.Field{Name: "prompt_hash", Type: &arrow.FixedSizeBinaryType{ByteWidth: 16}}, "wanted 32 bytes"},
		{arrow.Field{Name: "metadata", Type: arrow.PrimitiveTypes.Int32}, "wanted a JSON object"},
		{arrow.Field{Name: "prompt_prefix", Type: arrow.StructOf(arrow.Field{Name: "trace_id", Type: text})}, "wanted struct<"},
		{arrow.Field{Name: "mine", Type: arrow.ListOf(text)}, `column "mine": is no field of a trace, and of a type`},
		{arrow.Field{Name: "mine", Type: arrow.MapOf(text, text)}, "not supported"},
		{arrow.Field{Name: "traces", Type: text}, "must not be named"},
		{arrow.Field{Name: "trace_id", Type: text}, "twice"},
	} {
		schema := arrow.NewSchema([]arrow.Field{{Name: "trace_id", Type: text}, {Name: c.field.Name, Type: c.field.Type, Nullable: true}}, nil)
		b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
		b.Field(0).(*array.StringBuilder).Append("t")
		b.Field(1).AppendEmptyValue()
		_, err := TracesArrow(stream([]arrow.RecordBatch{b.NewRecordBatch()}), Limits{})
		require.Contains(t, requireEnvelope(t, err, CodeInvalidArrow, 400).Message, c.part)
	}
}

func TestArrowExtras(t *testing.T) {
	text := arrow.BinaryTypes.String
	rec := rawRecords(t, `[{"trace_id":"t","rollout_id":"r","n":9007199254740993,"f":0.1,"s":"é","b":true,"at":"2026-01-01T00:00:00Z",
		"metadata":{"z":1,"a":[{"b":"<"}]},"usage":null,"gone":null},{"trace_id":"t","rollout_id":"r"}]`,
		arrow.Field{Name: "trace_id", Type: text}, arrow.Field{Name: "rollout_id", Type: text}, arrow.Field{Name: "n", Type: arrow.PrimitiveTypes.Int64},
		arrow.Field{Name: "f", Type: arrow.PrimitiveTypes.Float32}, arrow.Field{Name: "s", Type: arrow.BinaryTypes.LargeString},
		arrow.Field{Name: "b", Type: arrow.FixedWidthTypes.Boolean}, arrow.Field{Name: "at", Type: arrow.FixedWidthTypes.Timestamp_ns},
		arrow.Field{Name: "metadata", Type: arrow.StructOf(arrow.Field{Name: "z", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
			arrow.Field{Name: "a", Type: arrow.ListOf(arrow.StructOf(arrow.Field{Name: "b", Type: text})), Nullable: true})},
		arrow.Field{Name: "usage", Type: arrow.Null}, arrow.Field{Name: "gone", Type: arrow.Null})
	items, err := TracesArrow(stream([]arrow.RecordBatch{rec}), Limits{})
	require.NoError(t, err)
	require.Nil(t, items[0].Err)
	require.Equal(t, `{"at":"2026-01-01T00:00:00Z","b":true,"f":0.1,"n":9007199254740993,"s":"é"}`, string(items[0].Value.Extra))
	require.Equal(t, `{"a":[{"b":"<"}],"z":1}`, string(items[0].Value.Metadata))
	require.Len(t, items[0].Warnings, 6)
	require.Nil(t, items[1].Value.Extra)
	require.Nil(t, items[1].Value.Metadata)
	require.Equal(t, []string{seqWarning}, items[1].Warnings)
}

func TestArrowText(t *testing.T) {
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{{Name: "trace_id", Type: arrow.BinaryTypes.String},
		{Name: "rollout_id", Type: arrow.BinaryTypes.String}, {Name: "harness", Type: arrow.BinaryTypes.String}, {Name: "request", Type: arrow.BinaryTypes.Binary},
		{Name: "response_token_ids", Type: arrow.FixedSizeListOf(3, arrow.PrimitiveTypes.Uint32)},
		{Name: "response_logprobs", Type: arrow.FixedSizeListOf(3, arrow.PrimitiveTypes.Float64)}}, nil))
	appendText(b.Field(0), "t")
	appendText(b.Field(1), "r")
	appendText(b.Field(2), "a\xff\xffb")
	appendText(b.Field(3), " {\"a\" : \"\xff\"}\n")
	ids := b.Field(4).(*array.FixedSizeListBuilder)
	ids.Append(true)
	ids.ValueBuilder().(*array.Uint32Builder).AppendValues([]uint32{1, 2, 3}, nil)
	logprobs := b.Field(5).(*array.FixedSizeListBuilder)
	logprobs.Append(true)
	logprobs.ValueBuilder().(*array.Float64Builder).AppendValues([]float64{math.Float64frombits(0xfff8000000000001), math.Inf(-1), -0.1}, nil)
	items, err := TracesArrow(stream([]arrow.RecordBatch{b.NewRecordBatch()}), Limits{})
	require.NoError(t, err)
	v := items[0].Value
	require.True(t, v.TextRepaired)
	require.Equal(t, "a\uFFFD\uFFFDb", v.Attributes.Harness)
	require.Equal(t, "{\"a\" : \"\xff\"}", string(v.RequestBody))
	require.Equal(t, []int32{1, 2, 3}, v.ResponseIDs)
	require.Equal(t, []int64{canonicalNaN, 0xff800000, int64(math.Float32bits(-0.1))}, logprobBits(v.ResponseLogprobs))
}

func someStream(opts ...ipc.Option) []byte {
	g := rapid.Custom(anyTrace)
	var traces []*trace.Trace
	for i := range 3 {
		traces = append(traces, g.Example(i))
	}
	l := layout{text: 3, list: 1, elem: 0, body: 2}
	return stream([]arrow.RecordBatch{l.batch(traces), l.batch(traces[:1])}, opts...)
}

func TestArrowCut(t *testing.T) {
	body := someStream()
	_, err := TracesArrow(body, Limits{})
	require.NoError(t, err)
	for n := range len(body) {
		if _, err := TracesArrow(body[:n], Limits{}); err == nil {
			t.Fatalf("a stream cut at byte %d of %d is taken for whole", n, len(body))
		}
	}
	_, err = TracesArrow(append(bytes.Clone(body), 0), Limits{})
	requireEnvelope(t, err, CodeInvalidArrow, 400)
	_, err = TracesArrow(nil, Limits{})
	requireEnvelope(t, err, CodeInvalidArrow, 400)
	_, err = TracesArrow(body, Limits{MaxItems: 3})
	requireEnvelope(t, err, CodeTooManyItems, 413)
}

// TestArrowMutated flips bytes: whatever comes out, it is no panic and no large
// allocation.
func TestArrowMutated(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, opts := range codecs {
		body := someStream(opts...)
		lim := Limits{MaxBytes: 1 << 20}
		for range 800 {
			b := bytes.Clone(body)
			for range 1 + rnd.IntN(3) {
				at := rnd.IntN(len(b))
				switch rnd.IntN(3) {
				case 0:
					b[at] ^= 1 << rnd.IntN(8)
				case 1:
					b[at] = byte(rnd.Uint32())
				default:
					if at &^= 3; at+4 <= len(b) {
						binary.LittleEndian.PutUint32(b[at:], pick([]uint32{0, 1, 0x7fffffff, 0xffffffff, 0x80000000, 1 << 20}, rnd.IntN(6)))
					}
				}
			}
			allocated := bytesAllocated(func() { _, _ = TracesArrow(b, lim) })
			require.Less(t, allocated, uint64(64<<20))
		}
	}
}

func TestArrowInflateIsBounded(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	rec := records(t, `[{,"model":"`+long+`"}]`, arrow.Field{Name: "model", Type: arrow.BinaryTypes.String})
	for _, opt := range []ipc.Option{ipc.WithZstd(), ipc.WithLZ4()} {
		body := stream([]arrow.RecordBatch{rec}, opt)
		require.Less(t, len(body), 1<<16)
		items, err := TracesArrow(body, Limits{})
		require.NoError(t, err)
		require.Equal(t, long, items[0].Value.Attributes.Model)
		_, err = TracesArrow(body, Limits{MaxBytes: 1 << 19})
		requireEnvelope(t, err, CodeRequestTooLarge, 413)
		// A buffer that claims more than it is, or less.
		size := binary.LittleEndian.AppendUint64(nil, 1<<20)
		at := bytes.Index(body, size)
		require.Positive(t, at)
		for _, lie := range []uint64{1<<20 - 1, 1<<20 + 1, 1 << 40, 1 << 63, math.MaxUint64 - 1} {
			b := bytes.Clone(body)
			binary.LittleEndian.PutUint64(b[at:], lie)
			_, err := TracesArrow(b, Limits{})
			require.Error(t, err)
		}
	}
}

// TestArrowRepeatedText: many rows of one dictionary entry stand for more than
// was sent.
func TestArrowRepeatedText(t *testing.T) {
	dict := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}
	row := `{,"request":"` + strings.Repeat("1", 1<<16) + `"}`
	rec := records(t, `[`+row+strings.Repeat(","+row, 99)+`]`, arrow.Field{Name: "request", Type: dict})
	body := stream([]arrow.RecordBatch{rec})
	require.Less(t, len(body), 1<<17)
	_, err := TracesArrow(body, Limits{MaxBytes: 1 << 20})
	requireEnvelope(t, err, CodeRequestTooLarge, 413)
	items, err := TracesArrow(body, Limits{})
	require.NoError(t, err)
	require.Len(t, items, 100)
}

func TestArrowDictionariesChange(t *testing.T) {
	l := layout{text: 3}
	batch := func(models ...string) arrow.RecordBatch {
		var traces []*trace.Trace
		for _, m := range models {
			traces = append(traces, &trace.Trace{TraceID: "t", RolloutID: "r", Attributes: trace.Attributes{Model: m}})
		}
		return l.batch(traces)
	}
	for _, deltas := range []bool{false, true} {
		body := stream([]arrow.RecordBatch{batch("a", "b"), batch("a", "b", "c"), batch("a", "b", "c", "d", "a")}, ipc.WithDictionaryDeltas(deltas))
		items, err := TracesArrow(body, Limits{})
		require.NoError(t, err)
		got := ""
		for _, item := range items {
			got += item.Value.Attributes.Model
		}
		require.Equal(t, "ababcabcda", got)
	}
}
