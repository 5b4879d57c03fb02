package store

import (
	"bytes"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"icecore/trace"
)

// table is the Arrow face of one warehouse table. Columns stand in the order of
// migrations/warehouse; a test holds the two together.
type table struct {
	name   string
	schema *arrow.Schema
}

var (
	i32    = arrow.PrimitiveTypes.Int32
	i64    = arrow.PrimitiveTypes.Int64
	f64    = arrow.PrimitiveTypes.Float64
	text   = arrow.BinaryTypes.String
	blob   = arrow.BinaryTypes.Binary
	flag   = arrow.FixedWidthTypes.Boolean
	micros = &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}
	ids    = arrow.ListOf(i32)
	floats = arrow.ListOf(arrow.PrimitiveTypes.Float32)
	spans  = arrow.ListOf(arrow.StructOf(
		arrow.Field{Name: "start", Type: i64, Nullable: true},
		arrow.Field{Name: "version", Type: i64, Nullable: true}))
)

type column struct {
	name string
	typ  arrow.DataType
}

func newTable(name string, cols ...column) *table {
	fields := make([]arrow.Field, len(cols))
	for i, c := range cols {
		fields[i] = arrow.Field{Name: c.name, Type: c.typ, Nullable: true}
	}
	return &table{name, arrow.NewSchema(fields, nil)}
}

var (
	tableTraces = newTable("traces",
		column{"trace_key", i64}, column{"rollout_key", i64}, column{"batch", i64},
		column{"trace_id", text}, column{"rollout_id", text}, column{"content_hash", blob},
		column{"seq", i64}, column{"tape_key", i64}, column{"prompt_length", i32},
		column{"response_length", i32}, column{"prompt_hash", blob}, column{"has_logprobs", flag},
		column{"ids_incomplete", flag}, column{"policy_version", i64}, column{"policy_version_spans", spans},
		column{"status", text}, column{"finish_reason", text}, column{"choice_group", text},
		column{"choice_index", i64}, column{"kind", text}, column{"task_id", text},
		column{"group_id", text}, column{"sample_index", i64}, column{"harness", text},
		column{"harness_version", text}, column{"model", text}, column{"tokenizer", text},
		column{"api", text}, column{"parent_rollout_id", text}, column{"chat_template_hash", text},
		column{"tools_hash", text}, column{"sampling", text}, column{"usage", text},
		column{"metadata", text}, column{"extra", text}, column{"error", text},
		column{"started_at", micros}, column{"first_token_at", micros}, column{"finished_at", micros},
		column{"received_at", micros}, column{"request_bytes", i32}, column{"response_bytes", i32},
		column{"text_repaired", flag})
	tableTapes = newTable("tapes",
		column{"tape_key", i64}, column{"rollout_key", i64}, column{"parent_key", i64},
		column{"fork", i32}, column{"batch", i64})
	tableTapeChunks = newTable("tape_chunks",
		column{"tape_key", i64}, column{"rollout_key", i64}, column{"start", i32},
		column{"token_ids", ids}, column{"batch", i64})
	tableLogprobChunks = newTable("logprob_chunks",
		column{"trace_key", i64}, column{"rollout_key", i64}, column{"start", i32},
		column{"logprobs", floats}, column{"batch", i64})
	tableBodies = newTable("bodies",
		column{"trace_key", i64}, column{"rollout_key", i64}, column{"side", text},
		column{"base_key", i64}, column{"raw_bytes", i32}, column{"data", blob}, column{"batch", i64})
	tableRollouts = newTable("rollouts",
		column{"rollout_key", i64}, column{"rollout_id", text}, column{"task_id", text},
		column{"group_id", text}, column{"group_size", i64}, column{"sample_index", i64},
		column{"split", text}, column{"harness", text}, column{"harness_version", text},
		column{"model", text}, column{"policy_version", i64}, column{"metadata", text},
		column{"status", text}, column{"error", text}, column{"finished_at", micros},
		column{"reopened", flag}, column{"open_intents", i64}, column{"created_at", micros},
		column{"updated_at", micros}, column{"batch", i64})
	tableRewards = newTable("rewards",
		column{"reward_id", text}, column{"rollout_key", i64}, column{"rollout_id", text},
		column{"trace_id", text}, column{"name", text}, column{"source", text},
		column{"revision", i64}, column{"value", f64}, column{"rewarded_at", micros},
		column{"metadata", text}, column{"stored_at", micros}, column{"batch", i64})
	tableLearnerPosts = newTable("learner_posts",
		column{"post_key", i64}, column{"rollout_key", i64}, column{"rollout_id", text},
		column{"trajectory_id", text}, column{"policy", text}, column{"policy_version", i64},
		column{"content_hash", blob}, column{"length", i32}, column{"trained_tokens", i32},
		column{"known_tokens", i32}, column{"policy_version_min", i64}, column{"policy_version_max", i64},
		column{"posted_at", micros}, column{"batch", i64})
	tableLearnerChunks = newTable("learner_logprob_chunks",
		column{"post_key", i64}, column{"rollout_key", i64}, column{"trace_key", i64},
		column{"span_start", i32}, column{"start", i32}, column{"logprobs", floats}, column{"batch", i64})
	tableDrains      = newTable("drains", column{"last_batch", i64}, column{"drained_at", micros})
	tableGenerations = newTable("generations",
		column{"generation", i64}, column{"rollout_key", i64}, column{"policy", text},
		column{"through_batch", i64}, column{"traces", i32}, column{"trajectories", i32},
		column{"sampled_tokens", i64}, column{"trained_tokens", i64}, column{"merged_at", micros})
	tableMergedTraces = newTable("merged_traces",
		column{"generation", i64}, column{"rollout_key", i64}, column{"policy", text},
		column{"trace_key", i64}, column{"disposition", text}, column{"previous_key", i64},
		column{"cut", i32}, column{"span_start", i32}, column{"row_index", i32},
		column{"boundary", text}, column{"nearest_key", i64}, column{"shared", i32})
	tableTrajectories = newTable("trajectories",
		column{"generation", i64}, column{"rollout_key", i64}, column{"policy", text},
		column{"row_index", i32}, column{"trajectory_id", text}, column{"naming_key", i64},
		column{"last_key", i64}, column{"length", i32}, column{"trained_tokens", i32},
		column{"policy_version_min", i64}, column{"policy_version_max", i64},
		column{"history_rewritten", flag})
)

// journalled are the tables that reach the warehouse through the journal.
var journalled = []*table{tableTraces, tableTapes, tableTapeChunks, tableLogprobChunks,
	tableBodies, tableRollouts, tableRewards, tableLearnerPosts, tableLearnerChunks}

// rows gathers rows of one table. Its methods append the next column of the
// current row, in order.
type rows struct {
	*table
	b   *array.RecordBuilder
	col int
	n   int
}

func (t *table) rows() *rows {
	return &rows{table: t, b: array.NewRecordBuilder(memory.DefaultAllocator, t.schema)}
}

// end closes a row; a row with a column missing is a fault of this program.
func (r *rows) end() {
	if r.col != len(r.schema.Fields()) {
		panic(fmt.Sprintf("store: row of %s ends after %d columns", r.name, r.col))
	}
	r.col = 0
	r.n++
}

func (r *rows) next() array.Builder {
	r.col++
	return r.b.Field(r.col - 1)
}

func (r *rows) i64(v int64) { r.next().(*array.Int64Builder).Append(v) }
func (r *rows) i32(v int)   { r.next().(*array.Int32Builder).Append(int32(v)) }

func (r *rows) optI32(v int, known bool) {
	b := r.next().(*array.Int32Builder)
	if known {
		b.Append(int32(v))
	} else {
		b.AppendNull()
	}
}

func (r *rows) optI64(v *int64) {
	b := r.next().(*array.Int64Builder)
	if v == nil {
		b.AppendNull()
	} else {
		b.Append(*v)
	}
}

func (r *rows) f64(v float64) { r.next().(*array.Float64Builder).Append(v) }
func (r *rows) str(v string)  { r.next().(*array.StringBuilder).Append(v) }
func (r *rows) flag(v bool)   { r.next().(*array.BooleanBuilder).Append(v) }

// optStr writes an empty string as NULL.
func (r *rows) optStr(v string) {
	b := r.next().(*array.StringBuilder)
	if v == "" {
		b.AppendNull()
	} else {
		b.Append(v)
	}
}

func (r *rows) optJSON(v []byte) { r.optStr(string(v)) }

func (r *rows) blob(v []byte) {
	b := r.next().(*array.BinaryBuilder)
	if v == nil {
		b.AppendNull()
	} else {
		b.Append(v)
	}
}

func (r *rows) time(v int64) { r.next().(*array.TimestampBuilder).Append(arrow.Timestamp(v)) }

func (r *rows) optTime(v *int64) {
	b := r.next().(*array.TimestampBuilder)
	if v == nil {
		b.AppendNull()
	} else {
		b.Append(arrow.Timestamp(*v))
	}
}

func (r *rows) ids(v []int32) {
	b := r.next().(*array.ListBuilder)
	b.Append(true)
	b.ValueBuilder().(*array.Int32Builder).AppendValues(v, nil)
}

func (r *rows) floats(v []float32, known []bool) {
	b := r.next().(*array.ListBuilder)
	b.Append(true)
	b.ValueBuilder().(*array.Float32Builder).AppendValues(v, known)
}

// record takes the rows gathered; the caller releases it.
func (r *rows) record() arrow.RecordBatch {
	r.n = 0
	return r.b.NewRecordBatch()
}

// encode gives rec as a self-contained Arrow IPC stream.
func encodeRecord(rec arrow.RecordBatch) ([]byte, error) {
	var buf bytes.Buffer
	w := ipc.NewWriter(&buf, ipc.WithSchema(rec.Schema()))
	if err := w.Write(rec); err != nil {
		return nil, fmt.Errorf("encode journal rows: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("encode journal rows: %w", err)
	}
	return buf.Bytes(), nil
}

// decodeRecords reads what encodeRecord wrote; the caller releases the records.
func decodeRecords(payload []byte, schema *arrow.Schema) ([]arrow.RecordBatch, error) {
	r, err := ipc.NewReader(bytes.NewReader(payload), ipc.WithSchema(schema))
	if err != nil {
		return nil, fmt.Errorf("decode journal rows: %w", err)
	}
	defer r.Release()
	var out []arrow.RecordBatch
	for r.Next() {
		rec := r.RecordBatch()
		rec.Retain()
		out = append(out, rec)
	}
	if err := r.Err(); err != nil {
		return out, fmt.Errorf("decode journal rows: %w", err)
	}
	return out, nil
}

// versions writes policy version spans; none give NULL.
func (r *rows) versions(v []trace.VersionSpan) {
	b := r.next().(*array.ListBuilder)
	if len(v) == 0 {
		b.AppendNull()
		return
	}
	b.Append(true)
	s := b.ValueBuilder().(*array.StructBuilder)
	for _, span := range v {
		s.Append(true)
		s.FieldBuilder(0).(*array.Int64Builder).Append(span.Start)
		s.FieldBuilder(1).(*array.Int64Builder).Append(span.Version)
	}
}
