package apptest

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// asked says how many requests for leases wait or are planned.
func (s *server) asked() int {
	s.t.Helper()
	return int(s.counted("icecore_lease_waiting"))
}

// counted is a metric without labels.
func (s *server) counted(name string) float64 {
	s.t.Helper()
	list := s.metrics()[name]
	require.Len(s.t, list, 1, name)
	return list[0].value
}

// A waiting request is woken by what makes a group ready.
func TestLongPollIsWoken(t *testing.T) {
	t.Parallel()
	s := start(t, leaseHTTP...)
	wait := func(request object) chan *answer {
		out := make(chan *answer, 1)
		request["wait_seconds"] = 600
		go func() { out <- s.askLease("c", request) }()
		eventually(t, "it waits", func() bool { return s.asked() == 1 })
		return out
	}
	g := group("rewarded", 1, 0)
	g[1].reward = nil
	s.perform(g...)
	got := wait(object{})
	s.rewardNow("rewarded/1", 0, 0)
	require.Equal(t, []string{"rewarded"}, s.asLease((<-got).is(200)).groups())

	g = group("finished", 1, 0)
	g[0].status = ""
	s.perform(g...)
	got = wait(object{})
	s.post(path("rollouts", "finished/0", "finish"), object{"status": "succeeded"}).is(200)
	l := s.asLease((<-got).is(200))
	require.Equal(t, []string{"finished"}, l.groups())

	got = wait(object{"key": "returned"})
	s.nack(l.id, object{}).is(200)
	l = s.asLease((<-got).is(200))
	require.Equal(t, []string{"finished"}, l.groups())
	s.ack(l.id, object{}).is(200)

	got = wait(object{})
	s.post("/v1/consumers/c/seek", object{"to": "beginning"}).is(200)
	require.Len(t, s.asLease((<-got).is(200)).groups(), 2)

	got = wait(object{"where": object{"split": "train"}})
	s.perform(withPut(group("other", 1, 0), "split", "eval")...)
	s.perform(withPut(group("train", 1, 0), "split", "train")...)
	require.Equal(t, []string{"train"}, s.asLease((<-got).is(200)).groups())
}

// The time of a request ends with 204, and a stop of the server with 503.
func TestLongPollEnds(t *testing.T) {
	t.Parallel()
	s := start(t, leaseHTTP...)
	began := time.Now()
	s.nothing("c", object{"wait_seconds": 0.3})
	require.GreaterOrEqual(t, time.Since(began), 300*time.Millisecond)
	got := make(chan *answer, 2)
	for i := range 2 {
		go func() { got <- s.askLease("c", object{"wait_seconds": 600, "key": fmt.Sprint(i)}) }()
	}
	eventually(t, "they wait", func() bool { return s.asked() == 2 })
	s.http.CloseIdleConnections()
	s.stop()
	for range 2 {
		(<-got).problem(503, "shutting_down")
	}
}

// A client that leaves is waited for no longer.
func TestLongPollLeft(t *testing.T) {
	t.Parallel()
	s := start(t, leaseHTTP...)
	u, err := url.Parse(s.url)
	require.NoError(t, err)
	conn, err := net.Dial("tcp", u.Host)
	require.NoError(t, err)
	body := `{"wait_seconds": 600}`
	_, err = fmt.Fprintf(conn, "POST /v1/consumers/c/lease HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	require.NoError(t, err)
	eventually(t, "it waits", func() bool { return s.asked() == 1 })
	require.NoError(t, conn.Close())
	eventually(t, "nobody waits", func() bool { return s.asked() == 0 })
	// What becomes ready then is given to nobody who is not there.
	s.perform(group("g", 1, 0)...)
	require.Len(t, s.lease("c", object{}).rows, 2)
}

// Leases of one consumer never overlap, however many ask at once, and all groups
// come.
func TestLeasesDoNotOverlap(t *testing.T) {
	t.Parallel()
	s := start(t, leaseHTTP...)
	const groups = 60
	for i := range groups {
		s.perform(group(fmt.Sprint("g", i), 1, 0)...)
	}
	var mu sync.Mutex
	given := map[string]string{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				a := s.askLease("c", object{"max_groups": 3})
				if a.status == 204 {
					return
				}
				l := s.asLease(a.is(200))
				mu.Lock()
				for _, name := range l.groups() {
					require.Empty(t, given[name], "%s was given twice", name)
					given[name] = l.id
				}
				mu.Unlock()
				s.ack(l.id, object{}).is(200)
			}
		})
	}
	wg.Wait()
	require.Len(t, given, groups)
	require.Equal(t, groups, s.consumer("c").Acknowledged.Groups)
}

// A hundred consumers wait at once, each with two ranks of one key; one commit
// serves them all.
func TestHundredConsumers(t *testing.T) {
	t.Parallel()
	s := start(t, leaseHTTP...)
	g := group("g", 1, 0)
	g[1].reward = nil
	s.perform(g...)
	answers := make(chan *answer, 200)
	for i := range 200 {
		go func() {
			answers <- s.askLease(fmt.Sprint("c", i/2), object{"key": "step", "wait_seconds": 600, "shards": 2, "shard": i % 2, "keep_groups_together": false})
		}()
	}
	eventually(t, "all wait", func() bool { return s.asked() == 200 })
	s.rewardNow("g/1", 0, 0)
	rows := map[string]int{}
	for range 200 {
		l := s.asLease((<-answers).is(200))
		rows[l.id] += len(l.rows)
	}
	require.Len(t, rows, 100)
	for _, n := range rows {
		require.Equal(t, 2, n)
	}
}

// A learner that stops reading does not hold its lease: without a key it goes
// back at once, with one it is fetched again.
func TestLeaseThatIsNotRead(t *testing.T) {
	t.Parallel()
	s := start(t, append([]string{"--read-timeout=300ms"}, leaseHTTP...)...)
	s.faulty = true // the server says that it broke a stream off
	much(s)
	for i := range bigRollouts {
		id := "big" + itoa(i)
		s.put(path("rollouts", id), object{"group_id": "g", "group_size": bigRollouts}).is(200)
		s.rewardNow(id, float64(i), 0)
		s.post(path("rollouts", id, "finish"), object{"status": "succeeded"}).is(200)
	}
	u, err := url.Parse(s.url)
	require.NoError(t, err)
	for i, body := range []string{`{}`, `{"key": "k"}`} {
		conn, err := net.Dial("tcp", u.Host)
		require.NoError(t, err)
		_, err = fmt.Fprintf(conn, "POST /v1/consumers/c/lease HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		require.NoError(t, err)
		head, err := bufio.NewReader(conn).ReadString('\n')
		require.NoError(t, err)
		require.Contains(t, head, "200")
		eventually(t, "the stream is broken off", func() bool { return s.counted("icecore_lease_stream_failures_total") == float64(i+1) })
		require.NoError(t, conn.Close())
		if i == 0 {
			eventually(t, "it is returned", func() bool { return s.consumer("c").Returned == 1 })
		} else {
			require.Len(t, s.consumer("c").OpenLeases, 1)
		}
	}
	// A reader that is slower than 300 ms at any one place is broken off too, and asks
	// again by its key.
	var l *answer
	eventually(t, "the lease is read whole", func() bool {
		l, err = s.try(http.MethodPost, path("consumers", "c", "lease"), bytes.NewReader(encode(object{"key": "k"})), "Content-Type", typeJSON)
		return err == nil
	})
	n, err := countArrow(bytes.NewReader(l.is(200).body))
	require.NoError(t, err)
	require.Equal(t, bigRollouts, n)
}
