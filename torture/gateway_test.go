package torture

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// gatewayDeaths are the ways in which one of the three processes of a call dies.
var gatewayDeaths = []death{
	{"commit.before", 40}, {"commit.after", 40}, // around the announcement and the trace
	{"gateway.begun", 20},    // announced, the engine not called
	{"gateway.answered", 20}, // the engine has answered
	{"gateway.stored", 20},   // stored, the harness without the end
	{"icecore", 0}, {"engine", 0}, {"harness", 0},
}

// TestGatewayKilled kills icecore, the engine or the harness amid calls, over and over.
// Whatever a harness saw the end of is stored; whatever an engine sampled is stored, or
// its call is announced and shows as missing; and every id is as the engine noted it.
func TestGatewayKilled(t *testing.T) {
	t.Parallel()
	g := newGatewayWorld(t)
	kills := map[string]int{}
	for range *rounds {
		for _, i := range g.r.Perm(len(gatewayDeaths)) {
			kills[g.once(gatewayDeaths[i])]++
			g.look()
		}
		t.Logf("%v", kills)
	}
	clear(g.known) // once more, all of it
	g.look()
	t.Logf("harnesses saw %d calls begin and %d end; the engine noted %d; %d traces are stored, %d calls are announced without one",
		g.begun, g.ended, g.noted, g.stored, len(g.missing))
	require.NotZero(t, g.ended)
	require.NotEmpty(t, g.missing, "no kill left a call without its trace: nothing was tested")
}

// TestGatewayStumbles has writes fail that a call waits for: it goes on when they succeed.
func TestGatewayStumbles(t *testing.T) {
	t.Parallel()
	g := newGatewayWorld(t)
	for range *rounds {
		for _, point := range []string{"gateway.begun", "gateway.answered", "gateway.stored", "commit.before", "commit.after"} {
			s := g.serve(fmt.Sprintf("%s=eio@%d", point, 1+g.r.IntN(10)))
			p := g.harness(s)
			g.someCalls(s, 15)
			g.note(p.finish())
			s.stop(t)
			g.look()
			require.Empty(t, g.missing, "every call has its trace, %s", point)
		}
	}
}

// gatewayWorld is a server, an engine, and what is known of all calls.
type gatewayWorld struct {
	t        *testing.T
	r        *rand.Rand
	dir      string
	settings string
	engine   *engineProcess
	rollouts []string
	seen     []sight
	known    map[string]*gatewayCall
	client   *http.Client
	// missing are the calls that were announced without a trace when last looked.
	missing                     map[string]bool
	begun, ended, noted, stored int
}

func newGatewayWorld(t *testing.T) *gatewayWorld {
	t.Helper()
	g := &gatewayWorld{t: t, r: rand.New(rand.NewPCG(*seed, 41)), dir: scratch(t), engine: newEngine(t), missing: map[string]bool{},
		known: map[string]*gatewayCall{}, client: newClient()}
	g.engine.start(t)
	g.settings = filepath.Join(t.TempDir(), "gateway.yaml")
	require.NoError(t, os.WriteFile(g.settings, []byte("engines: [{url: http://"+g.engine.address+"/vllm, kind: vllm}]\nmodels: {policy: {}}\nlimits: {health_every: 20ms}\n"), 0o600))
	for n := range 4 {
		g.rollouts = append(g.rollouts, fmt.Sprintf("torture-%d", n))
	}
	return g
}

func (g *gatewayWorld) serve(failpoint string) *server {
	g.t.Helper()
	s, err := launch(g.dir, failpoint, append(busy[:len(busy):len(busy)], "--gateway", g.settings)...)
	require.NoError(g.t, err, "start with %q", failpoint)
	g.t.Cleanup(s.kill)
	return s
}

func (g *gatewayWorld) harness(s *server) *harnessProcess {
	g.t.Helper()
	return startHarness(g.t, order{URL: s.url, Seed: g.r.Uint64(), Rollouts: g.rollouts})
}

func (g *gatewayWorld) note(seen []sight) { g.seen = append(g.seen, seen...) }

// once has one of the three die, and the others end well.
func (g *gatewayWorld) once(d death) string {
	t := g.t
	t.Helper()
	reason, failpoint := d.point, ""
	if d.most > 0 {
		failpoint = fmt.Sprintf("%s=kill@%d", d.point, 1+g.r.IntN(d.most))
	}
	s := g.serve(failpoint)
	p := g.harness(s)
	switch d.point {
	case "engine":
		g.someCalls(s, 3)
		time.Sleep(time.Duration(g.r.IntN(50)) * time.Millisecond)
		g.engine.kill()
		time.Sleep(time.Duration(g.r.IntN(100)) * time.Millisecond)
		g.engine.start(t)
		g.someCalls(s, 3)
		g.note(p.finish())
		s.stop(t)
	case "harness":
		g.someCalls(s, 3)
		time.Sleep(time.Duration(g.r.IntN(50)) * time.Millisecond)
		g.note(p.kill())
		s.stop(t) // which waits for what was cut off to be stored
	default:
		if failpoint == "" {
			g.someCalls(s, 1)
			time.Sleep(time.Duration(g.r.IntN(200)) * time.Millisecond)
			s.kill()
		}
		select {
		case <-s.exited:
		case <-time.After(20 * time.Second):
			reason += " (not reached)"
			s.kill()
		}
		require.True(t, s.killedBySignal(), "the server ended by itself: %v\n%s", s.err, s.stderr)
		g.note(p.finish())
		return reason
	}
	complaintsBut(t, s, "engine")
	return reason
}

// complaintsBut are complaints but for those that hold a word.
func complaintsBut(t *testing.T, s *server, word string) {
	t.Helper()
	for line := range strings.SplitSeq(s.stderr.String(), "\n") {
		if (strings.Contains(line, "level=ERROR") || strings.Contains(line, "panic") || strings.Contains(line, "DATA RACE")) && !strings.Contains(line, word) {
			t.Errorf("the server said: %s", line)
		}
	}
}

// someCalls waits until n more calls of this server have been stored.
func (g *gatewayWorld) someCalls(s *server, n int) {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), time.Minute)
	defer cancel()
	first := -1
	for {
		all := 0
		for _, rollout := range g.rollouts {
			var r struct{ Traces int }
			status, body := g.get(s, "/v1/rollouts/"+rollout)
			if status == http.StatusOK {
				require.NoError(g.t, json.Unmarshal(body, &r))
			}
			all += r.Traces
		}
		if first < 0 {
			first = all
		}
		if all >= first+n {
			return
		}
		require.NoError(g.t, ctx.Err(), "no calls are stored:\n%s", s.stderr)
		time.Sleep(5 * time.Millisecond) // nobody announces it
	}
}

func (g *gatewayWorld) get(s *server, path string) (int, []byte) {
	g.t.Helper()
	resp, err := g.client.Get(s.url + path) //nolint:noctx // the client has a timeout
	require.NoError(g.t, err)
	defer resp.Body.Close() //nolint:errcheck // read to its end
	body, err := io.ReadAll(resp.Body)
	require.NoError(g.t, err)
	return resp.StatusCode, body
}
