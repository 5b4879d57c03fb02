package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"icecore/ingest/gateway/turn"
)

// idleFor is shorter than the 5 s after which uvicorn, which serves both vLLM and
// SGLang, closes an idle connection: ours closes first, and no request meets the end.
const idleFor = 4 * time.Second

// newClient makes the client for engines. No proxy from the environment: an engine is
// near, and its prompts are nobody else's. HTTP/1.1: each stream has its own
// connection, and a slow reader holds up no other.
func newClient(connect time.Duration, keep bool) *http.Client {
	dial := &net.Dialer{Timeout: connect, KeepAlive: 30 * time.Second}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Client{
		Transport: &http.Transport{
			DialContext:            dial.DialContext,
			TLSHandshakeTimeout:    connect,
			MaxIdleConnsPerHost:    4096,
			IdleConnTimeout:        idleFor,
			MaxResponseHeaderBytes: 64 << 10,
			DisableCompression:     true,
			DisableKeepAlives:      !keep,
			Protocols:              protocols,
		},
		// A redirect could carry the credential to another host.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// send makes one request. An answer of any status is no error; the error is a
// *turn.Fault. A connection that was kept open and turns out closed before the first
// byte of an answer is followed by one more try on a new one.
func (e *Engine) send(ctx context.Context, method, path string, body []byte, id string) (*http.Response, error) {
	answer, stale, err := e.once(ctx, e.pool.client, method, path, body, id)
	if err != nil && stale && ctx.Err() == nil {
		answer, _, err = e.once(ctx, e.pool.fresh, method, path, body, id)
	}
	if err != nil {
		return nil, e.unsent(ctx, err)
	}
	return answer, nil
}

// parcel is a request's body that is let go once it is sent: net/http holds the request
// until its answer is read to the end, and that may take an hour.
type parcel struct{ left []byte }

func (p *parcel) Read(b []byte) (int, error) {
	n := copy(b, p.left)
	if p.left = p.left[n:]; len(p.left) > 0 {
		return n, nil
	}
	p.left = nil
	return n, io.EOF
}

// Close leaves the bytes to a reader that has not ended: it may be another goroutine's.
func (p *parcel) Close() error { return nil }

func (e *Engine) once(ctx context.Context, with *http.Client, method, path string, body []byte, id string) (*http.Response, bool, error) {
	var reused, begun atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn:              func(i httptrace.GotConnInfo) { reused.Store(i.Reused) },
		GotFirstResponseByte: func() { begun.Store(true) },
	})
	r, err := http.NewRequestWithContext(ctx, method, e.base+path, http.NoBody)
	if err != nil {
		return nil, false, fmt.Errorf("make request: %w", err)
	}
	if len(body) > 0 {
		r.Body, r.ContentLength = &parcel{left: body}, int64(len(body))
	}
	r.Header.Set("User-Agent", "icecore")
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if e.auth != "" {
		r.Header.Set("Authorization", e.auth)
	}
	if id != "" {
		r.Header.Set("X-Request-Id", id)
	}
	answer, err := with.Do(r)
	if err != nil {
		return nil, reused.Load() && !begun.Load(), fmt.Errorf("call engine: %w", err)
	}
	return answer, false, nil
}

// Causes by which we ourselves end a request.
var (
	errSilent = errors.New("the engine sent nothing for too long")
	errClosed = errors.New("the call was closed")
)

// unsent makes a fault of a request that got no answer.
func (e *Engine) unsent(ctx context.Context, err error) *turn.Fault {
	if f := ended(ctx); f != nil {
		return f
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		e.down("cannot be reached: " + e.clean(op.Err.Error()))
		e.ask()
		return &turn.Fault{Status: http.StatusServiceUnavailable, Code: turn.CodeEngineUnreachable, RetryAfter: time.Second,
			Message: "overloaded: the engine cannot be reached", Cause: err}
	}
	e.ask()
	return &turn.Fault{Status: http.StatusBadGateway, Code: turn.CodeEngineBroke,
		Message: "the engine broke the connection before its answer", Cause: noEOF(err)}
}

// noEOF keeps io.EOF out of a fault: to who reads a stream that is its good end.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New(err.Error())
	}
	return err
}

// ended makes a fault of a context's end; nil: it goes on. The cause of a caller's own
// cancel is within: errors.Is(err, context.Canceled) holds.
func ended(ctx context.Context) *turn.Fault {
	if ctx.Err() == nil {
		return nil
	}
	cause := context.Cause(ctx)
	if errors.Is(cause, errSilent) || errors.Is(cause, context.DeadlineExceeded) {
		return &turn.Fault{Status: http.StatusGatewayTimeout, Code: turn.CodeTimeout,
			Message: "the engine did not answer in time", Cause: cause}
	}
	return &turn.Fault{Status: 499, Code: turn.CodeAborted, Message: "the call was cancelled", Cause: cause}
}

// small asks a small question. A status that is no 2xx is a *turn.Fault, and its number
// is given too.
func (e *Engine) small(ctx context.Context, method, path string, body []byte, most int64) (data []byte, status int, err error) {
	answer, err := e.send(ctx, method, path, body, "")
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = answer.Body.Close() }()
	data, err = io.ReadAll(io.LimitReader(answer.Body, most+1))
	data = bytes.TrimPrefix(data, mark)
	switch {
	case err != nil:
		return nil, answer.StatusCode, e.unsent(ctx, fmt.Errorf("read answer of %s: %w", path, err))
	case answer.StatusCode < 200 || answer.StatusCode > 299:
		return nil, answer.StatusCode, e.refused(answer.StatusCode, answer.Header, data[:min(len(data), 64<<10)])
	case int64(len(data)) > most:
		return nil, answer.StatusCode, &turn.Fault{Status: http.StatusBadGateway, Code: turn.CodeEngineError,
			Message: "the engine's answer to " + path + " is too large"}
	}
	return data, answer.StatusCode, nil
}

// missing says that a status means: there is no such route.
func missing(status int) bool {
	return status == http.StatusNotFound || status == http.StatusMethodNotAllowed || status == http.StatusNotImplemented
}
