package torture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// leaseDeaths: leases are opened and settled by commits of the control database.
var leaseDeaths = []death{
	{"commit.before", 150}, {"commit.after", 150}, {"drain.inside", 5}, {"publish.inside", 5},
	{"child.query", 30}, {"any moment", 0},
}

const ranks = 3

// TestLeasesKilled kills server and learners over and over, while groups come in
// and two consumers' learners, and the ranks of a third, train on them. In the
// end every consumer has acknowledged every group exactly once; what came under
// one key was always the same.
func TestLeasesKilled(t *testing.T) {
	t.Parallel()
	dir := scratch(t)
	r := rand.New(rand.NewPCG(*seed, 21))
	h := newHome()
	f := newFeeder(h, *seed)
	c := newConsumers(h, f)
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(*rounds)*time.Minute+2*time.Minute)
	defer cancel()
	var kind atomic.Bool
	var wait sync.WaitGroup
	defer wait.Wait()
	defer cancel()
	for i, consumer := range []string{"a", "a", "b", "b"} {
		l := &learner{consumers: c, name: fmt.Sprint(consumer, i), r: rand.New(rand.NewPCG(*seed, uint64(100+i))), kind: kind.Load}
		wait.Go(func() { l.run(ctx, consumer) })
	}
	wait.Go(func() { f.run(ctx) })
	j := &job{consumers: c, r: rand.New(rand.NewPCG(*seed, 200)), kind: kind.Load}
	wait.Go(func() { j.run(ctx, "ranks") })

	kills := map[string]int{}
	for range *rounds {
		for _, i := range r.Perm(len(leaseDeaths)) {
			kills[leasesKilledOnce(t, dir, h, f, r, leaseDeaths[i])]++
			if r.IntN(4) == 0 {
				verified(t, dir)
			}
		}
	}
	t.Logf("kills %v; %d requests were not answered", kills, h.dead.Load())

	// The last server lives. Learners go on to die under it for a while, and then do
	// what they should, until nothing is left.
	s := start(t, dir)
	h.moved(s.url)
	for range *rounds {
		f.more(30 * *load)
		for deadline := time.Now().Add(4 * time.Second); time.Now().Before(deadline) && len(h.faults()) == 0; {
			time.Sleep(10 * time.Millisecond)
		}
	}
	kind.Store(true)
	for !f.idle.Load() && len(h.faults()) == 0 {
		time.Sleep(time.Millisecond)
	}
	for _, consumer := range []string{"a", "b", "ranks"} {
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			c.resolve(ctx)
			require.NoError(t, errors.Join(h.faults()...), "server said: %s", s.stderr)
			if c.remaining(consumer) == 0 {
				break
			}
			require.True(t, time.Now().Before(deadline), "%s lacks %d groups", consumer, c.remaining(consumer))
		}
	}
	cancel()
	wait.Wait()
	c.resolve(t.Context())
	require.NoError(t, errors.Join(h.faults()...))
	allAcknowledged(t, h, f, c)
	leaseComplaints(t, s)
	s.stop(t)
	verified(t, dir)
	t.Logf("%d groups, %d rollouts: %v", len(f.all()), len(f.rollouts), c.tally)
}

// leasesKilledOnce runs a server, with some more groups coming in, until it is
// dead.
func leasesKilledOnce(t *testing.T, dir string, h *home, f *feeder, r *rand.Rand, d death) string {
	t.Helper()
	failpoint := ""
	if d.most > 0 {
		failpoint = fmt.Sprintf("%s=kill@%d", d.point, 1+r.IntN(d.most))
	}
	s, err := launch(dir, failpoint, busy...)
	if err != nil {
		require.True(t, s.killedBySignal() && failpoint != "", "start with %q: %v", failpoint, err)
		return d.point + " (at start)"
	}
	t.Cleanup(s.kill)
	h.moved(s.url)
	f.more(10 * *load)
	limit := 2 * time.Second
	if failpoint == "" {
		limit = time.Duration(100+r.IntN(1500)) * time.Millisecond
	}
	reason := d.point
	select {
	case <-s.exited:
	case <-time.After(limit):
		if failpoint != "" && !strings.HasPrefix(d.point, "child.") {
			reason += " (not reached)"
		}
	}
	s.kill()
	require.True(t, s.killedBySignal(), "the server ended by itself: %v\n%s", s.err, s.stderr)
	require.NoError(t, errors.Join(h.faults()...), "%s: server said: %s", d.point, s.stderr)
	leaseComplaints(t, s)
	return reason
}

// allAcknowledged asks the server whether it counts as the learners do.
func allAcknowledged(t *testing.T, h *home, f *feeder, c *consumers) {
	t.Helper()
	for _, consumer := range []string{"a", "b", "ranks"} {
		var state struct {
			Acknowledged struct{ Groups int }
			Skipped      map[string]int
			Lag          struct {
				Ready       int `json:"ready_groups"`
				NotFinished int `json:"not_finished"`
				NotRewarded int `json:"not_rewarded"`
				Leased      int
			}
		}
		a := h.ask(t.Context(), request{"GET", "/v1/consumers/" + consumer, nil})
		require.Equal(t, 200, a.status)
		require.NoError(t, json.Unmarshal(a.body, &state))
		require.Equal(t, len(f.all()), state.Acknowledged.Groups, "%s: %s", consumer, a.body)
		for reason, n := range state.Skipped {
			require.Zero(t, n, reason)
		}
		require.Zero(t, state.Lag.Ready+state.Lag.NotFinished+state.Lag.NotRewarded+state.Lag.Leased, "%s", a.body)
		got := make([]string, 0, len(c.acked[consumer]))
		for g := range c.acked[consumer] {
			got = append(got, g)
		}
		slices.Sort(got)
		require.Equal(t, f.all(), got)
	}
}

// leaseComplaints are complaints but for those over clients that left, and over
// the warehouse's process, which dies here too.
func leaseComplaints(t *testing.T, s *server) {
	t.Helper()
	for line := range strings.SplitSeq(s.stderr.String(), "\n") {
		bad := strings.Contains(line, "level=ERROR") || strings.Contains(line, "panic") || strings.Contains(line, "DATA RACE")
		if bad && !strings.Contains(line, "context canceled") && !strings.Contains(line, "broken pipe") && !strings.Contains(line, "connection reset") &&
			!strings.Contains(line, "the warehouse's process") && !strings.Contains(line, "its process ended") {
			t.Errorf("the server said: %s", line)
		}
	}
}

// job is a training job of several ranks that share each lease.
type job struct {
	*consumers
	r    *rand.Rand
	kind func() bool
}

// run makes steps until ctx ends.
func (j *job) run(ctx context.Context, consumer string) {
	for n := 0; ctx.Err() == nil && len(j.home.faults()) == 0; n++ {
		j.step(ctx, consumer, fmt.Sprint("step-", n))
	}
}

// step leases one batch in shards. A rank that dies takes its shard with it, or
// comes back and fetches it again.
func (j *job) step(ctx context.Context, consumer, key string) {
	ask := func(rank int) object {
		return object{"key": key, "max_groups": 6, "lease_seconds": 2, "wait_seconds": 0.3, "shards": ranks, "shard": rank, "tokens_per_microbatch": 100}
	}
	began := time.Now()
	var parts [ranks]*batch
	var wait sync.WaitGroup
	for rank := range ranks {
		wait.Go(func() {
			// A rank that was told that there is nothing asks again: another may
			// have got the lease since.
			for lost := false; parts[rank] == nil && !lost && ctx.Err() == nil && len(j.home.faults()) == 0; {
				parts[rank], lost = j.lease(ctx, consumer, ask(rank), began.Add(2*time.Second))
			}
		})
	}
	wait.Wait()
	dies, back := j.r.IntN(2*ranks), j.r.IntN(2) == 0
	if j.kind() {
		dies = -1
	}
	has := map[string]int{}
	lease := ""
	for rank, b := range parts {
		if b == nil {
			continue
		}
		if lease == "" {
			lease = b.lease
		}
		if b.lease != lease {
			j.home.fail("rank %d got lease %s of key %s, another %s", rank, b.lease, key, lease)
		}
		for _, g := range b.groups {
			if other, twice := has[g]; twice {
				j.home.fail("group %s went to ranks %d and %d", g, other, rank)
			}
			has[g] = rank
		}
		switch {
		case rank != dies:
			wait.Go(func() { j.ack(ctx, b) })
		case back:
			wait.Go(func() {
				if again, _ := j.lease(ctx, consumer, ask(rank), b.expires); again != nil {
					j.did("rank came back")
					j.ack(ctx, again)
				}
			})
		default:
			j.did("rank died")
		}
	}
	wait.Wait()
}
