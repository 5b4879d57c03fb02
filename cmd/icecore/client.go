package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// client talks to a server by the HTTP contract: only 429, 502, 503 and 504,
// and connections that fail, are tried again.
type client struct {
	base     string
	http     *http.Client
	patience time.Duration
	// notice says once that something is tried again.
	notice sync.Once
}

func newClient(base string, patience time.Duration) *client {
	return &client{base: strings.TrimRight(base, "/"), http: &http.Client{}, patience: patience}
}

// refusal is an answer that is no success, with its problem.
type refusal struct {
	Status int
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

func (r *refusal) Error() string {
	return fmt.Sprintf("the server answered %d %s: %s", r.Status, r.Code, r.Detail)
}

func readRefusal(resp *http.Response) *refusal {
	r := &refusal{Status: resp.StatusCode}
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if json.Unmarshal(raw, r) != nil || r.Code == "" {
		r.Code, r.Detail = http.StatusText(resp.StatusCode), strings.TrimSpace(string(raw))
	}
	return r
}

// checkServer refuses an address that no request can be made of: trying again
// would not help.
func checkServer(base string) error {
	scheme, rest, ok := strings.Cut(base, "://")
	switch {
	case !ok && base != "" && base != "http:" && base != "https:": // whose slashes were cut
		return fmt.Errorf("--server %s does not say how to talk to it: write http://%s", base, base)
	case scheme != "http" && scheme != "https" || rest == "":
		return fmt.Errorf("--server %q is no address of a server: write one like http://127.0.0.1:7470", base)
	}
	return nil
}

func retryable(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusBadGateway ||
		status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout
}

// send makes a request, again where that is allowed, until it is answered or
// patience ends. The caller closes the answer's body.
func (c *client) send(ctx context.Context, method, path, contentType string, body []byte) (*http.Response, error) {
	if err := checkServer(c.base); err != nil {
		return nil, err
	}
	deadline := time.Now().Add(c.patience)
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
		if err != nil {
			return nil, fmt.Errorf("make request: %w", err)
		}
		if contentType != "" {
			req.Header.Set("Content-Type", contentType)
		}
		resp, err := c.http.Do(req)
		if err == nil && !retryable(resp.StatusCode) {
			return resp, nil
		}
		pause := wait
		if err == nil {
			if s, convErr := strconv.Atoi(resp.Header.Get("Retry-After")); convErr == nil {
				pause = time.Duration(s) * time.Second
			}
			err = readRefusal(resp)
			_ = resp.Body.Close()
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if time.Now().Add(pause).After(deadline) {
			var said *url.Error // names method and address itself
			if errors.As(err, &said) {
				return nil, err
			}
			return nil, fmt.Errorf("%s %s: %w", method, path, err)
		}
		c.notice.Do(func() {
			fmt.Fprintf(os.Stderr, "icecore: %v; trying again for up to %s\n", err, c.patience)
		})
		// Spread the clients that were turned away together.
		pause += time.Duration(rand.Int64N(int64(pause)/4 + 1))
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// startWait is how long a command waits for a server that nobody listens for: long
// enough for one that is just starting, not for one that was never started.
const startWait = 15 * time.Second

var errNobodyListens = errors.New("no server listens")

// reachable waits, a little, for a server to be there.
func (c *client) reachable(ctx context.Context) error {
	first := &client{base: c.base, http: c.http, patience: min(c.patience, startWait)}
	resp, err := first.send(ctx, http.MethodGet, "/healthz", "", nil)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("%w at %s: start one with icecore serve, or name another with --server", errNobodyListens, c.base)
	}
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// call sends JSON and decodes the JSON answer into out.
func (c *client) call(ctx context.Context, method, path string, in, out any) error {
	var body []byte
	contentType := ""
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return fmt.Errorf("encode request: %w", err)
		}
		contentType = "application/json"
	}
	resp, err := c.send(ctx, method, path, contentType, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	if resp.StatusCode >= http.StatusMultipleChoices && resp.StatusCode != http.StatusUnprocessableEntity || isProblem(resp) {
		return readRefusal(resp)
	}
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return fmt.Errorf("read answer of %s: %w", path, err)
	}
	return nil
}

func isProblem(resp *http.Response) bool {
	return strings.HasPrefix(resp.Header.Get("Content-Type"), "application/problem+json")
}

// itemsAnswer is the answer to a request of items.
type itemsAnswer struct {
	Items []struct {
		Index   int    `json:"index"`
		ID      string `json:"id"`
		Status  string `json:"status"`
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"items"`
}

// postItems sends items; a request that is refused whole is a *refusal.
func (c *client) postItems(ctx context.Context, path, contentType string, body []byte) (*itemsAnswer, error) {
	resp, err := c.send(ctx, http.MethodPost, path, contentType, body)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	if isProblem(resp) {
		return nil, readRefusal(resp)
	}
	switch resp.StatusCode {
	case http.StatusOK, http.StatusMultiStatus, http.StatusUnprocessableEntity:
	default:
		return nil, readRefusal(resp)
	}
	var a itemsAnswer
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		return nil, fmt.Errorf("read answer of %s: %w", path, err)
	}
	return &a, nil
}

func asRefusal(err error) *refusal {
	var r *refusal
	if errors.As(err, &r) {
		return r
	}
	return nil
}
