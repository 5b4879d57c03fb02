package apptest

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/enginetest"
)

// sdkModels are the models that the tests in sdk/ name.
func sdkModels() scripts {
	broken := func(f enginetest.Fault) enginetest.Script {
		return enginetest.Script{Turns: says("at last").Turns, Faults: []enginetest.Fault{f}}
	}
	plain := says("A plain answer.")
	cut, endless := says("A plain answer."), says("A plain answer.")
	cut.Faults = []enginetest.Fault{{Kind: "cut_broken", At: 5}}
	endless.Time.NeverEnds = true
	all := scripts{"policy": thinker, "plain": plain, "json": says(`{"sum": 4}`), "cut": cut, "endless": endless,
		"refuses": broken(enginetest.Fault{Kind: "status", Status: 400, Message: "that is too much at once"}),
		"busy":    broken(enginetest.Fault{Kind: "status", Status: 429, RetryAfter: "1"}),
		"broken":  broken(enginetest.Fault{Kind: "status", Status: 500}),
	}
	for _, digit := range "0123456789abcdef" {
		all["flaky-"+string(digit)] = broken(enginetest.Fault{Kind: "status", Status: 503, First: 1})
	}
	return all
}

// TestSDKs: the official Python SDKs of the three vendors, against the real server. Each
// test in sdk/ has a rollout of its own and holds its traces against the engine's ledger.
func TestSDKs(t *testing.T) {
	t.Parallel()
	require.NotEmpty(t, python(), noPython)
	models := sdkModels()
	var file strings.Builder
	file.WriteString("engines: [{url: ENGINE/vllm}]\nmodels:\n")
	for name := range models {
		file.WriteString("  " + name + ": {}\n")
	}
	r := newRig(t, file.String(), models)
	r.faulty = true // engines that break are part of it
	for _, program := range []string{"test_openai.py", "test_anthropic.py", "test_genai.py"} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), python(), "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short", program)
			cmd.Dir = "sdk"
			for _, v := range cleanEnv() {
				name, _, _ := strings.Cut(v, "=")
				if low := strings.ToLower(name); !strings.HasSuffix(low, "_proxy") && !strings.HasPrefix(low, "openai_") && !strings.HasPrefix(low, "anthropic_") &&
					!strings.HasPrefix(low, "google_") && !strings.HasPrefix(low, "gemini_") {
					cmd.Env = append(cmd.Env, v)
				}
			}
			cmd.Env = append(cmd.Env, "PYTHONDONTWRITEBYTECODE=1", "ICECORE_TEST_SERVER="+r.url, "ICECORE_TEST_ENGINE="+r.at)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%.12000s", out)
			require.Regexp(t, `[0-9]+ passed`, string(out))
			require.NotContains(t, string(out), "skipped")
		})
	}
}
