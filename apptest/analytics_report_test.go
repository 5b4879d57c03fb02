package apptest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The numbers are those of TestSummaryByHand.
func TestReport(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.playSmall()
	s.play(attributed("odd", "x|\ny", "t1", 6, nil))
	report := func(args ...string) string {
		out, log, err := command(t, nil, append([]string{"report", "--server", s.url}, args...)...)
		require.NoError(t, err, log)
		return out
	}
	require.Equal(t, strings.Join([]string{
		"harness  rollouts  open  not ok   solve rate %              reward  pass@1 %  pass@2 %  zero-adv.  calls  rows/rollout  sampled  trained  stale  p95 s",
		"alpha           6     1       3     20 [4, 62]  0.32 [-0.19, 0.83]        17        33        1/2      7           1.0        8        7    1.0    1.9",
		"beta            2     0       1  100 [21, 100]                1.00       100         –        0/0      3           1.5        4        4    1.0      –",
		"x| y            1     1       0              –                   –         –         –        0/0      1           1.0        2        2    0.0      –",
		"all             9     2       4    33 [10, 70]  0.43 [-0.05, 0.92]        44    33 (2)        1/2     11           1.2       14       13    0.9    1.9",
		"",
		"stale counts from policy version 6",
		"",
	}, "\n"), report("--k=1,2"))
	require.Equal(t, strings.Join([]string{
		`| harness | split | rollouts | open | not ok | solve rate % | reward | zero-adv. | calls | rows/rollout | sampled | trained | stale | p95 s |`,
		`| ------- | ----- | -------: | ---: | -----: | -----------: | -----: | --------: | ----: | -----------: | ------: | ------: | ----: | ----: |`,
		`| x\| y   | –     |        1 |    1 |      0 |            – |      – |       0/0 |     1 |          1.0 |       2 |       2 |   0.0 |     – |`,
		`| all     |       |        1 |    1 |      0 |            – |      – |       0/0 |     1 |          1.0 |       2 |       2 |   0.0 |     – |`,
		"",
		"stale counts from policy version 6",
		"",
	}, "\n"), report("--markdown", "--by=harness,split", "--harness=x|\ny"))
	// Versions cannot be compared by version; the keys that can be are kept.
	require.Regexp(t, `(?m)^harness +tasks .*\nalpha +0 `, report("--by=harness,policy_version", "--base=5", "--against=6"))

	// A name that nobody has is pointed out, beside others or alone.
	for want, args := range map[string][]string{
		"no rollout matches --harness alpah; the harnesses are alpha, beta, x|\\ny": {"report", "--harness=alpah"},
		"no rollout matches --harness alpha2;":                                      {"report", "--harness=alpha", "--harness=alpha2"},
		"no rollout matches --harness beta --model none":                            {"report", "--harness=beta", "--model=none"},
		"no rollout matches --harness codx; ":                                       {"export", "--out=-", "--harness=codx"},
		"no trajectory matches --task none":                                         {"export", "--out=-", "--task=none"},
	} {
		_, log, err := command(t, nil, append(args, "--server", s.url)...)
		require.NoError(t, err)
		require.Contains(t, log, want)
	}
	_, log, err := command(t, nil, "report", "--harness=alpha", "--server", s.url)
	require.NoError(t, err)
	require.Empty(t, log)

	for want, args := range map[string][]string{
		"--base and --against go together": {"--base=1"},
		"invalid_parameter: by:":           {"--by=colour"},
		"versions are compared by harness": {"--by=task_id", "--base=1", "--against=2"},
		"invalid_parameter: against:":      {"--base=1", "--against=1-2"},
	} {
		_, log, err := command(t, nil, append([]string{"report", "--server", s.url}, args...)...)
		require.Error(t, err)
		require.Contains(t, log, want)
	}
	_, log, err = command(t, nil, "report", "--server", "http://127.0.0.1:1", "--retry-for=0s")
	require.Error(t, err)
	require.Contains(t, log, "no server listens at http://127.0.0.1:1")
}
