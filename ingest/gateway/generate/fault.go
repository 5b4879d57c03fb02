package generate

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
		header.Set("Retry-After", strconv.FormatInt(seconds(f), 10))
	}
	return statusOf(f), header, appendFault(nil, f)
}

func seconds(f *turn.Fault) int64 { return int64((f.RetryAfter + time.Second - 1) / time.Second) }

// statusOf is the fault's own status, where it has one.
func statusOf(f *turn.Fault) int {
	if f.Status < http.StatusBadRequest {
		return http.StatusInternalServerError
	}
	return f.Status
}

// appendFault writes a fault; the time to wait is told in the body too, where Google's
// clients look for it.
func appendFault(dst []byte, f *turn.Fault) []byte {
	dst = strconv.AppendInt(append(dst, `{"error":{"code":`...), int64(statusOf(f)), 10)
	dst = body.AppendString(append(dst, `,"message":`...), message(f))
	dst = append(append(append(dst, `,"status":"`...), wordOf(statusOf(f))...), '"')
	if f.RetryAfter > 0 {
		dst = append(dst, `,"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"`...)
		dst = append(strconv.AppendInt(dst, seconds(f), 10), `s"}]`...)
	}
	return append(dst, "}}"...)
}

// message says "overloaded" where that is the fault: harnesses look for the word.
func message(f *turn.Fault) string {
	if f.Code == turn.CodeOverloaded && !strings.Contains(strings.ToLower(f.Message), "overloaded") {
		return "overloaded: " + f.Message
	}
	return f.Message
}

// wordOf gives Google's name of a status.
func wordOf(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return "UNAUTHENTICATED"
	case http.StatusForbidden:
		return "PERMISSION_DENIED"
	case http.StatusNotFound:
		return "NOT_FOUND"
	case http.StatusConflict:
		return "ABORTED"
	case http.StatusTooManyRequests:
		return "RESOURCE_EXHAUSTED"
	case http.StatusNotImplemented:
		return "UNIMPLEMENTED"
	case http.StatusBadGateway, http.StatusServiceUnavailable, 529:
		return "UNAVAILABLE"
	case http.StatusGatewayTimeout:
		return "DEADLINE_EXCEEDED"
	}
	if status < http.StatusInternalServerError {
		return "INVALID_ARGUMENT"
	}
	return "INTERNAL"
}
