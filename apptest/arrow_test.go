package apptest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"icecore/trace"
)

// arrowBatch makes a record batch of calls. Fields that the contract does not
// name become columns of text.
func arrowBatch(calls []call) arrow.RecordBatch {
	fields := trace.TraceSchema.Fields()
	for _, c := range calls {
		for name := range c {
			if !slices.ContainsFunc(fields, func(f arrow.Field) bool { return f.Name == name }) {
				fields = append(fields, arrow.Field{Name: name, Type: arrow.BinaryTypes.String, Nullable: true})
			}
		}
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(fields, nil))
	defer b.Release()
	for _, c := range calls {
		for i, f := range fields {
			v, ok := c[f.Name]
			if !ok {
				b.Field(i).AppendNull()
				continue
			}
			appendValue(b.Field(i), v)
		}
	}
	return b.NewRecordBatch()
}

func appendValue(b array.Builder, v any) {
	switch b := b.(type) {
	case *array.StringBuilder:
		if raw, ok := v.(json.RawMessage); ok {
			b.Append(string(raw))
			return
		}
		b.Append(v.(string))
	case *array.BinaryBuilder:
		b.Append(v.(json.RawMessage))
	case *array.BooleanBuilder:
		b.Append(v.(bool))
	case *array.Int64Builder:
		b.Append(v.(int64))
	case *array.TimestampBuilder:
		stamp, err := arrow.TimestampFromString(v.(string), arrow.Microsecond)
		if err != nil {
			panic(err)
		}
		b.Append(stamp)
	case *array.StructBuilder: // prompt_prefix
		b.Append(true)
		b.FieldBuilder(0).(*array.StringBuilder).Append(v.(object)["trace_id"].(string))
		b.FieldBuilder(1).(*array.Int64Builder).Append(int64(v.(object)["length"].(int)))
	case *array.ListBuilder:
		b.Append(true)
		switch v := v.(type) {
		case []int32:
			b.ValueBuilder().(*array.Int32Builder).AppendValues(v, nil)
		case logprobs:
			f := b.ValueBuilder().(*array.Float32Builder)
			for _, p := range v {
				if p == nil {
					f.AppendNull()
				} else {
					f.Append(*p)
				}
			}
		case []object: // policy_version_spans
			s := b.ValueBuilder().(*array.StructBuilder)
			for _, span := range v {
				s.Append(true)
				s.FieldBuilder(0).(*array.Int64Builder).Append(span["start"].(int64))
				s.FieldBuilder(1).(*array.Int64Builder).Append(span["version"].(int64))
			}
		default:
			panic(fmt.Sprintf("%T", v))
		}
	default:
		panic(fmt.Sprintf("%T", b))
	}
}

// arrowOf writes calls as the stream that POST /v1/traces takes, perBatch rows
// to a message.
func arrowOf(calls []call, perBatch int, opts ...ipc.Option) []byte {
	rec := arrowBatch(calls)
	defer rec.Release()
	var out bytes.Buffer
	w := ipc.NewWriter(&out, append(opts, ipc.WithSchema(rec.Schema()))...)
	for at := int64(0); at < rec.NumRows(); at += int64(perBatch) {
		slice := rec.NewSlice(at, min(at+int64(perBatch), rec.NumRows()))
		if err := w.Write(slice); err != nil {
			panic(err)
		}
		slice.Release()
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return out.Bytes()
}

// exported is a row of GET /v1/trajectories.
type exported struct {
	trajectory
	RolloutID            string   `json:"rollout_id"`
	GroupID              *string  `json:"group_id"`
	TaskID               *string  `json:"task_id"`
	Split                *string  `json:"split"`
	Harness              *string  `json:"harness"`
	Model                *string  `json:"model"`
	MergePolicy          string   `json:"merge_policy"`
	PromptLength         int64    `json:"prompt_length"`
	TrainedTokens        int64    `json:"trained_tokens"`
	PolicyVersionMin     *int64   `json:"policy_version_min"`
	PolicyVersionMax     *int64   `json:"policy_version_max"`
	Reward               *float64 `json:"reward"`
	GroupSize            *int64   `json:"group_size"`
	SampleIndex          *int64   `json:"sample_index"`
	RolloutStatus        *string  `json:"rollout_status"`
	Complete             bool     `json:"complete"`
	RolloutTrajectories  int64    `json:"rollout_trajectories"`
	RolloutTrainedTokens int64    `json:"rollout_trained_tokens"`
	RowInRollout         int64    `json:"row_in_rollout"`
	IsLast               bool     `json:"is_last"`
	LogprobsComplete     bool     `json:"logprobs_complete"`
	Truncated            bool     `json:"truncated"`
}

// arrowTable is a stream that was read.
type arrowTable struct {
	schema  *arrow.Schema
	batches int
	rows    []exported
	// raw are the rows as JSON objects with every column, nested ones too.
	raw []object
	// next is the cursor that the headers gave.
	next string
}

// readArrow reads a stream with arrow-go, but for some columns. It does not ask
// for the end marker: that is what some readers do.
func readArrow(r io.Reader, without ...string) (*arrowTable, error) {
	in, err := ipc.NewReader(r)
	if err != nil {
		return nil, err
	}
	defer in.Release()
	out := &arrowTable{schema: in.Schema()}
	for in.Next() {
		rec := in.RecordBatch()
		out.batches++
		for i := range int(rec.NumRows()) {
			row := object{}
			for c, f := range rec.Schema().Fields() {
				if !slices.Contains(without, f.Name) {
					row[f.Name] = cell(rec.Column(c), i)
				}
			}
			raw, err := json.Marshal(row)
			if err != nil {
				return nil, err
			}
			var x exported
			d := json.NewDecoder(bytes.NewReader(raw))
			if err := d.Decode(&x); err != nil {
				return nil, err
			}
			out.rows = append(out.rows, x)
			out.raw = append(out.raw, row)
		}
	}
	return out, in.Err()
}

// cell gives a value as JSON would have it.
func cell(a arrow.Array, i int) any {
	if a.IsNull(i) {
		return nil
	}
	switch a := a.(type) {
	case *array.String:
		return a.Value(i)
	case *array.Boolean:
		return a.Value(i)
	case *array.Int8:
		return int64(a.Value(i))
	case *array.Int32:
		return int64(a.Value(i))
	case *array.Int64:
		return a.Value(i)
	case *array.Float64:
		return a.Value(i)
	case *array.Float32:
		return a.Value(i)
	case *array.Dictionary:
		return a.Dictionary().(*array.String).Value(a.GetValueIndex(i))
	case *array.List:
		from, to := a.ValueOffsets(i)
		if f, ok := a.ListValues().(*array.Float32); ok {
			out := make(logprobs, 0, to-from)
			for j := int(from); j < int(to); j++ {
				if f.IsNull(j) {
					out = append(out, nil)
				} else {
					out = append(out, ptr(f.Value(j)))
				}
			}
			return out
		}
		out := make([]any, 0, to-from)
		for j := from; j < to; j++ {
			out = append(out, cell(a.ListValues(), int(j)))
		}
		return out
	case *array.Struct:
		out := object{}
		for c, f := range a.DataType().(*arrow.StructType).Fields() {
			out[f.Name] = cell(a.Field(c), i)
		}
		return out
	}
	panic(fmt.Sprintf("%T", a))
}
