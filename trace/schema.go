package trace

import "github.com/apache/arrow-go/v18/arrow"

// SchemaVersion is the version of TrajectorySchema, sent in the schema's
// metadata as icecore.schema_version. It grows when a column changes its
// meaning; a new column does not change it.
const SchemaVersion = "1"

func field(name string, t arrow.DataType, nullable bool) arrow.Field {
	return arrow.Field{Name: name, Type: t, Nullable: nullable}
}

func list(t arrow.DataType, nullable bool) arrow.DataType {
	return arrow.ListOfField(arrow.Field{Name: "item", Type: t, Nullable: nullable})
}

// Dictionary is the type of columns with few different texts.
var Dictionary = &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32, ValueType: arrow.BinaryTypes.String}

// SpanType is one element of the column spans: the half-open range [start, end)
// of the row's positions that one trace sampled.
var SpanType = arrow.StructOf(
	field("trace_id", arrow.BinaryTypes.String, false),
	field("start", arrow.PrimitiveTypes.Int32, false),
	field("end", arrow.PrimitiveTypes.Int32, false),
	field("trainable", arrow.FixedWidthTypes.Boolean, false),
	// The version at dispatch; policy_version_spans refines it, with starts
	// counted from the span's own beginning.
	field("policy_version", arrow.PrimitiveTypes.Int64, true),
	field("policy_version_spans", list(arrow.StructOf(
		field("start", arrow.PrimitiveTypes.Int64, false),
		field("version", arrow.PrimitiveTypes.Int64, false)), false), true),
	// As the request asked for; null when it did not say.
	field("temperature", arrow.PrimitiveTypes.Float64, true),
	field("top_p", arrow.PrimitiveTypes.Float64, true),
	field("top_k", arrow.PrimitiveTypes.Int64, true),
	// "raw" or "processed" when the capturer said so, else "unknown".
	field("logprobs_mode", arrow.BinaryTypes.String, false),
	field("status", arrow.BinaryTypes.String, false),
	field("finish_reason", arrow.BinaryTypes.String, true),
	field("kind", arrow.BinaryTypes.String, false),
)

// TrajectorySchema is one row per trajectory. token_ids, loss_mask and logprobs
// have the same length and are token-aligned: entry t belongs to token t, and
// its log-probability is conditional on exactly the tokens before it. Nothing
// is padded.
//
//	loss_mask  1 where the token is trained, else 0
//	logprobs   behaviour log-probability (natural log) of sampled tokens; null
//	           where the token was not sampled, or its value is not known
var TrajectorySchema = arrow.NewSchema([]arrow.Field{
	field("trajectory_id", arrow.BinaryTypes.String, false),
	field("rollout_id", arrow.BinaryTypes.String, false),
	field("group_id", arrow.BinaryTypes.String, true),
	field("task_id", arrow.BinaryTypes.String, true),
	field("split", arrow.BinaryTypes.String, true),
	field("harness", Dictionary, true),
	field("model", Dictionary, true),
	field("merge_policy", Dictionary, false),
	field("token_ids", list(arrow.PrimitiveTypes.Int32, false), false),
	field("loss_mask", list(arrow.PrimitiveTypes.Int8, false), false),
	field("logprobs", list(arrow.PrimitiveTypes.Float32, true), false),
	field("spans", list(SpanType, false), false),
	// The first trained position: prompt and response part here.
	field("prompt_length", arrow.PrimitiveTypes.Int32, false),
	field("trained_tokens", arrow.PrimitiveTypes.Int32, false),
	// Over the spans of the row, not only the trainable ones.
	field("policy_version_min", arrow.PrimitiveTypes.Int64, true),
	field("policy_version_max", arrow.PrimitiveTypes.Int64, true),
	// The newest revision of the rollout's reward "outcome"; null: never given.
	field("reward", arrow.PrimitiveTypes.Float64, true),
	// The group's declared size.
	field("group_size", arrow.PrimitiveTypes.Int64, true),
	field("sample_index", arrow.PrimitiveTypes.Int64, true),
	field("rollout_status", Dictionary, true),
	// The rollout is finished and no announced call is missing.
	field("complete", arrow.FixedWidthTypes.Boolean, false),
	field("rollout_trajectories", arrow.PrimitiveTypes.Int32, false),
	field("rollout_trained_tokens", arrow.PrimitiveTypes.Int64, false),
	field("row_in_rollout", arrow.PrimitiveTypes.Int32, false),
	field("is_last", arrow.FixedWidthTypes.Boolean, false),
	// Every trained token has a log-probability.
	field("logprobs_complete", arrow.FixedWidthTypes.Boolean, false),
	// The last call stopped at a length limit.
	field("truncated", arrow.FixedWidthTypes.Boolean, false),
	// The row holds a history that no call had (polar_compat only).
	field("history_rewritten", arrow.FixedWidthTypes.Boolean, false),
}, nil)

// TraceSchema is what POST /v1/traces takes as an Arrow stream. Columns are
// found by name; all but the first two may be left out. Wider integers, float64,
// large and fixed-size lists and dictionaries are taken too.
var TraceSchema = arrow.NewSchema([]arrow.Field{
	field("trace_id", arrow.BinaryTypes.String, false),
	field("rollout_id", arrow.BinaryTypes.String, false),
	field("seq", arrow.PrimitiveTypes.Int64, true),
	field("prompt_token_ids", list(arrow.PrimitiveTypes.Int32, false), true),
	field("response_token_ids", list(arrow.PrimitiveTypes.Int32, false), true),
	field("response_logprobs", list(arrow.PrimitiveTypes.Float32, true), true),
	field("prompt_prefix", arrow.StructOf(
		field("trace_id", arrow.BinaryTypes.String, false),
		field("length", arrow.PrimitiveTypes.Int64, false)), true),
	field("prompt_hash", arrow.BinaryTypes.String, true),
	field("ids_incomplete", arrow.FixedWidthTypes.Boolean, true),
	field("policy_version", arrow.PrimitiveTypes.Int64, true),
	field("policy_version_spans", list(arrow.StructOf(
		field("start", arrow.PrimitiveTypes.Int64, false),
		field("version", arrow.PrimitiveTypes.Int64, false)), false), true),
	field("status", arrow.BinaryTypes.String, true),
	field("finish_reason", arrow.BinaryTypes.String, true),
	field("choice_group", arrow.BinaryTypes.String, true),
	field("choice_index", arrow.PrimitiveTypes.Int64, true),
	field("kind", arrow.BinaryTypes.String, true),
	field("task_id", arrow.BinaryTypes.String, true),
	field("group_id", arrow.BinaryTypes.String, true),
	field("sample_index", arrow.PrimitiveTypes.Int64, true),
	field("harness", arrow.BinaryTypes.String, true),
	field("harness_version", arrow.BinaryTypes.String, true),
	field("model", arrow.BinaryTypes.String, true),
	field("tokenizer", arrow.BinaryTypes.String, true),
	field("api", arrow.BinaryTypes.String, true),
	field("parent_rollout_id", arrow.BinaryTypes.String, true),
	field("chat_template_hash", arrow.BinaryTypes.String, true),
	field("tools_hash", arrow.BinaryTypes.String, true),
	// JSON texts.
	field("sampling", arrow.BinaryTypes.String, true),
	field("usage", arrow.BinaryTypes.String, true),
	field("metadata", arrow.BinaryTypes.String, true),
	field("error", arrow.BinaryTypes.String, true),
	field("started_at", arrow.FixedWidthTypes.Timestamp_us, true),
	field("first_token_at", arrow.FixedWidthTypes.Timestamp_us, true),
	field("finished_at", arrow.FixedWidthTypes.Timestamp_us, true),
	// The bytes of JSON values.
	field("request", arrow.BinaryTypes.Binary, true),
	field("response", arrow.BinaryTypes.Binary, true),
}, nil)
