package torture

import (
	"bytes"
	"encoding/hex"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"icecore/trace"
)

// arrowStream writes traces as the Arrow stream that POST /v1/traces takes.
func arrowStream(traces []*trace.Trace) []byte {
	b := array.NewRecordBuilder(memory.DefaultAllocator, trace.TraceSchema)
	defer b.Release()
	for _, t := range traces {
		for i, f := range trace.TraceSchema.Fields() {
			appendField(b.Field(i), f.Name, t)
		}
	}
	rec := b.NewRecordBatch()
	defer rec.Release()
	var out bytes.Buffer
	w := ipc.NewWriter(&out, ipc.WithSchema(trace.TraceSchema), ipc.WithZstd())
	if err := w.Write(rec); err != nil {
		panic(err)
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return out.Bytes()
}

func appendField(b array.Builder, name string, t *trace.Trace) {
	texts := map[string]string{
		"trace_id": t.TraceID, "rollout_id": t.RolloutID, "status": string(t.Status), "finish_reason": t.FinishReason,
		"choice_group": t.ChoiceGroup, "kind": string(t.Kind), "task_id": t.Attributes.TaskID, "group_id": t.Attributes.GroupID,
		"harness": t.Attributes.Harness, "model": t.Attributes.Model, "tokenizer": t.Tokenizer, "api": t.API,
		"sampling": string(t.Sampling), "usage": string(t.Usage), "metadata": string(t.Metadata), "error": t.Error,
		"prompt_hash": hex.EncodeToString(t.PromptHash),
	}
	numbers := map[string]*int64{"seq": t.Seq, "policy_version": t.PolicyVersion, "choice_index": t.ChoiceIndex,
		"sample_index": t.Attributes.SampleIndex}
	switch b := b.(type) {
	case *array.StringBuilder:
		if v := texts[name]; v != "" {
			b.Append(v)
			return
		}
	case *array.Int64Builder:
		if v := numbers[name]; v != nil {
			b.Append(*v)
			return
		}
	case *array.TimestampBuilder:
		if v := map[string]*int64{"started_at": t.StartedAt, "finished_at": t.FinishedAt}[name]; v != nil {
			b.Append(arrow.Timestamp(*v))
			return
		}
	case *array.BinaryBuilder:
		if v := map[string][]byte{"request": t.RequestBody, "response": t.ResponseBody}[name]; v != nil {
			b.Append(v)
			return
		}
	case *array.BooleanBuilder:
		b.Append(t.IDsIncomplete)
		return
	case *array.StructBuilder: // prompt_prefix
		if p := t.PromptPrefix; p != nil {
			b.Append(true)
			b.FieldBuilder(0).(*array.StringBuilder).Append(p.TraceID)
			b.FieldBuilder(1).(*array.Int64Builder).Append(p.Length)
			return
		}
	case *array.ListBuilder:
		if appendList(b, name, t) {
			return
		}
	}
	b.AppendNull()
}

func appendList(b *array.ListBuilder, name string, t *trace.Trace) bool {
	ids := t.ResponseIDs
	switch name {
	case "prompt_token_ids":
		ids = t.PromptIDs.Flat()
		fallthrough
	case "response_token_ids":
		if ids == nil {
			return false
		}
		b.Append(true)
		b.ValueBuilder().(*array.Int32Builder).AppendValues(ids, nil)
	case "response_logprobs":
		if t.ResponseLogprobs == nil {
			return false
		}
		b.Append(true)
		b.ValueBuilder().(*array.Float32Builder).AppendValues(t.ResponseLogprobs.Values, t.ResponseLogprobs.Known)
	case "policy_version_spans":
		if t.PolicyVersionSpans == nil {
			return false
		}
		b.Append(true)
		v := b.ValueBuilder().(*array.StructBuilder)
		for _, s := range t.PolicyVersionSpans {
			v.Append(true)
			v.FieldBuilder(0).(*array.Int64Builder).Append(s.Start)
			v.FieldBuilder(1).(*array.Int64Builder).Append(s.Version)
		}
	}
	return true
}
