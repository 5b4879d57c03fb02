package apptest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// manyGroups stores n ready groups of two rollouts each, of about so many tokens.
func (s *server) manyGroups(n, tokens int) {
	s.t.Helper()
	var wg sync.WaitGroup
	for part := range 8 {
		wg.Go(func() {
			for i := part; i < n; i += 8 {
				list := group(fmt.Sprintf("g%03d", i), 1, 0)
				for j := range list {
					list[j].calls = []call{oneCall(list[j].id, 1, tokens+i)}
				}
				s.perform(list...)
			}
		})
	}
	wg.Wait()
}

// A hundred consumers and the 64 ranks of one job ask in the same moment. Every
// consumer gets everything, and the ranks one lease in 64 parts.
func TestConsumersAndRanksAtOnce(t *testing.T) {
	t.Parallel()
	s := start(t, leaseHTTP...)
	const groups, consumers, ranks = 128, 100, 64
	s.manyGroups(groups, 50)
	var answers [consumers + ranks]*answer
	var ready, wg sync.WaitGroup
	ready.Add(1)
	for i := range answers {
		wg.Go(func() {
			ready.Wait()
			if i < consumers {
				answers[i] = s.askLease(fmt.Sprint("c", i), object{"max_groups": groups})
				return
			}
			answers[i] = s.askLease("job", object{"key": "step", "max_groups": groups, "shards": ranks, "shard": i - consumers, "tokens_per_microbatch": 200})
		})
	}
	ready.Done()
	wg.Wait()
	leases := map[string]bool{}
	for _, a := range answers[:consumers] {
		require.Equal(t, itoa(groups), a.is(200).header.Get("Icecore-Groups"))
		n, err := countArrow(bytes.NewReader(a.body))
		require.NoError(t, err)
		require.Equal(t, 2*groups, n)
		leases[a.header.Get("Icecore-Lease-Id")] = true
	}
	require.Len(t, leases, consumers)
	seen, job, microbatches := map[string]bool{}, "", ""
	for _, a := range answers[consumers:] {
		l := s.asLease(a.is(200))
		if job == "" {
			job, microbatches = l.id, l.meta["microbatches"]
		}
		require.Equal(t, job, l.id)
		require.Len(t, l.groups(), 2, "128 groups of nearly one size are dealt to 64")
		for _, g := range l.groups() {
			require.False(t, seen[g], "%s went to two ranks", g)
			seen[g] = true
		}
		require.Equal(t, microbatches, l.meta["microbatches"])
	}
	require.Len(t, seen, groups)
	// They also acknowledge at once.
	for rank := range ranks {
		wg.Go(func() { s.ack(job, object{"shard": rank}).is(200) })
	}
	for id := range leases {
		wg.Go(func() { s.ack(id, object{}).is(200) })
	}
	wg.Wait()
	require.Equal(t, "acknowledged", s.get(path("leases", job)).lease().State)
	for _, name := range []string{"job", "c0", "c99"} {
		require.Equal(t, groups, s.consumer(name).Acknowledged.Groups)
	}
}

// Learners that stop reading midway hold nothing for ever: others are served
// meanwhile, and then the server has its goroutines, its memory and the leases
// back.
func TestManyLearnersStopReading(t *testing.T) {
	t.Parallel()
	s := start(t, append([]string{"--read-timeout=2s", "--profile"}, leaseHTTP...)...)
	s.faulty = true // the server says that it broke streams off
	much(s)
	for i := range bigRollouts {
		id := "big" + itoa(i)
		s.put(path("rollouts", id), object{"group_id": "g" + itoa(i), "group_size": 1}).is(200)
		s.rewardNow(id, float64(i), 0)
		s.post(path("rollouts", id, "finish"), object{"status": "succeeded"}).is(200)
	}
	const everything = `"max_tokens": 100000000`
	require.Equal(t, bigRollouts, s.asLeaseCount("warm", `{`+everything+`}`)) // merges
	goroutines, heap := s.collected()
	const stalled = 12
	var conns []net.Conn
	for i := range stalled {
		body := `{` + everything + `}`
		if i%2 == 0 {
			body = `{"key": "k", ` + everything + `}`
		}
		conns = append(conns, s.stall("stalled"+itoa(i), body))
	}
	// All of them hold their leases while others are served.
	require.Equal(t, bigRollouts, s.asLeaseCount("other", `{`+everything+`}`))
	s.healthy()
	eventually(t, "the streams are broken off", func() bool { return s.counted("icecore_lease_stream_failures_total") == stalled })
	for _, c := range conns {
		require.NoError(t, c.Close())
	}
	for i := range stalled {
		if i%2 == 1 { // nobody knows its key
			eventually(t, "it is returned", func() bool { return s.consumer("stalled"+itoa(i)).Returned == 1 })
		}
		require.Equal(t, bigRollouts, s.asLeaseCount("stalled"+itoa(i), `{"key": "k", `+everything+`}`), "it is there to be had again")
	}
	s.http.CloseIdleConnections()
	eventually(t, "goroutines and memory are back", func() bool {
		g, h := s.collected()
		return g <= goroutines+8 && h <= heap+64<<20
	})
}

// stall asks for a lease on a connection of its own, reads some of it and stops.
func (s *server) stall(consumer, body string) net.Conn {
	s.t.Helper()
	u, err := url.Parse(s.url)
	require.NoError(s.t, err)
	conn, err := net.Dial("tcp", u.Host)
	require.NoError(s.t, err)
	_, err = fmt.Fprintf(conn, "POST /v1/consumers/%s/lease HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", consumer, len(body), body)
	require.NoError(s.t, err)
	in := bufio.NewReader(conn)
	head, err := in.ReadString('\n')
	require.NoError(s.t, err)
	require.Contains(s.t, head, "200")
	_, err = io.CopyN(io.Discard, in, 1<<20)
	require.NoError(s.t, err)
	return conn
}

// asLeaseCount leases and counts the rows.
func (s *server) asLeaseCount(consumer, body string) int {
	s.t.Helper()
	a := s.send("POST", path("consumers", consumer, "lease"), []byte(body), "Content-Type", typeJSON).is(200)
	require.Equal(s.t, "true", a.trailer.Get("Icecore-Complete"))
	n, err := countArrow(bytes.NewReader(a.body))
	require.NoError(s.t, err)
	return n
}

// collected counts goroutines, and bytes in use after a garbage collection.
func (s *server) collected() (goroutines int, heap int64) {
	s.t.Helper()
	resp, err := http.Get(s.url + "/debug/pprof/heap?gc=1&debug=0") //nolint:noctx // a moment
	require.NoError(s.t, err)
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(s.t, err)
	require.NoError(s.t, resp.Body.Close())
	return int(s.counted("go_goroutines")), int64(s.counted("go_memstats_heap_alloc_bytes"))
}

// Short leases under load: learners vanish with every third lease, and every
// group is acknowledged once all the same.
func TestExpiryUnderLoad(t *testing.T) {
	t.Parallel()
	s := start(t, leaseHTTP...)
	const groups, learners = 120, 8
	var mu sync.Mutex
	acked, came := map[string]string{}, map[string]int{}
	var wg sync.WaitGroup
	wg.Go(func() { s.manyGroups(groups, 20) })
	for l := range learners {
		wg.Go(func() {
			for n := 0; ; n++ {
				mu.Lock()
				done := len(acked) == groups
				mu.Unlock()
				if done {
					return
				}
				a := s.askLease("c", object{"key": fmt.Sprint(l, "-", n), "max_groups": 1 + (l+n)%5, "lease_seconds": 1, "wait_seconds": 0.5})
				if a.status == 204 {
					continue
				}
				lease := s.asLease(a.is(200))
				mu.Lock()
				for _, g := range lease.groups() {
					came[g]++
				}
				mu.Unlock()
				if n%3 == l%3 {
					continue
				}
				if a := s.ack(lease.id, object{}); a.status != 200 {
					a.problem(409, "lease_lost") // a slow machine
					continue
				}
				mu.Lock()
				for _, g := range lease.groups() {
					require.Empty(t, acked[g], "%s is acknowledged twice", g)
					acked[g] = lease.id
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	require.Len(t, came, groups)
	again := 0
	for _, n := range came {
		again += n - 1
	}
	require.Positive(t, again)
	state := s.consumer("c")
	require.Equal(t, groups, state.Acknowledged.Groups)
	require.Equal(t, again, state.Redelivered)
	require.Positive(t, state.Expired)
	require.Empty(t, state.OpenLeases)
	s.nothing("c", object{})
}
