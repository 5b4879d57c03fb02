package torture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// postDeaths: a post is a commit, a drain and what a checkpoint leaves of it.
var postDeaths = []death{
	{"commit.before", 30}, {"commit.after", 30}, {"drain.inside", 4}, {"drain.after", 4},
	{"checkpoint.before", 3}, {"checkpoint.after", 3}, {"any moment", 0},
}

// posted is what one version of a learner says of one trajectory: the same number
// everywhere, another one each time.
type posted struct {
	id              string
	version, tokens int
	trained         int
	sent, acked     int
}

func (p *posted) body() []byte {
	values := strings.TrimSuffix(strings.Repeat(fmt.Sprintf("-%d,", p.sent), p.tokens), ",")
	return fmt.Appendf(nil, `{"trajectory_id":%q,"policy_version":%d,"logprobs":[%s]}`, p.id, p.version, values)
}

// send posts what was sent last, and says whether the server answered.
func (p *posted) send(l *loader) (alive bool) {
	status, answer := l.do(context.Background(), "POST", "/v1/trajectories/logprobs", "application/json", "", p.body())
	if settled, alive := l.retry(status, answer); settled {
		return alive
	}
	var a answers
	if err := json.Unmarshal(answer, &a); err != nil || status != 200 || len(a.Items) != 1 {
		l.fail("log-probs of %s were answered %d: %s", p.id, status, answer)
		return true
	}
	if p.acked == p.sent && a.Items[0].Status != "duplicate" {
		l.fail("log-probs %d of %s by version %d were acknowledged before, and are now %s", p.sent, p.id, p.version, a.Items[0].Status)
	}
	p.acked = p.sent
	l.acks.Add(1)
	return true
}

// TestLearnerLogprobsKilled kills the server over and over while learners post.
// In the end, of each trajectory and version what was acknowledged last counts.
func TestLearnerLogprobsKilled(t *testing.T) {
	t.Parallel()
	dir := scratch(t)
	r := rand.New(rand.NewPCG(*seed, 31))
	w := newWorld(*seed)
	w.grow(newMaker(*seed, "l"), 12, 6)
	s := start(t, dir)
	store(t, w, s)
	posts := rowsOf(t, s)
	require.Greater(t, len(posts), 10)
	s.stop(t)

	kills := map[string]int{}
	for range *rounds {
		for _, i := range r.Perm(len(postDeaths)) {
			kills[postsKilledOnce(t, dir, posts, r, postDeaths[i])]++
			if r.IntN(3) == 0 {
				verified(t, dir)
			}
		}
	}
	t.Logf("kills %v", kills)
	s = start(t, dir)
	l := newLoader(w, s.url)
	want := map[string]string{}
	for _, p := range posts {
		for p.sent > 0 && p.acked < p.sent {
			require.True(t, p.send(l), "%s", s.stderr)
		}
		if p.sent > 0 {
			require.True(t, p.send(l), "%s", s.stderr) // a duplicate
			want[fmt.Sprint(p.id, " ", p.version)] = fmt.Sprintf("-%d -%d %d", p.sent, p.sent, p.trained)
		}
	}
	require.NoError(t, errors.Join(l.faults()...))
	require.Equal(t, want, counted(t, l))
	s.stop(t)
	verified(t, dir)
}

// rowsOf lists two versions of each trajectory that has something to train behind
// its first token, of which nobody can say anything.
func rowsOf(t *testing.T, s *server) (out []*posted) {
	t.Helper()
	l := newLoader(nil, s.url)
	defer l.client.CloseIdleConnections()
	status, lines := l.do(context.Background(), "GET", "/v1/trajectories?format=ndjson", "", "", nil)
	require.Equal(t, 200, status)
	rows, err := readLines(strings.NewReader(string(lines)))
	require.NoError(t, err)
	for _, x := range rows {
		trained := 0
		for _, m := range x.LossMask[1:] {
			trained += int(m)
		}
		for version := 1; trained > 0 && x.LossMask[0] == 0 && version <= 2; version++ {
			out = append(out, &posted{id: x.TrajectoryID, version: version, tokens: len(x.TokenIDs), trained: trained})
		}
	}
	return out
}

// counted asks SQL for the least and the greatest number that counts for each
// trajectory and version, and of how many tokens.
func counted(t *testing.T, l *loader) map[string]string {
	t.Helper()
	var answer struct{ Rows [][]string }
	for until := time.Now().Add(patience); ; {
		status, body := l.do(context.Background(), "POST", "/v1/sql?limit=100000", "text/plain", "", []byte(
			`SELECT concat_ws(' ', trajectory_id, learner_version), concat_ws(' ', min(learner_logprob)::INTEGER, max(learner_logprob)::INTEGER, count(learner_logprob))
			FROM mismatch GROUP BY trajectory_id, learner_version`))
		if status == 200 {
			require.NoError(t, json.Unmarshal(body, &answer))
			break
		}
		require.True(t, time.Now().Before(until), "%d: %s", status, body)
	}
	out := map[string]string{}
	for _, row := range answer.Rows {
		out[row[0]] = row[1]
	}
	return out
}

// postsKilledOnce has learners post until the server is dead.
func postsKilledOnce(t *testing.T, dir string, posts []*posted, r *rand.Rand, d death) string {
	t.Helper()
	failpoint, reason := "", d.point
	if d.most > 0 {
		failpoint = fmt.Sprintf("%s=kill@%d", d.point, 1+r.IntN(d.most))
	}
	s, err := launch(dir, failpoint, busy...)
	if err != nil {
		require.True(t, s.killedBySignal() && failpoint != "", "start with %q: %v", failpoint, err)
		return reason + " (at start)"
	}
	t.Cleanup(s.kill)
	l := newLoader(nil, s.url)
	defer l.client.CloseIdleConnections()
	const learners = 3
	var wait sync.WaitGroup
	for i := range learners {
		r := rand.New(rand.NewPCG(r.Uint64(), uint64(i)))
		wait.Go(func() {
			for len(l.faults()) == 0 {
				p := posts[i+learners*r.IntN((len(posts)-i+learners-1)/learners)]
				if p.acked == p.sent && r.IntN(3) > 0 {
					p.sent++
				}
				if p.sent > 0 && !p.send(l) {
					return
				}
			}
		})
	}
	limit := 5 * time.Second
	if failpoint == "" {
		limit = time.Duration(10+r.IntN(400)) * time.Millisecond
	}
	select {
	case <-s.exited:
	case <-time.After(limit):
		if failpoint != "" {
			reason += " (not reached)"
		}
	}
	s.kill()
	wait.Wait()
	require.NoError(t, errors.Join(l.faults()...), "server said: %s", s.stderr)
	require.True(t, s.killedBySignal(), "the server ended by itself: %v\n%s", s.err, s.stderr)
	complaints(t, s)
	return reason
}
