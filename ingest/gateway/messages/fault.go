package messages

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"icecore/ingest/gateway/body"
	"icecore/ingest/gateway/turn"
)

// Fault implements turn.Provider.
func (Provider) Fault(f *turn.Fault) (status int, header http.Header, answer []byte) {
	header = http.Header{"Content-Type": {"application/json"}}
	if f.RetryAfter > 0 {
		seconds := (f.RetryAfter + time.Second - 1) / time.Second
		header.Set("Retry-After", strconv.FormatInt(int64(seconds), 10))
	}
	return statusOf(f), header, appendFault(nil, f, "")
}

// statusOf is the fault's own status, where it has one.
func statusOf(f *turn.Fault) int {
	if f.Status < http.StatusBadRequest {
		return http.StatusInternalServerError
	}
	return f.Status
}

// appendFault writes a fault. id is the trace's; empty: there is none.
func appendFault(dst []byte, f *turn.Fault, id string) []byte {
	dst = append(append(append(dst, `{"type":"error","error":{"type":"`...), typeOf(f)...), `","message":`...)
	dst = body.AppendString(dst, message(f))
	if f.Code == turn.CodeUnsupported && f.Field == fieldThread {
		// Anthropic's SDKs look for this, and go on without a thread.
		dst = append(dst, `,"details":{"error_code":"thread_unsupported_request","unsupported":["thread"]}`...)
	}
	dst = append(dst, '}')
	if id != "" {
		dst = body.AppendString(append(dst, `,"request_id":`...), "req_"+plain(id))
	}
	return append(dst, '}')
}

// message says "overloaded" where that is the fault: harnesses look for the word.
func message(f *turn.Fault) string {
	if f.Code == turn.CodeOverloaded && !strings.Contains(strings.ToLower(f.Message), "overloaded") {
		return "overloaded: " + f.Message
	}
	return f.Message
}

func typeOf(f *turn.Fault) string {
	if f.Code == turn.CodeOverloaded {
		return "overloaded_error"
	}
	switch statusOf(f) {
	case http.StatusUnauthorized:
		return "authentication_error"
	case http.StatusForbidden:
		return "permission_error"
	case http.StatusNotFound:
		return "not_found_error"
	case http.StatusRequestEntityTooLarge:
		return "request_too_large"
	case http.StatusTooManyRequests:
		return "rate_limit_error"
	case http.StatusServiceUnavailable, 529:
		return "overloaded_error"
	case http.StatusRequestTimeout, http.StatusGatewayTimeout:
		return "timeout_error"
	}
	if statusOf(f) < http.StatusInternalServerError {
		return "invalid_request_error"
	}
	return "api_error"
}
