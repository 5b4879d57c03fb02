package apptest

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// say plays a rollout of one call with these log-probs, and has version 9 of the
// learner say others of its response.
func (s *server) say(id string, more []any, b, l logprobs) {
	s.t.Helper()
	response := make([]int32, len(b))
	for i := range response {
		response[i] = int32(100 + i)
	}
	c := plain(id, id+"/1", 1, ids(1, 2), response).with("response_logprobs", b, "policy_version", int64(4))
	s.traces(c.with(more...)).all("stored", 1)
	row := s.merged(id, "").Trajectories[0]
	s.learn(learned{row.TrajectoryID, 9, append(lps(math.NaN(), -1), l...)}).all("stored", 1)
}

// Numbers that can be worked out by hand: d = ln 2, -ln 2, 0, with p of ½, ½ and 1.
func TestMismatchByHand(t *testing.T) {
	t.Parallel()
	s := start(t)
	ln2 := math.Ln2
	s.say("a", []any{"harness", "h"}, lps(-2*ln2, -ln2, -1), lps(-ln2, -2*ln2, -1))
	a := s.mismatch("")
	float := 1e-7 // log-probs are float32
	var total struct {
		K1, K2, K3 float64
		Abs        struct{ Mean, Max float64 }
		Chi2       struct{ Token, Sequence float64 }
		Mult       float64                           `json:"multiplicative_error"`
		Effective  struct{ Token, Sequence float64 } `json:"effective_sample_size"`
		Gap        struct {
			Mean float64 `json:"gap_mean"`
		} `json:"probability"`
		Perplexity struct{ Ratio float64 }
		Staleness  struct{ Mean, Max float64 }
	}
	require.NoError(t, json.Unmarshal(a.Total, &total))
	for what, v := range map[string][2]float64{
		"k1": {0, total.K1}, "k2": {ln2 * ln2 / 3, total.K2}, "k3": {(2 - ln2 - 1 + 0.5 + ln2 - 1) / 3, total.K3}, "abs": {2 * ln2 / 3, total.Abs.Mean},
		"max": {ln2, total.Abs.Max}, "chi2 token": {(4+0.25+1)/3. - 1, total.Chi2.Token}, "chi2 sequence": {0, total.Chi2.Sequence},
		"multiplicative": {5. / 3, total.Mult}, "effective": {3.5 * 3.5 / 3 / 5.25, total.Effective.Token}, "gap": {0.5 / 3, total.Gap.Mean},
		"effective sequences": {1, total.Effective.Sequence}, "perplexity": {1, total.Perplexity.Ratio}, "stale": {5, total.Staleness.Mean}, "stalest": {5, total.Staleness.Max},
	} {
		require.InDelta(t, v[0], v[1], float, what)
	}
	require.Empty(t, a.Warnings)
	holds(t, `{"outside": {"tis": 0, "icepop": 0, "sequence": 0}}`, s.mismatch("tis_high=2.00001&icepop_low=0.49999&sequence_high=1.00001").Total)
	holds(t, `{"outside": {"tis": 0.3333333333333333, "icepop": 0.6666666666666666}}`, s.mismatch("tis_high=1.9&icepop_low=0.6&icepop_high=1.9").Total)
	holds(t, `{"outside": {"tis": 0.6666666666666666, "icepop": 1, "sequence": 1}}`, s.mismatch("tis_low=0.6&tis_high=1.9&icepop_low=0&icepop_high=0&sequence_high=0.9").Total)
}

// Whatever is said, the numbers are finite or not there.
func TestMismatchOfOddNumbers(t *testing.T) {
	t.Parallel()
	s := start(t)
	inf, nan := math.Inf(-1), math.NaN()
	count := 0
	say := func(b, l logprobs) object {
		count++
		id := "r" + itoa(count)
		s.say(id, []any{"harness", id}, b, l)
		a := s.mismatch("harness=" + id)
		var total object
		require.NoError(t, json.Unmarshal(a.Total, &total))
		return total
	}
	nothing := `{"k1": null, "k2": null, "k3": null, "abs": {"mean": null, "max": null}, "probability": {"gap_mean": null, "gap_max": null, "pearson": null},
		"multiplicative_error": null, "perplexity": {"log_difference": null, "ratio": null}, "chi2": {"token": null, "sequence": null},
		"effective_sample_size": {"token": null, "sequence": null}, "outside": {"tis": null, "icepop": null, "sequence": null}}`
	holds(t, nothing, say(lps(inf, -1), lps(-1, inf)))
	holds(t, `{"tokens": {"trained": 2, "compared": 0, "not_finite": 2, "missing": 0}}`, say(lps(inf, inf), lps(inf, -1)))
	holds(t, nothing, say(append(lps(nan), nil), lps(-1, -1)))
	holds(t, `{"tokens": {"trained": 3, "compared": 0, "missing": 3, "without_behaviour": 2, "without_learner": 2, "missing_share": 1}}`,
		say(append(lps(nan), nil, ptr[float32](-1)), append(lps(-1), nil, nil)))
	// Row 23 of learners.md: a trained token of p = e^-100; and beyond any bound.
	holds(t, `{"k1": -99, "abs": {"mean": 99, "max": 99}, "k3": 485165095.4097903, "chi2": {"token": 235385266837019970, "sequence": 235385266837019970}}`,
		say(lps(-100), lps(-1)))
	holds(t, `{"k1": 99, "k3": 98.00000000206115, "outside": {"tis": 0, "icepop": 1, "sequence": 0}}`, say(lps(-1), lps(-100)))
	holds(t, `{"tokens": {"compared": 2}, "effective_sample_size": {"sequence": 1}}`, say(lps(-3e38, 3e38), lps(3e38, -3e38)))
	// One value everywhere has no correlation.
	holds(t, `{"probability": {"pearson": null}, "k3": 0, "effective_sample_size": {"token": 1, "sequence": 1}}`, say(lps(-0.5, -0.5, -0.5), lps(-0.5, -0.5, -0.5)))
	holds(t, `{"probability": {"pearson": 1}, "k3": 0}`, say(lps(-0.5, -0.25), lps(-0.5, -0.25)))

	// A version that no sum of whole numbers holds.
	s.learn(learned{s.merged("r"+itoa(count), "").Trajectories[0].TrajectoryID, math.MaxInt64, lps(math.NaN(), -1, -0.5, -0.25)}).all("stored", 1)
	holds(t, `{"staleness": {"max": 9223372036854775803}}`, func() (total object) {
		require.NoError(t, json.Unmarshal(s.mismatch("by=learner_version,decile").Total, &total))
		return total
	}())

	worst := s.mismatch("worst=3").Worst.Tokens
	require.Len(t, worst, 3)
	require.Equal(t, []any{"Infinity", "-Infinity", json.Number("-1")}, []any{worst[0].LogRatio, worst[0].Behaviour, worst[0].Learner}, "what cannot be comes first")
	require.Len(t, s.mismatch("").Warnings, 2)
	s.healthy()
}

// Row 24 of learners.md: what cannot agree is flagged.
func TestMismatchComparable(t *testing.T) {
	t.Parallel()
	s := start(t)
	for name, sampling := range map[string]string{
		"yes-plain": `{}`, "yes-one": `{"temperature":1}`, "yes-processed": `{"temperature":0.6,"logprobs_mode":"processed_logprobs"}`,
		"yes-raw-filtered": `{"temperature":1.0,"top_p":0.9,"top_k":20,"logprobs_mode":"raw"}`, "yes-odd": `{"temperature":"hot","top_p":[]}`,
		"yes-off": `{"temperature":0.6,"top_p":1,"top_k":-1,"logprobs_mode":"processed"}`, "no-raw": `{"temperature":0.6,"logprobs_mode":"raw"}`,
		"no-unknown": `{"temperature":0.6}`, "no-zero": `{"temperature":0}`, "no-top-p": `{"top_p":0.95,"logprobs_mode":"processed"}`,
		"no-top-k": `{"top_k":20,"logprobs_mode":"processed_logprobs"}`,
	} {
		s.say(name, []any{"harness", name, "sampling", json.RawMessage(sampling)}, lps(-1, -2), lps(-1, -2))
		a := s.mismatch("harness=" + name)
		share, warnings := 1, 0
		if name[:2] == "no" {
			share, warnings = 0, 1
		}
		holds(t, `{"tokens": {"comparable_share": `+itoa(share)+`}}`, a.Total)
		require.Len(t, a.Warnings, warnings, name)
	}
	require.Len(t, s.rowsOf("SELECT DISTINCT trace_id FROM mismatch WHERE NOT comparable"), 5)
}

func TestMismatchAsked(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.say("a", []any{"harness", "h1", "model", "m", "task_id", "t1", "group_id", "g"}, lps(-1, -2), lps(-1, -2))
	s.say("b", []any{"harness", "h2", "kind", "auxiliary", "policy_version", int64(6)}, lps(-1, -2, -3), lps(-1, -2, -3))
	s.put("/v1/rollouts/b", object{"split": "eval"}).is(200)
	row := s.merged("b", polar(102)).Trajectories[0]
	require.Equal(t, "unknown_trajectory", s.learn(learned{row.TrajectoryID, 12, sameLogprob(5, -1)}).is(422).one(), "nobody has published that policy's rows")
	s.export(polar(102))
	s.learn(learned{row.TrajectoryID, 12, sameLogprob(5, -1)}).all("stored", 1)
	trained := func(query string) (n float64) {
		var total struct{ Tokens struct{ Trained float64 } }
		require.NoError(t, json.Unmarshal(s.mismatch(query).Total, &total))
		return total.Tokens.Trained
	}
	for query, want := range map[string]float64{
		"": 8, "harness=h1": 2, "harness=h1&harness=h2": 8, "harness=x": 0, "model=m": 2, "task_id=t1": 2, "group_id=g": 2, "split=eval": 6,
		"policy=strict_tree": 5, polar(102): 3, "policy=polar_compat": 0, "policy=per_request": 0,
		"policy_version_min=5": 6, "policy_version_max=5": 2, "learner_version_min=10": 3, "learner_version_max=10": 5, "learner_version_min=9&learner_version_max=9": 5,
		"since=2020-01-01T00:00:00Z": 8, "until=2020-01-01T00:00:00Z": 0,
	} {
		require.Equal(t, want, trained(query), query)
	}
	a := s.mismatch("by=kind,merge_policy&limit=2")
	require.Equal(t, 3, a.RowCount)
	require.True(t, a.Truncated)
	holds(t, `{"keys": {"kind": "agent", "merge_policy": "strict_tree"}, "tokens": {"trained": 2}}`, a.Rows[0])
	for query, field := range map[string]string{"by=x": "by", "by=harness,bucket": "by", "tis_low=3": "tis_high", "tis_high=NaN": "tis_high", "icepop_low=-1": "icepop_low",
		"icepop_high=0.1": "icepop_high", "sequence_high=Inf": "sequence_high", "worst=-1": "worst", "worst=1001": "worst", "limit=0": "limit", "solved_at=1": "solved_at",
		"policy=x": "policy", "end_of_turn=7": "end_of_turn", "learner_version_min=x": "learner_version_min", "since=now": "since", "split=x": "split", "x=1": "x"} {
		p := s.get("/v1/analytics/mismatch?"+query).problem(400, "invalid_parameter")
		require.Equal(t, field, p.Field, query)
	}
	// The page's statements are for everybody.
	page, err := os.ReadFile(filepath.Join(root, "docs", "mismatch.md"))
	require.NoError(t, err)
	shown := regexp.MustCompile("(?s)```sql\n-- .*?```").FindAllString(string(page), -1)
	require.Len(t, shown, 3)
	filters := make([]any, 12)
	worst := slices.Concat(filters, []any{10})
	for i, params := range [][]any{slices.Concat([]any{`["harness"]`}, filters, []any{0, 2, 0.5, 5, 3, 10}), worst, worst} {
		rows := s.analyse(strings.TrimSuffix(strings.TrimPrefix(shown[i], "```sql\n"), "```"), params...)
		require.Len(t, rows, []int{3, 3, 8}[i])
	}
}

func TestReportMismatch(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.say("a", []any{"harness", "h1"}, lps(-1, -2), lps(-1, -2))
	s.say("b", []any{"harness", "h2"}, lps(-1, -2), lps(-0.5, -1))
	out, log, err := command(t, nil, "report", "--mismatch", "--server", s.url)
	require.NoError(t, err, log)
	require.Contains(t, out, strings.Join([]string{
		"Learner against sampler, over the trained tokens that learners posted log-probs of:",
		"",
		"harness  posts  tokens        k1       k3     |d|  max |d|  clipped %  eff. %  stale",
		"h1           1       2   0.00000  0.00000  0.0000     0.00       0.00   100.0    5.0",
		"h2           1       2  -0.75000  0.43350  0.7500     1.00      50.00    94.3    5.0",
		"all          2       4  -0.37500  0.21675  0.3750     1.00      25.00    83.7    5.0",
		""}, "\n"))
	_, log, err = command(t, nil, "report", "--mismatch", "--by=bucket", "--server", s.url)
	require.Error(t, err)
	require.Contains(t, log, "--mismatch")
}
