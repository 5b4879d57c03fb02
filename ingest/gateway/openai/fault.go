package openai

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"icecore/ingest/gateway/body"
	"icecore/ingest/gateway/turn"
)

// retryAfter is what a harness is told where a fault will pass and nobody knows when:
// some give up at once when they are told nothing.
const retryAfter = time.Second

// maxMessage bounds a message, which may name what a body of any size holds.
const maxMessage = 4096

// Fault gives a fault as OpenAI's APIs tell it before an answer has begun.
func Fault(f *turn.Fault) (status int, header http.Header, text []byte) {
	status = f.Status
	if status < 400 || status > 599 {
		status = http.StatusInternalServerError
	}
	header = http.Header{"Content-Type": {"application/json"}}
	after := f.RetryAfter
	if after <= 0 && (status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable) {
		after = retryAfter
	}
	if after > 0 {
		header.Set("Retry-After", strconv.FormatInt(int64((after+time.Second-1)/time.Second), 10))
	}
	return status, header, AppendError(nil, f)
}

// AppendError writes {"error":{message, type, param, code}}.
func AppendError(dst []byte, f *turn.Fault) []byte {
	dst = append(dst, `{"error":{"message":`...)
	dst = body.AppendString(dst, Message(f))
	dst = append(dst, `,"type":`...)
	dst = body.AppendString(dst, kind(f))
	dst = append(dst, `,"param":`...)
	dst = appendParam(dst, f)
	dst = append(dst, `,"code":`...)
	dst = body.AppendString(dst, Code(f))
	return append(dst, "}}"...)
}

func appendParam(dst []byte, f *turn.Fault) []byte {
	if f.Field == "" {
		return append(dst, "null"...)
	}
	return body.AppendString(dst, f.Field)
}

// AppendEvent writes the members message, param and code of an error event.
func AppendEvent(dst []byte, f *turn.Fault) []byte {
	dst = append(dst, `"code":`...)
	dst = body.AppendString(dst, Code(f))
	dst = append(dst, `,"message":`...)
	dst = body.AppendString(dst, Message(f))
	dst = append(dst, `,"param":`...)
	return appendParam(dst, f)
}

// Message is what the harness reads. Some decide by the word "overloaded" in it whether
// they try again.
func Message(f *turn.Fault) string {
	text := f.Message
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], "") + "…"
	}
	if overloaded(f) && !strings.Contains(strings.ToLower(text), "overloaded") {
		return "overloaded: " + text
	}
	return text
}

func overloaded(f *turn.Fault) bool {
	return f.Code == turn.CodeOverloaded || f.Status == http.StatusServiceUnavailable || f.Status == 529
}

// Code is OpenAI's word where it has one, else ours.
func Code(f *turn.Fault) string {
	switch f.Code {
	case turn.CodeUnknownModel:
		return "model_not_found"
	case turn.CodeUnauthorized:
		return "invalid_api_key"
	case turn.CodeRateLimited:
		return "rate_limit_exceeded"
	}
	return f.Code
}

func kind(f *turn.Fault) string {
	switch {
	case f.Status == http.StatusUnauthorized:
		return "authentication_error"
	case f.Status == http.StatusForbidden:
		return "permission_error"
	case f.Status == http.StatusTooManyRequests:
		return "rate_limit_error"
	case 400 <= f.Status && f.Status < 500:
		return "invalid_request_error"
	}
	return "server_error"
}
