package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// harness is a program that is run.
type harness struct {
	name string
	// module holds package.json, whose version is shown.
	module string
	// optional: what goes wrong is told and fails nothing.
	optional bool
	// delegates and compacts: it has sub-agents; its context can be made to overflow.
	// tells: it says which of its calls is for a compaction.
	delegates, compacts, tells bool
	// vendor is a model's name of its vendor, that the gateway is to map.
	vendor string
	// start writes the harness's configuration and gives its command line and what
	// its environment needs besides HOME and PATH.
	start func(*rollout) (args, env []string, err error)
}

// harnesses are begun in this order; Qwen Code takes longest.
var harnesses = []*harness{
	{name: "qwen-code", module: "@qwen-code/qwen-code", delegates: true, compacts: true, vendor: "qwen3-coder-plus", start: qwenCode},
	{name: "codex", module: "@openai/codex", delegates: true, compacts: true, tells: true, vendor: "gpt-5.5", start: codex},
	{name: "claude-code", module: "@anthropic-ai/claude-code", delegates: true, compacts: true, vendor: "claude-sonnet-4-5", start: claudeCode},
	{name: "pi", module: "@mariozechner/pi-coding-agent", compacts: true, vendor: "gpt-4o", start: pi},
	{name: "gemini-cli", module: "@google/gemini-cli", optional: true, vendor: "gemini-2.5-pro", start: geminiCLI},
}

// version reads the installed version.
func (h *harness) version(modules string) (string, error) {
	text, err := os.ReadFile(filepath.Join(modules, h.module, "package.json"))
	if err != nil {
		return "", fmt.Errorf("read version of %s (make e2e-harness installs it): %w", h.name, err)
	}
	var p struct {
		Version string `json:"version"`
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return "", fmt.Errorf("read version of %s: %w", h.name, err)
	}
	return p.Version, nil
}

func bin(r *rollout, name string) string { return filepath.Join(r.modules, ".bin", name) }

// codex speaks Responses. A provider called openai would not be configurable. What is
// switched off here would ask github.com and chatgpt.com.
func codex(r *rollout) (args, env []string, err error) {
	config := fmt.Sprintf("model = %q\nmodel_provider = \"icecore\"\ncheck_for_update_on_startup = false\n", r.model)
	if r.compactAt > 0 {
		config += fmt.Sprintf("model_context_window = 1000000\nmodel_auto_compact_token_limit = %d\n", r.compactAt)
	}
	config += fmt.Sprintf(`
[analytics]
enabled = false

[features]
plugins = false
apps = false

[model_providers.icecore]
name = "icecore"
base_url = "%s/v1"
env_key = "HARNESS_KEY"
wire_api = "responses"
`, r.base)
	if err := r.write(".codex/config.toml", config); err != nil {
		return nil, nil, err
	}
	return []string{bin(r, "codex"), "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", prompt},
		[]string{"HARNESS_KEY=none"}, nil
}

// claudeCode speaks Messages. Its package is a launcher that an install script
// replaces by the program; the program itself is an optional dependency, and is run
// from there, so that no install script is needed.
func claudeCode(r *rollout) (args, env []string, err error) {
	arch := map[string]string{"amd64": "x64"}[runtime.GOARCH]
	if arch == "" {
		arch = runtime.GOARCH
	}
	program := filepath.Join(r.modules, "@anthropic-ai", "claude-code-"+runtime.GOOS+"-"+arch, "claude")
	env = []string{
		"ANTHROPIC_BASE_URL=" + r.base, "ANTHROPIC_API_KEY=none", "ANTHROPIC_MODEL=" + r.model,
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1", "DISABLE_TELEMETRY=1", "DISABLE_ERROR_REPORTING=1",
		"IS_SANDBOX=1", // root may then skip permissions
	}
	if r.compactAt > 0 {
		// It compacts at the window less 20,000 for the summary and 13,000 of margin; a
		// window below 100,000 is taken as 100,000.
		env = append(env, fmt.Sprintf("CLAUDE_CODE_AUTO_COMPACT_WINDOW=%d", max(r.compactAt+33_000, 100_000)))
	}
	return []string{program, "--dangerously-skip-permissions", "-p", prompt}, env, nil
}

// qwenCode speaks Chat Completions. Its usage statistics would go out, through a proxy
// that the environment names even for loopback.
func qwenCode(r *rollout) (args, env []string, err error) {
	model := map[string]any{}
	if r.compactAt > 0 {
		model["chatCompression"] = map[string]any{"contextPercentageThreshold": 0.5}
		model["generationConfig"] = map[string]any{"contextWindowSize": 2 * r.compactAt}
	}
	err = r.writeJSON(".qwen/settings.json", map[string]any{
		"model": model, "general": map[string]any{"enableAutoUpdate": false}, "privacy": map[string]any{"usageStatisticsEnabled": false},
		"telemetry": map[string]any{"enabled": false},
		// It would begin a call behind the answer, and leave amid it.
		"memory": map[string]any{"enableManagedAutoMemory": false},
	})
	return []string{bin(r, "qwen"), "-y", "-p", prompt},
		[]string{"OPENAI_BASE_URL=" + r.base + "/v1", "OPENAI_API_KEY=none", "OPENAI_MODEL=" + r.model}, err
}

// pi speaks Chat Completions, and tells nobody its name unless a header does. It compacts
// between two prompts, so it gets a second one.
func pi(r *rollout) (args, env []string, err error) {
	const reserve = 4096
	window := 400_000
	args = []string{bin(r, "pi"), "--provider", "icecore", "--model", r.model, "-p", prompt}
	if r.compactAt > 0 {
		window = int(r.compactAt) + reserve
		args = append(args, secondWords)
	}
	err = r.writeJSON("pi/models.json", map[string]any{"providers": map[string]any{"icecore": map[string]any{
		"baseUrl": r.base + "/v1", "api": "openai-completions", "apiKey": "none",
		"headers": map[string]any{"Icecore-Harness": "pi"},
		"models": []any{map[string]any{
			"id": r.model, "name": r.model, "reasoning": r.variant.think, "contextWindow": window, "maxTokens": reserve,
			"input": []string{"text"}, "cost": map[string]any{"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
		}},
	}}})
	if err == nil {
		err = r.writeJSON("pi/settings.json", map[string]any{
			"compaction": map[string]any{"enabled": r.compactAt > 0, "reserveTokens": reserve, "keepRecentTokens": 200},
		})
	}
	return args, []string{"PI_CODING_AGENT_DIR=" + filepath.Join(r.home, "pi"), "PI_OFFLINE=1", "PI_TELEMETRY=0"}, err
}

// geminiCLI speaks generateContent.
func geminiCLI(r *rollout) (args, env []string, err error) {
	err = r.writeJSON(".gemini/settings.json", map[string]any{
		// The variable alone selects an auth type that it then refuses.
		"security":  map[string]any{"auth": map[string]any{"selectedType": "gemini-api-key"}},
		"general":   map[string]any{"enableAutoUpdate": false, "disableAutoUpdate": true},
		"privacy":   map[string]any{"usageStatisticsEnabled": false},
		"telemetry": map[string]any{"enabled": false},
	})
	return []string{bin(r, "gemini"), "-m", r.model, "--yolo", "--skip-trust", "-p", prompt},
		[]string{"GOOGLE_GEMINI_BASE_URL=" + r.base, "GEMINI_API_KEY=none"}, err
}
