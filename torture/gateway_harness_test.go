package torture

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// asHarness marks a process of this test that calls the gateway, so that it can be
// killed like any other.
const asHarness = "ICECORE_TORTURE_HARNESS"

// order is what such a process is told.
type order struct {
	URL  string // of the gateway's server
	Seed uint64
	// Rollouts are called from one worker each, call after call.
	Rollouts []string
}

// sight is what a harness saw of one call, a line of JSON on its standard output. What
// is not written there it did not see.
type sight struct {
	Rollout string `json:"rollout"`
	Trace   string `json:"trace"`
	Choices int    `json:"choices"`
	// End: the whole answer was read. Otherwise this is the call's beginning.
	End bool `json:"end"`
}

// actAsHarness calls until standard input ends.
func actAsHarness(told string) int {
	var o order
	if err := json.Unmarshal([]byte(told), &o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // its end is all that matters
		cancel()
	}()
	h := &harness{client: newClient()}
	var wg sync.WaitGroup
	for i, rollout := range o.Rollouts {
		r := rand.New(rand.NewPCG(o.Seed, uint64(i)))
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				if err := h.call(o.URL, rollout, n, r); err != nil {
					time.Sleep(time.Duration(1+r.IntN(20)) * time.Millisecond) // something was killed
				}
			}
		})
	}
	wg.Wait()
	return 0
}

type harness struct {
	client *http.Client
	mu     sync.Mutex
}

func (h *harness) saw(s sight) {
	line, _ := json.Marshal(s) // texts and numbers
	h.mu.Lock()
	defer h.mu.Unlock()
	_, _ = os.Stdout.Write(append(line, '\n')) // nobody to tell
}

// call makes one call in one of the four APIs, streamed or not, of one or two choices.
func (h *harness) call(url, rollout string, n int, r *rand.Rand) error {
	text := fmt.Sprintf("%s %d: %s", rollout, n, strings.Repeat("and again ", r.IntN(8)))
	stream, choices := r.IntN(4) > 0, 1
	path, body, end := "", "", ""
	switch r.IntN(5) {
	case 0:
		path, body, end = "v1/responses", fmt.Sprintf(`{"model":"m","stream":%v,"input":%q}`, stream, text), "event: response.completed\n"
	case 1:
		path, body, end = "v1/messages", fmt.Sprintf(`{"model":"m","max_tokens":900,"stream":%v,"messages":[{"role":"user","content":%q}]}`, stream, text), "event: message_stop\n"
	case 2:
		path, end = "v1beta/models/m:generateContent", `"finishReason":"STOP"`
		if stream {
			path = "v1beta/models/m:streamGenerateContent?alt=sse"
		}
		body = fmt.Sprintf(`{"contents":[{"role":"user","parts":[{"text":%q}]}]}`, text)
	default:
		choices += r.IntN(2)
		path, end = "v1/chat/completions", "data: [DONE]\n"
		body = fmt.Sprintf(`{"model":"m","n":%d,"stream":%v,"messages":[{"role":"user","content":%q}]}`, choices, stream, text)
	}
	req, err := http.NewRequest(http.MethodPost, url+"/gateway/"+rollout+"/"+path, strings.NewReader(body)) //nolint:noctx // the client has a timeout
	if err != nil {
		return err
	}
	resp, err := h.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end, or broken
	s := sight{Rollout: rollout, Trace: resp.Header.Get("Icecore-Trace-Id"), Choices: choices}
	if s.Trace != "" {
		h.saw(s)
	}
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("answered %d: %.300s", resp.StatusCode, answer)
	}
	if stream && !bytes.Contains(answer, []byte(end)) {
		return fmt.Errorf("ended without its end: %.300s", answer)
	}
	s.End = true
	h.saw(s)
	return nil
}

// harnessProcess is one under way.
type harnessProcess struct {
	cmd   *exec.Cmd
	stdin io.Closer
	done  chan []sight
}

func startHarness(t *testing.T, o order) *harnessProcess {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	told, err := json.Marshal(o)
	require.NoError(t, err)
	p := &harnessProcess{cmd: exec.Command(self), done: make(chan []sight, 1)}
	p.cmd.Env = append(os.Environ(), asHarness+"="+string(told))
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.stdin, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	go func() {
		var all []sight
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var s sight
			if json.Unmarshal(lines.Bytes(), &s) == nil { // the last line may be cut by a kill
				all = append(all, s)
			}
		}
		_ = p.cmd.Wait() // killed or not
		p.done <- all
	}()
	t.Cleanup(func() { _ = p.cmd.Process.Kill() }) // it may have ended already
	return p
}

// finish lets the calls under way end, and gives what was seen.
func (p *harnessProcess) finish() []sight {
	_ = p.stdin.Close() // twice is no harm
	return <-p.done
}

// kill is kill -9.
func (p *harnessProcess) kill() []sight {
	_ = p.cmd.Process.Kill() // it may have ended already
	return <-p.done
}
