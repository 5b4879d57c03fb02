package apptest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// dial opens a bare connection.
func (s *server) dial() net.Conn {
	s.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://")) //nolint:noctx // loopback
	require.NoError(s.t, err)
	require.NoError(s.t, c.SetDeadline(time.Now().Add(patience)))
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// A client that stalls in its body is sent away after the read timeout, one that
// keeps sending slowly is not.
func TestStalledBody(t *testing.T) {
	t.Parallel()
	s := start(t, "--read-timeout=1s")
	body := string(plain("stall", "stall", 1, ids(1), ids(2)).json())
	for _, sent := range []int{0, 1, len(body) - 1} {
		c := s.dial()
		_, err := fmt.Fprintf(c, "POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body[:sent])
		require.NoError(t, err)
		began := time.Now()
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err == nil {
			require.Equal(t, 400, resp.StatusCode)
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
		_, err = c.Read(make([]byte, 1))
		require.Error(t, err, "the connection is closed")
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Greater(t, time.Since(began), 500*time.Millisecond)
	}
	s.get("/v1/traces/stall").problem(404, "not_found")

	// A part every 300 ms, longer than the timeout in all.
	c := s.dial()
	_, err := fmt.Fprintf(c, "POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", len(body))
	require.NoError(t, err)
	tick := time.NewTicker(300 * time.Millisecond)
	defer tick.Stop()
	const parts = 6
	for i := range parts {
		<-tick.C
		_, err := c.Write([]byte(body[i*len(body)/parts : (i+1)*len(body)/parts]))
		require.NoError(t, err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	require.Equal(t, 200, resp.StatusCode)
	_ = resp.Body.Close()
	var status struct {
		Open int `json:"ingest_open_requests"`
		Held int `json:"ingest_held_bytes"`
	}
	eventually(t, "nothing is held any more", func() bool {
		s.get("/v1/status").is(200).into(&status)
		return status.Open == 0
	})
	s.healthy()
}

// More open requests than allowed are turned away at once, with Retry-After, and
// those that are open are served.
func TestTooManyOpenRequests(t *testing.T) {
	t.Parallel()
	s := start(t)
	const most = 64
	body := plain("open", "x", 1, ids(1), ids(2)).json()
	var open []*io.PipeWriter
	results := make(chan string, most)
	for i := range most {
		r, w := io.Pipe()
		open = append(open, w)
		go func() {
			a, err := s.try("POST", "/v1/traces", r, "Content-Type", typeJSON)
			if err != nil {
				results <- err.Error()
				return
			}
			results <- itoa(a.status)
		}()
		_, err := w.Write(append([]byte(" "), body[:1]...))
		require.NoError(t, err)
		_ = i
	}
	var status struct {
		Open int `json:"ingest_open_requests"`
	}
	eventually(t, "64 requests are open", func() bool {
		s.get("/v1/status").is(200).into(&status)
		return status.Open == most
	})
	for _, p := range []string{"/v1/traces", "/v1/rewards", "/v1/traces/begin", "/v1/rollouts/r/finish"} {
		a := s.post(p, `{}`)
		a.problem(429, "too_many_requests")
		require.Regexp(t, `^[1-9]\d*$`, a.header.Get("Retry-After"))
	}
	s.healthy() // reading goes on
	for i, w := range open {
		rest := bytes.Replace(body, []byte(`"x"`), []byte(`"x`+itoa(i)+`"`), 1)
		_, err := w.Write(rest[1:])
		require.NoError(t, err)
		require.NoError(t, w.Close())
	}
	for range most {
		require.Equal(t, "200", <-results)
	}
	r, _ := s.rollout("open")
	require.Equal(t, most, r.Traces)
}

// A server that holds as many bytes as it may turns further ones away.
func TestTooManyBytes(t *testing.T) {
	t.Parallel()
	s := start(t, "--max-buffered=1MiB", "--max-request=768KiB")
	r, w := io.Pipe()
	result := make(chan error, 1)
	go func() {
		_, err := s.try("POST", "/v1/traces", r, "Content-Type", typeJSON)
		result <- err
	}()
	_, err := w.Write(bytes.Repeat([]byte(" "), 700<<10))
	require.NoError(t, err)
	var status struct {
		Held int `json:"ingest_held_bytes"`
	}
	eventually(t, "bytes are held", func() bool {
		s.get("/v1/status").is(200).into(&status)
		return status.Held > 600<<10
	})
	big := append(bytes.Repeat([]byte(" "), 600<<10), plain("b", "b", 1, ids(1), ids(2)).json()...)
	a := s.post("/v1/traces", big)
	a.problem(429, "too_many_bytes")
	require.NotEmpty(t, a.header.Get("Retry-After"))
	require.NoError(t, w.CloseWithError(io.ErrUnexpectedEOF))
	require.Error(t, <-result)
	eventually(t, "the bytes are free again", func() bool { return s.post("/v1/traces", big).status == 200 })
}

func TestMethodsAndPaths(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, p := range []string{"/", "/v1", "/v1/", "/v1/trace", "/v2/traces", "/v1/rollouts/a/b", "/v1/trajectories/a", "/..", "/%00", "//v1/rollouts"} {
		s.get(p).problem(404, "no_such_path")
	}
	for p, methods := range map[string]string{"/v1/traces": "GET PUT DELETE PATCH", "/v1/traces/begin": "PUT DELETE", "/v1/rollouts/a": "POST DELETE",
		"/v1/rollouts/a/finish": "GET PUT", "/v1/rewards": "GET", "/v1/trajectories": "POST", "/v1/rollouts": "POST", "/healthz": "POST", "/metrics": "DELETE"} {
		for method := range strings.FieldsSeq(methods) {
			if method == "GET" && p == "/v1/rollouts/a/finish" {
				continue
			}
			a := s.send(method, p, nil)
			a.problem(405, "method_not_allowed")
			require.NotEmpty(t, a.header.Get("Allow"), "%s %s", method, p)
		}
	}
	s.get("/v1/traces/nope").problem(404, "not_found")
	s.get("/v1/rollouts/nope").problem(404, "not_found")
	s.get("/v1/rollouts/nope/traces").problem(404, "not_found")
}

// Whatever comes in place of HTTP, the server answers it or hangs up, and goes
// on.
func TestGarbage(t *testing.T) {
	t.Parallel()
	s := start(t)
	body := string(plain("g", "g1", 1, ids(1), ids(2)).json())
	post := fmt.Sprintf("POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	long := strings.Repeat("x", 2<<20)
	for name, c := range map[string]struct {
		send string
		want string
	}{
		"no HTTP":            {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("\x00", 500), "400"},
		"a pipelined second": {post + "garbage\r\n\r\n", "200 400"},
		"two pipelined":      {post + post, "200 200"},
		"huge headers":       {"GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + long + "\r\n\r\n", "431"},
		"many headers":       {"GET /healthz HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("X: y\r\n", 300_000) + "\r\n", "431"},
		"a huge path":        {"GET /v1/traces/" + long + " HTTP/1.1\r\nHost: x\r\n\r\n", "431"},
		"two lengths":        {"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}", "400"},
		"a negative length":  {"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n{}", "400"},
		"length and chunks":  {"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", "422"},
		"a bad chunk":        {"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n", "400"},
		"an enormous chunk":  {"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n{}", "400"},
		"no host":            {"GET /healthz HTTP/1.1\r\n\r\n", "400"},
		"HTTP/1.0":           {"GET /healthz HTTP/1.0\r\n\r\n", "200"},
		"a lying length":     {"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 5\r\n\r\n{}", "400"},
		"nothing":            {"", ""},
	} {
		conn := s.dial().(*net.TCPConn)
		go func() {
			_, _ = io.WriteString(conn, c.send) // the server may hang up in the middle
			_ = conn.CloseWrite()
		}()
		raw, _ := io.ReadAll(conn) // a reset is fine
		var got []string
		for line := range strings.Lines(string(raw)) {
			if rest, ok := strings.CutPrefix(line, "HTTP/1."); ok {
				got = append(got, rest[2:5])
			}
		}
		// A reset may take the answer with it.
		if text := strings.Join(got, " "); text != c.want && !(len(c.send) > 1<<20 && text == "") {
			require.Equal(t, c.want, text, "%s: %.300s", name, raw)
		}
	}
	var wg sync.WaitGroup
	for i := range 50 { // connections that say nothing cost little
		c := s.dial()
		wg.Go(func() { _, _ = c.Write([]byte("POST /v1/traces HTTP/1.1\r\nHost: x" + itoa(i))) })
	}
	wg.Wait()
	s.healthy()
	r, _ := s.rollout("g")
	require.Equal(t, 1, r.Traces)
}
