package chat

import (
	"encoding/json"
	"strconv"

	"icecore/ingest/gateway/body"
	"icecore/ingest/gateway/openai"
	"icecore/ingest/gateway/turn"
)

// FlagUnknownFinish marks an answer that ended for a reason that Chat Completions has
// no word for. Harnesses take other words for errors: they are told stop.
const FlagUnknownFinish = "unknown_finish_reason"

func finish(end turn.End) (reason string, known bool) {
	switch end.Finish {
	case turn.FinishStop, turn.FinishLength, turn.FinishToolCalls, turn.FinishContentFilter:
		return end.Finish, true
	}
	return turn.FinishStop, false
}

// appendHead writes what every object of an answer begins with.
func appendHead(dst []byte, h turn.Head, object string) []byte {
	dst = append(dst, `{"id":`...)
	dst = body.AppendString(dst, "chatcmpl-"+h.ID)
	dst = append(dst, `,"object":"`...)
	dst = append(dst, object...)
	dst = append(dst, `","created":`...)
	dst = strconv.AppendInt(dst, h.Created, 10)
	dst = append(dst, `,"model":`...)
	return body.AppendString(dst, h.Model)
}

func appendUsage(dst []byte, u turn.Usage) []byte {
	dst = append(dst, `{"prompt_tokens":`...)
	dst = strconv.AppendInt(dst, turn.Count(u.Prompt), 10)
	dst = append(dst, `,"completion_tokens":`...)
	dst = strconv.AppendInt(dst, turn.Count(u.Completion), 10)
	dst = append(dst, `,"total_tokens":`...)
	dst = strconv.AppendInt(dst, openai.Total(u), 10)
	dst = append(dst, `,"prompt_tokens_details":{"cached_tokens":`...)
	dst = strconv.AppendInt(dst, turn.Count(u.Cached), 10)
	dst = append(dst, `},"completion_tokens_details":{"reasoning_tokens":`...)
	dst = strconv.AppendInt(dst, turn.Count(u.Reasoning), 10)
	return append(dst, "}}"...)
}

// appendLogprobs writes the engine's log-probs where the harness asked for them and
// they can be read: an engine's NaN is no JSON.
func appendLogprobs(dst []byte, r *turn.Request, raw json.RawMessage) []byte {
	if !r.Logprobs || raw == nil || !json.Valid(raw) {
		return append(dst, "null"...)
	}
	return append(dst, named(raw)...)
}

// appendCall writes a call, or the first piece of one (whose index is at or more than 0).
func appendCall(dst []byte, at int, id, name, arguments string) []byte {
	dst = append(dst, '{')
	if at >= 0 {
		dst = append(dst, `"index":`...)
		dst = strconv.AppendInt(dst, int64(at), 10)
		dst = append(dst, ',')
	}
	dst = append(dst, `"id":`...)
	dst = body.AppendString(dst, id)
	dst = append(dst, `,"type":"function","function":{"name":`...)
	dst = body.AppendString(dst, name)
	dst = append(dst, `,"arguments":`...)
	dst = body.AppendString(dst, arguments)
	return append(dst, "}}"...)
}
