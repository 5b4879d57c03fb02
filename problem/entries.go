package problem

import "net/http"

// Codes of items. Package trace declares them too: it stands below this one.
const (
	NotAnObject        Code = "not_an_object"
	JSONTooDeep        Code = "json_too_deep"
	DuplicateField     Code = "duplicate_field"
	MissingField       Code = "missing_field"
	InvalidField       Code = "invalid_field"
	InvalidTokenID     Code = "invalid_token_id"
	LengthMismatch     Code = "length_mismatch"
	TooManyTokens      Code = "too_many_tokens"
	BodyTooLarge       Code = "body_too_large"
	UnknownPrefix      Code = "unknown_prefix"
	UnknownTrajectory  Code = "unknown_trajectory"
	PromptHashMismatch Code = "prompt_hash_mismatch"
	Conflict           Code = "conflict"
)

// Codes of whole requests. Those from InvalidJSON to TooManyItems package wire
// declares too.
const (
	InvalidJSON          Code = "invalid_json"
	InvalidArrow         Code = "invalid_arrow"
	CorruptEncoding      Code = "corrupt_encoding"
	UnsupportedEncoding  Code = "unsupported_encoding"
	RequestTooLarge      Code = "request_too_large"
	TooManyItems         Code = "too_many_items"
	BodyUnreadable       Code = "body_unreadable"
	InvalidParameter     Code = "invalid_parameter"
	TooManyPolicies      Code = "too_many_policies"
	LeaseAcknowledged    Code = "lease_acknowledged"
	LeaseLost            Code = "lease_lost"
	NotFound             Code = "not_found"
	NoSuchPath           Code = "no_such_path"
	NoGateway            Code = "no_gateway"
	MethodNotAllowed     Code = "method_not_allowed"
	NotAcceptable        Code = "not_acceptable"
	UnsupportedMediaType Code = "unsupported_media_type"
)

// Codes of statements of SQL. Package store/warehouse declares them too, but
// for SQLTimeout.
const (
	SQLSyntax      Code = "sql_syntax"
	SQLRefused     Code = "sql_refused"
	SQLBinding     Code = "sql_binding"
	SQLFailed      Code = "sql_failed"
	SQLOutOfMemory Code = "sql_out_of_memory"
	SQLCrashed     Code = "sql_crashed"
	SQLTimeout     Code = "sql_timeout"
)

// Codes of a server that is busy, and of its own faults.
const (
	TooManyRequests Code = "too_many_requests"
	TooManyBytes    Code = "too_many_bytes"
	TooManyQueries  Code = "too_many_queries"
	SQLInterrupted  Code = "sql_interrupted"
	DiskFull        Code = "disk_full"
	StorageFailed   Code = "storage_failed"
	WarehouseBehind Code = "warehouse_behind"
	ShuttingDown    Code = "shutting_down"
	NotReady        Code = "not_ready"
	InternalFault   Code = "internal"
)

const (
	badRequest    = http.StatusBadRequest
	tooLarge      = http.StatusRequestEntityTooLarge
	unprocessable = http.StatusUnprocessableEntity
	unavailable   = http.StatusServiceUnavailable
)

// Catalogue is every code that an answer can hold, in the order of docs/errors.md
// (`go generate ./problem` writes that page).
var Catalogue = []Entry{
	{Code: NotAnObject, Section: Items, Item: true, Status: unprocessable,
		Meaning: "The item is JSON, but not an object.",
		Do:      "Send one object per item."},
	{Code: JSONTooDeep, Section: Items, Item: true, Status: unprocessable,
		Meaning: "Nested deeper than 512.",
		Do:      "Such structures belong into `request` or `response` as a string, or nowhere."},
	{Code: DuplicateField, Section: Items, Item: true, Status: unprocessable,
		Meaning: "A field stands twice in the object, and readers differ in which one they take.",
		Do:      "Send it once."},
	{Code: MissingField, Section: Items, Item: true, Status: unprocessable,
		Meaning: "A required field is absent, null or empty.",
		Do:      "The message names it: send it."},
	{Code: InvalidField, Section: Items, Item: true, Status: unprocessable,
		Meaning: "A field has the wrong type or a value that it cannot have; on rewards, rollouts, finishes and SQL requests also a field that does not exist there.",
		Do:      "The message names field and place."},
	{Code: InvalidTokenID, Section: Items, Item: true, Status: unprocessable,
		Meaning: "A token id is not a whole number from 0 to 2147483647.",
		Do:      "Often it is a padding value (-1, -100) that should not have been sent: leave it out."},
	{Code: LengthMismatch, Section: Items, Item: true, Status: unprocessable,
		Meaning: "`response_logprobs` has not one entry per id of `response_token_ids`, or is given without them; or `logprobs` of a learner has not one entry per token of the trajectory.",
		Do:      "Send null for positions that are not known; do not pad or shift."},
	{Code: TooManyTokens, Section: Items, Item: true, Status: unprocessable,
		Meaning: "Prompt and response together hold more tokens than `--max-tokens`.",
		Do:      "Raise the flag if such calls are real."},
	{Code: BodyTooLarge, Section: Items, Item: true, Status: unprocessable,
		Meaning: "`request` or `response` is larger than `--max-body`; or `metadata`, or fields that are not of the contract together, are.",
		Do:      "Send less of it, or raise the flag."},
	{Code: UnknownPrefix, Section: Items, Item: true, Status: unprocessable,
		Meaning: "`prompt_prefix` names a trace that is not stored, is of another rollout, or is too short; or the prompt so made has another `prompt_hash`. This is normal after the server has refused the earlier trace, or when two capturers share a rollout.",
		Do:      "Send the trace again with the whole prompt."},
	{Code: UnknownTrajectory, Section: Items, Item: true, Status: unprocessable,
		Meaning: "No merge made a trajectory of this `trajectory_id`, or it was replaced long ago by one of another id: its rollout got more traces, and the old merge is deleted.",
		Do:      "Send the ids of rows that were leased or exported. Those that only `GET /v1/rollouts/{rollout_id}/trajectories` showed are known once `GET /v1/trajectories` was asked for their policy."},
	{Code: PromptHashMismatch, Section: Items, Item: true, Status: unprocessable,
		Meaning: "`prompt_hash` is not the SHA-256 of `prompt_token_ids` as little-endian int32.",
		Do:      "Either side changed the ids on the way: find out which, and send the ids that the engine received."},
	{Code: Conflict, Section: Items, Item: true, Status: http.StatusConflict,
		Meaning: "The same id is stored with other content: a trace (traces are immutable), an announced call, a reward of the same `reward_id` or revision, a finish with another status (409). Nothing was changed.",
		Do:      "If the new content is right it needs a new id, or, for a reward, a higher `revision`."},

	{Code: InvalidJSON, Section: Requests, Item: true, Status: badRequest,
		Meaning: "The body is not JSON. `offset` says where. As an item's code: that line of NDJSON is not JSON.",
		Do:      "Mend the body."},
	{Code: InvalidArrow, Section: Requests, Status: badRequest,
		Meaning: "The body is no whole Arrow stream, or holds a type that a column cannot have.",
		Do:      "Close the stream writer, so that its end marker is sent, and compare the columns with those of the API."},
	{Code: CorruptEncoding, Section: Requests, Status: badRequest,
		Meaning: "The gzip or zstd coding is damaged or ends too early.",
		Do:      "Close the compressor before sending."},
	{Code: BodyUnreadable, Section: Requests, Status: badRequest,
		Meaning: "The connection gave less than it announced, or nothing for longer than `--read-timeout`.",
		Do:      "Send the request on a new connection."},
	{Code: InvalidParameter, Section: Requests, Status: badRequest,
		Meaning: "A query parameter or a path element is wrong or not known.",
		Do:      "`field` names it."},
	{Code: TooManyPolicies, Section: Requests, Status: badRequest,
		Meaning: "At most 16 different merge policies, parameters included, keep stored results, and all 16 are configured (`--merge-policies`), so that none can make room for this one.",
		Do:      "Ask for one rollout at a time, which stores nothing, or configure fewer."},
	{Code: LeaseAcknowledged, Section: Requests, Status: http.StatusConflict,
		Meaning: "The lease, or the one that `key` names, is acknowledged: what it delivered is settled, and is not sent or given back again.",
		Do:      "Go on with the next batch, under a key of its own."},
	{Code: LeaseLost, Section: Requests, Status: http.StatusConflict,
		Meaning: "The lease no longer holds its groups: it was returned, a seek cancelled it, or it expired and its groups were given away.",
		Do:      "Do not count what it delivered as settled: its groups come again. Ask for a lease under another key; hold longer ones by `extend`."},
	{Code: NotFound, Section: Requests, Status: http.StatusNotFound,
		Meaning: "Nothing is stored under this id.",
		Do:      "Compare the id; in a path it is percent-encoded."},
	{Code: NoSuchPath, Section: Requests, Status: http.StatusNotFound,
		Meaning: "The server has nothing at this path.",
		Do:      "`/docs` lists the paths."},
	{Code: NoGateway, Section: Requests, Status: http.StatusNotFound,
		Meaning: "The server has no gateway.",
		Do:      "Start it with `--engine URL`, or with `--gateway FILE`."},
	{Code: MethodNotAllowed, Section: Requests, Status: http.StatusMethodNotAllowed,
		Meaning: "The path does not take this method.",
		Do:      "`Allow` says which it takes."},
	{Code: NotAcceptable, Section: Requests, Status: http.StatusNotAcceptable,
		Meaning: "`Accept` names no format that the path has.",
		Do:      "The detail says what it has."},
	{Code: RequestTooLarge, Section: Requests, Status: tooLarge,
		Meaning: "The inflated body is larger than `--max-request`.",
		Do:      "Send fewer items at once."},
	{Code: TooManyItems, Section: Requests, Status: tooLarge,
		Meaning: "The request holds more items than `--max-items`.",
		Do:      "Send fewer items at once."},
	{Code: UnsupportedMediaType, Section: Requests, Status: http.StatusUnsupportedMediaType,
		Meaning: "The path does not take this `Content-Type`.",
		Do:      "The detail says what it takes."},
	{Code: UnsupportedEncoding, Section: Requests, Status: http.StatusUnsupportedMediaType,
		Meaning: "`Content-Encoding` is not gzip, x-gzip or zstd, or is more than one.",
		Do:      "Use one of them, or none."},

	{Code: SQLSyntax, Section: Statements, Status: unprocessable,
		Meaning: "The statement cannot be read, or is not exactly one.",
		Do:      "`position` says where reading stopped, if that is known."},
	{Code: SQLRefused, Section: Statements, Status: unprocessable,
		Meaning: "The statement asks for something that is not allowed: it would write, or reach files, the network, settings or extensions.",
		Do:      "Only reading statements over the tables and views of `GET /v1/sql/tables` are served."},
	{Code: SQLBinding, Section: Statements, Status: unprocessable,
		Meaning: "A table, column, function or parameter does not exist or does not fit.",
		Do:      "`GET /v1/sql/tables` lists tables and columns."},
	{Code: SQLFailed, Section: Statements, Status: unprocessable,
		Meaning: "The statement ran into an error, such as a value out of range.",
		Do:      "The detail says which; guard the value (`TRY_CAST`, `CASE`)."},
	{Code: SQLOutOfMemory, Section: Statements, Status: unprocessable,
		Meaning: "The statement needed more memory, or more room to spill, than it may have. No other ran when the warehouse was lost to it.",
		Do:      "Aggregate earlier, select fewer columns, or read in parts."},
	{Code: SQLCrashed, Section: Statements, Status: unprocessable,
		Meaning: "The warehouse process died of this statement, which ran alone, and was started again. Nothing that was acknowledged is lost.",
		Do:      "Do not send it again as it is; please report it."},
	{Code: SQLTimeout, Section: Statements, Status: unprocessable,
		Meaning: "The statement did not end within its time limit.",
		Do:      "Give it more time (`timeout_ms`), or less to do."},

	{Code: TooManyRequests, Section: Busy, Status: http.StatusTooManyRequests, RetryAfter: 1,
		Meaning: "`--max-open` ingest requests are being served."},
	{Code: TooManyBytes, Section: Busy, Status: http.StatusTooManyRequests, RetryAfter: 1,
		Meaning: "All ingest requests together hold `--max-buffered` bytes."},
	{Code: TooManyQueries, Section: Busy, Status: http.StatusTooManyRequests, RetryAfter: 1,
		Meaning: "As many statements of SQL run and wait as may."},
	{Code: SQLInterrupted, Section: Busy, Status: unavailable, RetryAfter: 1,
		Meaning: "The warehouse's process was lost while this statement ran: to another statement, to one of several that ran and nobody knows which, or because it was killed from outside. What was acknowledged is safe.",
		Do:      "If it comes back several times, the statement itself may need too much memory."},
	{Code: DiskFull, Section: Busy, Status: unavailable, RetryAfter: 10,
		Meaning: "Less than `--disk-floor` is free, or the disk is full. Nothing of the request was stored; what was acknowledged before is safe.",
		Do:      "Free some space: the server goes on by itself."},
	{Code: StorageFailed, Section: Busy, Status: unavailable, RetryAfter: 5,
		Meaning: "The control database failed. The request was not acknowledged; whether it was stored is found out by sending it again."},
	{Code: WarehouseBehind, Section: Busy, Status: unavailable, RetryAfter: 1,
		Meaning: "From reading paths. The warehouse does not take in what was stored, for now; it is tried again. Nothing that was acknowledged is lost.",
		Do:      "The server's log and `drain_error` in `/v1/status` say why."},
	{Code: ShuttingDown, Section: Busy, Status: unavailable, RetryAfter: 5,
		Meaning: "The server is stopping."},
	{Code: NotReady, Section: Busy, Status: unavailable, RetryAfter: 5,
		Meaning: "From `/readyz` only. The detail says why nothing can be stored."},

	{Code: InternalFault, Section: Own, Status: http.StatusInternalServerError,
		Meaning: "The server's log says why.",
		Do:      "Please report it."},
}
