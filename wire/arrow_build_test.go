package wire

import (
	"bytes"
	"encoding/hex"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"icecore/trace"
)

// layout picks one of the Arrow types that each field may have.
type layout struct {
	text, body, whole, list, elem, float, stamp, hash int
}

func pick[T any](from []T, i int) T { return from[i%len(from)] }

var (
	textTypes = []arrow.DataType{arrow.BinaryTypes.String, arrow.BinaryTypes.LargeString, arrow.BinaryTypes.StringView,
		&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String},
		&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Uint32, ValueType: arrow.BinaryTypes.String}}
	bodyTypes  = append([]arrow.DataType{arrow.BinaryTypes.Binary, arrow.BinaryTypes.LargeBinary, arrow.BinaryTypes.BinaryView}, textTypes...)
	wholeTypes = []arrow.DataType{arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Uint64}
	elemTypes  = []arrow.DataType{arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Uint32, arrow.PrimitiveTypes.Uint64}
	floatTypes = []arrow.DataType{arrow.PrimitiveTypes.Float32, arrow.PrimitiveTypes.Float64}
	stampTypes = []arrow.DataType{&arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}, &arrow.TimestampType{Unit: arrow.Microsecond},
		&arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "Europe/Berlin"}, arrow.BinaryTypes.String}
	hashTypes = []arrow.DataType{&arrow.FixedSizeBinaryType{ByteWidth: 32}, arrow.BinaryTypes.Binary, arrow.BinaryTypes.String}
)

func (l layout) listOf(elem arrow.DataType) arrow.DataType {
	if l.list%2 == 0 {
		return arrow.ListOf(elem)
	}
	return arrow.LargeListOf(elem)
}

func (l layout) schema() *arrow.Schema {
	text, whole := pick(textTypes, l.text), pick(wholeTypes, l.whole)
	ids := l.listOf(pick(elemTypes, l.elem))
	types := map[string]arrow.DataType{
		"seq": whole, "policy_version": whole, "choice_index": whole, "sample_index": whole,
		"prompt_token_ids": ids, "response_token_ids": ids, "response_logprobs": l.listOf(pick(floatTypes, l.float)),
		"prompt_prefix":  arrow.StructOf(arrow.Field{Name: "trace_id", Type: text}, arrow.Field{Name: "length", Type: whole}),
		"prompt_hash":    pick(hashTypes, l.hash),
		"ids_incomplete": arrow.FixedWidthTypes.Boolean, "text_repaired": arrow.FixedWidthTypes.Boolean,
		"policy_version_spans": l.listOf(arrow.StructOf(arrow.Field{Name: "start", Type: whole}, arrow.Field{Name: "version", Type: whole})),
		"started_at":           pick(stampTypes, l.stamp), "first_token_at": pick(stampTypes, l.stamp), "finished_at": pick(stampTypes, l.stamp),
		"request": pick(bodyTypes, l.body), "response": pick(bodyTypes, l.body),
	}
	var fields []arrow.Field
	for _, f := range traceFields.fields {
		dt := types[f.name]
		if dt == nil {
			dt = text
		}
		fields = append(fields, arrow.Field{Name: f.name, Type: dt, Nullable: true})
	}
	return arrow.NewSchema(fields, nil)
}

// batch writes traces as one record batch. Extra is left out.
func (l layout) batch(traces []*trace.Trace) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, l.schema())
	defer b.Release()
	for _, t := range traces {
		for i, f := range traceFields.fields {
			appendField(b.Field(i), f.name, t)
		}
	}
	return b.NewRecordBatch()
}

func appendField(b array.Builder, name string, t *trace.Trace) {
	switch name {
	case "prompt_token_ids":
		appendIDs(b, t.PromptIDs.Flat(), t.PromptIDs != nil)
	case "response_token_ids":
		appendIDs(b, t.ResponseIDs, t.ResponseIDs != nil)
	case "response_logprobs":
		appendLogprobs(b, t.ResponseLogprobs)
	case "prompt_prefix":
		s := b.(*array.StructBuilder)
		if t.PromptPrefix == nil {
			s.AppendNull()
			return
		}
		s.Append(true)
		appendText(s.FieldBuilder(0), t.PromptPrefix.TraceID)
		appendWhole(s.FieldBuilder(1), &t.PromptPrefix.Length)
	case "prompt_hash":
		if _, hexadecimal := b.(*array.StringBuilder); hexadecimal {
			appendText(b, hex.EncodeToString(t.PromptHash))
		} else {
			appendText(b, string(t.PromptHash))
		}
	case "policy_version_spans":
		if t.PolicyVersionSpans == nil {
			b.AppendNull()
			return
		}
		b.(array.ListLikeBuilder).Append(true)
		s := b.(array.ListLikeBuilder).ValueBuilder().(*array.StructBuilder)
		for _, span := range t.PolicyVersionSpans {
			s.Append(true)
			appendWhole(s.FieldBuilder(0), &span.Start)
			appendWhole(s.FieldBuilder(1), &span.Version)
		}
	case "ids_incomplete", "text_repaired":
		b.(*array.BooleanBuilder).Append(name == "ids_incomplete" && t.IDsIncomplete || name == "text_repaired" && t.TextRepaired)
	case "seq":
		appendWhole(b, t.Seq)
	case "policy_version":
		appendWhole(b, t.PolicyVersion)
	case "choice_index":
		appendWhole(b, t.ChoiceIndex)
	case "sample_index":
		appendWhole(b, t.Attributes.SampleIndex)
	case "started_at":
		appendStamp(b, t.StartedAt)
	case "first_token_at":
		appendStamp(b, t.FirstTokenAt)
	case "finished_at":
		appendStamp(b, t.FinishedAt)
	default:
		appendText(b, map[string]string{"trace_id": t.TraceID, "rollout_id": t.RolloutID, "status": string(t.Status), "kind": string(t.Kind),
			"finish_reason": t.FinishReason, "choice_group": t.ChoiceGroup, "task_id": t.Attributes.TaskID, "group_id": t.Attributes.GroupID,
			"harness": t.Attributes.Harness, "harness_version": t.Attributes.HarnessVersion, "model": t.Attributes.Model, "tokenizer": t.Tokenizer,
			"api": t.API, "parent_rollout_id": t.ParentRolloutID, "chat_template_hash": t.ChatTemplateHash, "tools_hash": t.ToolsHash,
			"sampling": string(t.Sampling), "usage": string(t.Usage), "metadata": string(t.Metadata), "error": t.Error,
			"request": string(t.RequestBody), "response": string(t.ResponseBody)}[name])
	}
}

// appendText writes text; an empty one as null.
func appendText(b array.Builder, v string) {
	if v == "" {
		b.AppendNull()
		return
	}
	var err error
	switch b := b.(type) {
	case *array.StringBuilder:
		b.Append(v)
	case *array.LargeStringBuilder:
		b.Append(v)
	case *array.StringViewBuilder:
		b.Append(v)
	case *array.BinaryDictionaryBuilder:
		err = b.AppendString(v)
	case *array.BinaryViewBuilder:
		b.Append([]byte(v))
	case *array.BinaryBuilder:
		b.Append([]byte(v))
	case *array.FixedSizeBinaryBuilder:
		b.Append([]byte(v))
	default:
		panic(b.Type())
	}
	if err != nil {
		panic(err)
	}
}

func appendWhole(b array.Builder, v *int64) {
	if v == nil {
		b.AppendNull()
		return
	}
	switch b := b.(type) {
	case *array.Int64Builder:
		b.Append(*v)
	case *array.Int32Builder:
		b.Append(int32(*v))
	case *array.Uint32Builder:
		b.Append(uint32(*v))
	case *array.Uint64Builder:
		b.Append(uint64(*v))
	default:
		panic(b.Type())
	}
}

func appendIDs(b array.Builder, ids []int32, known bool) {
	if !known {
		b.AppendNull()
		return
	}
	list := b.(array.ListLikeBuilder)
	list.Append(true)
	for _, id := range ids {
		v := int64(id)
		appendWhole(list.ValueBuilder(), &v)
	}
}

func appendLogprobs(b array.Builder, l *trace.Logprobs) {
	if l == nil {
		b.AppendNull()
		return
	}
	list := b.(array.ListLikeBuilder)
	list.Append(true)
	for i := range l.Values {
		v, known := l.At(i)
		switch b := list.ValueBuilder().(type) {
		case *array.Float32Builder:
			if known {
				b.Append(v)
			} else {
				b.AppendNull()
			}
		case *array.Float64Builder:
			if known {
				b.Append(float64(v))
			} else {
				b.AppendNull()
			}
		}
	}
}

func appendStamp(b array.Builder, v *int64) {
	if v == nil {
		b.AppendNull()
		return
	}
	if s, ok := b.(*array.StringBuilder); ok {
		s.Append(time.UnixMicro(*v).UTC().Format(time.RFC3339Nano))
		return
	}
	b.(*array.TimestampBuilder).Append(arrow.Timestamp(*v))
}

// stream writes batches of one schema as an IPC stream.
func stream(batches []arrow.RecordBatch, opts ...ipc.Option) []byte {
	var out bytes.Buffer
	w := ipc.NewWriter(&out, append(opts, ipc.WithSchema(batches[0].Schema()))...)
	for _, b := range batches {
		if err := w.Write(b); err != nil {
			panic(err)
		}
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return out.Bytes()
}

func batches(b ...arrow.RecordBatch) []arrow.RecordBatch { return b }

// fieldsOf are columns of int64.
func fieldsOf(names ...string) (fields []arrow.Field) {
	for _, n := range names {
		fields = append(fields, arrow.Field{Name: n, Type: arrow.PrimitiveTypes.Int64})
	}
	return fields
}
