package apptest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
)

const capturesDir = root + "/testdata/captures"

type expectedRow struct {
	Length    int     `json:"length"`
	TokenIDs  []int32 `json:"token_ids"`
	SHA256    string  `json:"sha256"`
	Spans     []span  `json:"spans"`
	Rewritten bool    `json:"history_rewritten"`
}

type expectedRollout struct {
	StrictTree []expectedRow `json:"strict_tree"`
	PerRequest int           `json:"per_request"`
	Polar      struct {
		EndOfTurn    int32             `json:"end_of_turn"`
		Trajectories []expectedRow     `json:"trajectories"`
		Dispositions map[string]string `json:"dispositions"`
	} `json:"polar_compat"`
	Dispositions  map[string]string `json:"dispositions"`
	Boundaries    []boundary        `json:"boundaries"`
	SampledTokens int               `json:"sampled_tokens"`
	TrainedTokens int               `json:"trained_tokens"`
}

// captured are the real rollouts of testdata/captures, read once.
var captured = sync.OnceValues(func() (*captures, error) {
	c := &captures{byID: map[string]call{}}
	raw, err := os.ReadFile(filepath.Join(capturesDir, "expected.json"))
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(raw, &c.expected); err != nil {
		return nil, err
	}
	for _, name := range []string{"plain", "thinking", "long"} {
		if err := c.read(filepath.Join(capturesDir, name+".ndjson.zst")); err != nil {
			return nil, err
		}
	}
	return c, nil
})

type captures struct {
	calls    []call
	byID     map[string]call
	expected map[string]expectedRollout
}

func (c *captures) read(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it was only read
	z, err := zstd.NewReader(f)
	if err != nil {
		return err
	}
	defer z.Close()
	lines := bufio.NewScanner(z)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		parsed, err := parseCall(lines.Bytes())
		if err != nil {
			return err
		}
		c.calls = append(c.calls, parsed)
		c.byID[parsed.text("trace_id")] = parsed
	}
	return lines.Err()
}

// parseCall reads a line into the types that call knows.
func parseCall(line []byte) (call, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil {
		return nil, err
	}
	out := call{}
	for name, raw := range fields {
		var err error
		switch {
		case name == "prompt_token_ids" || name == "response_token_ids":
			var v []int32
			err = json.Unmarshal(raw, &v)
			out[name] = v
		case name == "response_logprobs":
			var v logprobs
			err = json.Unmarshal(raw, &v)
			out[name] = v
		case raw[0] == '"':
			var v string
			err = json.Unmarshal(raw, &v)
			out[name] = v
		case raw[0] == 't' || raw[0] == 'f':
			out[name] = raw[0] == 't'
		case raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9':
			var v int64
			err = json.Unmarshal(raw, &v)
			out[name] = v
		case string(raw) != "null":
			out[name] = json.RawMessage(bytes.Clone(raw))
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// check compares everything that the server makes of the captures.
func (c *captures) check(s *server) {
	s.t.Helper()
	require.Len(s.t, c.expected, 34)
	for id, want := range c.expected {
		strict := s.merged(id, "")
		require.Equal(s.t, "strict_tree", strict.Policy)
		c.rows(s.t, want.StrictTree, strict.Trajectories)
		require.Equal(s.t, want.Dispositions, strict.Dispositions)
		require.Equal(s.t, want.Boundaries, strict.Boundaries)
		require.Equal(s.t, want.TrainedTokens, trainedTokens(strict.Trajectories))

		c.perRequest(s, id, &want)

		compat := s.merged(id, polar(want.Polar.EndOfTurn))
		require.Equal(s.t, want.Polar.EndOfTurn, *compat.EndOfTurn)
		c.rows(s.t, want.Polar.Trajectories, compat.Trajectories)
		require.Equal(s.t, want.Polar.Dispositions, compat.Dispositions)
		require.Equal(s.t, want.Boundaries, compat.Boundaries)
	}
}

// perRequest looks at the ids of short rollouts only: a row per call repeats the
// history as often as there are calls.
func (c *captures) perRequest(s *server, id string, want *expectedRollout) {
	s.t.Helper()
	if len(want.Dispositions) > 20 {
		var short struct {
			Trajectories []struct{ Spans []span }
			Dispositions map[string]string
		}
		s.get(path("rollouts", id, "trajectories") + "?policy=per_request").is(200).into(&short)
		require.Len(s.t, short.Trajectories, want.PerRequest)
		require.Equal(s.t, want.Dispositions, short.Dispositions)
		return
	}
	each := s.merged(id, "policy=per_request")
	require.Len(s.t, each.Trajectories, want.PerRequest)
	require.Equal(s.t, want.Dispositions, each.Dispositions)
	require.Equal(s.t, want.TrainedTokens, trainedTokens(each.Trajectories))
	for _, row := range each.Trajectories {
		require.Len(s.t, row.Spans, 1)
		equal(s.t, c.byID[row.Spans[0].TraceID].whole(), row.TokenIDs)
		aligned(s.t, &row, c.byID)
	}
}

func trainedTokens(rows []trajectory) (n int) {
	for _, r := range rows {
		for _, bit := range r.LossMask {
			n += int(bit)
		}
	}
	return n
}

func (c *captures) rows(t *testing.T, want []expectedRow, got []trajectory) {
	t.Helper()
	require.Len(t, got, len(want))
	seen := map[string]bool{}
	for i, w := range want {
		require.Len(t, got[i].TokenIDs, w.Length)
		require.Equal(t, w.SHA256, hash(got[i].TokenIDs))
		require.Equal(t, w.Spans, got[i].Spans)
		require.Equal(t, w.Rewritten, got[i].Rewritten)
		aligned(t, &got[i], c.byID)
		require.False(t, seen[got[i].TrajectoryID])
		seen[got[i].TrajectoryID] = true
	}
}

var imported = regexp.MustCompile(`imported: (\d+) traces stored, (\d+) duplicates, (\d+) refused, (\d+) attributes`)

// importCounts reads the last line of an import: stored, duplicates, refused,
// others.
func importCounts(t *testing.T, stdout string) []string {
	t.Helper()
	m := imported.FindStringSubmatch(stdout)
	require.NotNil(t, m, stdout)
	return m[1:]
}

func TestCapturesByImport(t *testing.T) {
	t.Parallel()
	c, err := captured()
	require.NoError(t, err)
	s := start(t)
	out, stderr, err := command(t, nil, "import", "--quiet", "--server", s.url, capturesDir)
	require.NoError(t, err, "%s%s", out, stderr)
	require.Equal(t, []string{"598", "0", "0", "102"}, importCounts(t, out))
	require.Contains(t, out, "skipped "+capturesDir+"/expected.json: it holds no traces")
	c.check(s)

	out, _, err = command(t, nil, "import", "--quiet", "--server", s.url, capturesDir)
	require.NoError(t, err)
	require.Equal(t, []string{"0", "598", "0", "102"}, importCounts(t, out))

	var list struct {
		Total    int
		Rollouts []struct {
			Status   string
			Complete bool
			Reopened bool
			Traces   int
		}
	}
	s.get("/v1/rollouts?limit=1000").is(200).into(&list)
	require.Equal(t, 34, list.Total)
	total := 0
	for _, r := range list.Rollouts {
		total += r.Traces
		require.True(t, r.Complete && !r.Reopened && r.Status != "")
	}
	require.Equal(t, 598, total)
}

// However the same calls are sent, the answers are the same.
func TestCapturesHoweverSent(t *testing.T) {
	t.Parallel()
	c, err := captured()
	require.NoError(t, err)
	for seed := range uint64(2) {
		t.Run(itoa(int(seed)), func(t *testing.T) {
			t.Parallel()
			s := start(t)
			rng := rand.New(rand.NewPCG(seed, 7))
			calls := append([]call(nil), c.calls...)
			rng.Shuffle(len(calls), func(i, j int) { calls[i], calls[j] = calls[j], calls[i] })
			before := map[string][]call{}
			prefixes, stored := 0, 0
			for at := 0; at < len(calls); {
				to := min(at+1+rng.IntN(60), len(calls))
				var batch []call
				for _, one := range calls[at:to] {
					sent, base := one, before[one.text("rollout_id")]
					if len(base) > 0 && rng.IntN(3) > 0 {
						sent = one.prefixed(base[rng.IntN(len(base))], rng.IntN(1<<15))
						prefixes++
					}
					batch = append(batch, sent)
					before[one.text("rollout_id")] = append(base, one)
				}
				a := sendSomehow(s, rng, batch)
				stored += strings.Count(string(a.body), `"status":"stored"`)
				a.all("stored", len(batch))
				at = to
			}
			require.Equal(t, 598, stored)
			require.Greater(t, prefixes, 200)
			c.check(s)
			// What was sent in parts is the same trace as what is sent whole.
			s.traces(c.calls[:100]...).is(200).all("duplicate", 100)
		})
	}
}

// sendSomehow draws format and coding.
func sendSomehow(s *server, rng *rand.Rand, calls []call) *answer {
	var body []byte
	media := typeJSON
	switch rng.IntN(4) {
	case 0:
		body = jsonArray(calls)
	case 1:
		body = append(append([]byte(`{"traces":`), jsonArray(calls)...), '}')
	case 2:
		body, media = ndjson(calls), typeNDJSON
	default:
		opts := [][]ipc.Option{nil, {ipc.WithZstd()}, {ipc.WithLZ4()}}[rng.IntN(3)]
		body, media = arrowOf(calls, 1+rng.IntN(20), opts...), typeArrow
	}
	headers := []string{"Content-Type", media}
	switch rng.IntN(3) {
	case 1:
		body, headers = gzipped(body), append(headers, "Content-Encoding", "gzip")
	case 2:
		body, headers = zstded(body), append(headers, "Content-Encoding", "zstd")
	}
	return s.send(http.MethodPost, "/v1/traces", body, headers...)
}
