package settings

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"icecore/ingest/gateway/continuity/template"
	"icecore/ingest/gateway/turn"
)

// whole uses every setting there is.
const whole = `
engines:
  - url: http://127.0.0.1:8000
    kind: vllm
    name: gpu-0
    key_env: ENGINE_KEY
    models: [policy]
    max_concurrent: 32
    version_header: X-Weights
  - url: https://inference.example/v1
    key_file: second.key
models:
  policy:
    aliases: ["gpt-*", "claude-*"]
    continuity: exact_text
    max_tokens: 8192
    default_max_tokens: 1024
    sampling: {temperature: 1.0, seed: 9007199254740993, stop: ["a", "b"]}
    params: {chat_template_kwargs: {enable_thinking: true, "of": null}, day: 2026-01-02, top: .5}
    effort: {low: {thinking_budget: 64}, high: {}}
    reasoning_field: reasoning
    reasoning_parser: think
    tool_parser: hermes
    chat_template: chat.jinja
    chat_template_tools: filled
    chat_template_params: {bos_token: "<s>"}
    logprobs_mode: raw_logprobs
    system: fold
    developer: developer
    strip_billing_line: true
    length_as_completed: true
  judge:
default_model: judge
callers: key
finished: refuse
bodies: none
limits: {max_request: 1.5MiB, max_answer: 2GB, max_open: 7, max_open_per_rollout: 3, max_held: 1GiB, begin_timeout: 7s, held_tokens: 1000, engine_connect: 1s,
  first_byte: 2s, silence: 3s, call: 1h, heartbeat: 4s, patience: 0s, capture_wait: 0, health_every: 500ms, health_timeout: 6s}
retries: {marked: run}
`

func source() Source {
	return Source{
		Getenv: func(name string) (string, bool) {
			v, ok := map[string]string{"ENGINE_KEY": "secret-1", "EMPTY": " ", "ODD": "secret\n2 ä"}[name]
			return v, ok
		},
		ReadFile: func(path string) ([]byte, error) {
			if text, ok := map[string]string{"/etc/icecore/second.key": "secret-2\n", "/etc/icecore/chat.jinja": "{{ bos_token }}",
				"/etc/icecore/broken.jinja": "{% if %}"}[path]; ok {
				return []byte(text), nil
			}
			return nil, os.ErrNotExist
		},
	}
}

func read(text string) (*Settings, error) { return parse([]byte(text), nil, source(), "/etc/icecore") }

func TestWhole(t *testing.T) {
	t.Parallel()
	s, err := read(whole)
	require.NoError(t, err)
	text, err := s.Models[0].ChatTemplate.Render(&turn.Request{}, template.Options{Params: s.Models[0].ChatTemplateParams})
	require.NoError(t, err)
	require.Equal(t, "<s>", text)
	s.Models[0].ChatTemplate = nil // functions are never equal
	require.Equal(t, &Settings{
		Engines: []Engine{
			{URL: "http://127.0.0.1:8000", Kind: "vllm", Name: "gpu-0", Key: "secret-1", Models: []string{"policy"}, MaxConcurrent: 32, VersionHeader: "X-Weights"},
			{URL: "https://inference.example/v1", Key: "secret-2"},
		},
		Models: []*Model{
			{Name: "policy", Aliases: []string{"gpt-*", "claude-*"}, Continuity: ContinuityExactText, MaxTokens: 8192, DefaultMaxTokens: 1024,
				Sampling: raw(`temperature`, `1.0`, `seed`, `9007199254740993`, `stop`, `["a","b"]`),
				Params:   raw(`chat_template_kwargs`, `{"enable_thinking":true,"of":null}`, `day`, `"2026-01-02"`, `top`, `0.5`),
				Effort:   map[string]Members{"low": raw(`thinking_budget`, `64`), "high": {}}, ReasoningField: turn.ReasoningPlain,
				ReasoningParser: "think", ToolParser: "hermes",
				ChatTemplateTools: template.Filled, ChatTemplateParams: raw(`bos_token`, `"\u003cs\u003e"`), LogprobsMode: "raw_logprobs", System: SystemFold,
				Developer: turn.RoleDeveloper, StripBillingLine: true, LengthAsCompleted: true},
			DefaultModel("judge"),
		},
		DefaultModel: "judge", Callers: CallersKey, Finished: FinishedRefuse, Bodies: BodiesNone,
		Limits: Limits{MaxRequest: 3 << 19, MaxAnswer: 2e9, MaxOpen: 7, MaxOpenPerRollout: 3, MaxHeld: 1 << 30, BeginTimeout: 7 * time.Second, HeldTokens: 1000,
			EngineConnect: time.Second, FirstByte: 2 * time.Second, Silence: 3 * time.Second, Call: time.Hour, Heartbeat: 4 * time.Second,
			HealthEvery: 500 * time.Millisecond, HealthTimeout: 6 * time.Second},
		Retries: Retries{Marked: MarkedRun},
	}, s)
}

func raw(pairs ...string) Members {
	out := Members{}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = json.RawMessage(pairs[i+1])
	}
	return out
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	s, err := read("engines: [{url: 'http://gpu:8000'}]")
	require.NoError(t, err)
	want := Default()
	want.Engines = []Engine{{URL: "http://gpu:8000"}}
	require.Equal(t, want, s)
	s, err = read(`{"engines": [{"url": "http://gpu:8000"}], "models": null}`)
	require.NoError(t, err, "JSON is YAML")
	require.Equal(t, want, s)
}

// TestDocumented: docs/gateway.md lists exactly the keys that are read, with their
// defaults.
func TestDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "gateway.md"))
	require.NoError(t, err)
	_, table, there := strings.Cut(string(page), "## The settings file")
	require.True(t, there)
	var listed []string
	values := map[string][]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([\\w.]+(?:\\[\\])?[\\w.]*)` \\| (`?)([^|`]+)`? \\|").FindAllStringSubmatch(table, -1) {
		under, name := "", m[1]
		if at := strings.LastIndexByte(name, '.'); at > 0 {
			under, name = name[:at], name[at+1:]
		}
		if name == "NAME" {
			continue
		}
		listed = append(listed, name)
		if m[2] != "" { // a value, and not words about one
			values[under] = append(values[under], name+": "+m[3])
		}
	}
	inCode := slices.DeleteFunc(namesOf(t, "engines.go", "file.go", "models.go"), func(name string) bool {
		// The first three are refused, the others have members that are listed.
		return slices.Contains([]string{"key", "api_key", "token", "engines", "models", "limits", "retries"}, name)
	})
	// An engine and a file both have models; only the engine's stand here as a key.
	inCode = append(inCode, "models", "marked")
	slices.Sort(inCode)
	slices.Sort(listed)
	require.Equal(t, slices.Compact(inCode), listed)
	in := func(under string) string { return "{" + strings.Join(values[under], ", ") + "}" }
	s, err := read("engines: [{url: 'http://gpu', " + strings.Join(values["engines[]"], ", ") + "}]\nmodels: {policy: " + in("models.NAME") +
		"}\nretries: " + in("retries") + "\nlimits: " + in("limits") + "\n" + strings.Join(values[""], "\n"))
	require.NoError(t, err)
	want := Default()
	want.Engines = []Engine{{URL: "http://gpu"}}
	want.Models = []*Model{DefaultModel("policy")}
	// What is given as empty is not absent, and no different.
	got := *s.Models[0]
	require.Empty(t, got.Aliases)
	require.Empty(t, got.Sampling)
	require.Empty(t, got.Params)
	require.Empty(t, got.Effort)
	require.Empty(t, got.ChatTemplateParams)
	got.Aliases, got.Sampling, got.Params, got.Effort, got.ChatTemplateParams = nil, nil, nil, nil, nil
	s.Models[0] = &got
	require.Equal(t, want, s)
	require.Len(t, values["limits"], reflect.TypeFor[Limits]().NumField())
}

// namesOf finds the members that the reader knows.
func namesOf(t *testing.T, files ...string) (out []string) {
	t.Helper()
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`(?m)"([a-z_]+)": +(?:func\(n|word|literal)`).FindAllStringSubmatch(string(text), -1) {
			out = append(out, m[1])
		}
	}
	require.Greater(t, len(out), 30)
	return out
}

// TestFaults: each names the line, and the place.
func TestFaults(t *testing.T) {
	t.Parallel()
	engine := "engines: [{url: 'http://gpu:8000'}]\n"
	for _, c := range []struct{ text, fault string }{
		{"", "engines: is empty"},
		{"[]", "line 1: the file: is not an object"},
		{"engines: {", "did not find expected node content"},
		{engine + "---\n{}", "a second document begins"},
		{engine + "engine: 1", "line 2: engine: is not known here; there are bodies, callers, default_model, engines, finished, limits, models, retries"},
		{engine + "callers: any\ncallers: key", "line 3: callers: is there already at line 2"},
		{engine + "callers: [any]", "line 2: callers: is not one of any, declared, key"},
		{engine + "callers: some", `line 2: callers: "some" is none of any, declared, key`},
		{engine + "callers:", "line 2: callers: is not one of any, declared, key"},
		{engine + "default_model: 7", "line 2: default_model: is not a text (numbers and the like need quotes)"},
		{engine + "models: {a: {}}\ndefault_model: b", `line 3: default_model: "b" is none of models`},
		{engine + "models: [a]", "line 2: models: is not an object"},
		{engine + "models:\n  a: {aliases: ['x*']}\n  b: {aliases: ['x*']}", `line 4: models.b.aliases[0]: "x*" is there already at line 3`},
		{engine + "models:\n  a: {aliases: [b]}\n  b: {}", `line 3: models.a.aliases[0]: "b" is a model of its own`},
		{engine + "models:\n  a: {aliases: ['']}", `line 3: models.a.aliases[0]: is empty`},
		{engine + "models: {a: {}, a: {}}", "line 2: models.a: is there already at line 2"},
		{engine + "models: {'': {}}", "is the empty name"},
		{engine + "models: {a: {continuity: on}}", `"on" is none of off, exact_text`},
		{engine + "models: {a: {max_tokens: many}}", "models.a.max_tokens: is not a whole number"},
		{engine + "models: {a: {max_tokens: -1}}", "models.a.max_tokens: -1 is less than 0"},
		{engine + "models: {a: {max_tokens: 99999999999999999999}}", "models.a.max_tokens: is not a whole number"},
		{engine + "models: {a: {max_tokens: 9999999999}}", "models.a.max_tokens: 9999999999 is too large"},
		{engine + "models: {a: {max_tokens: 5, default_max_tokens: 6}}", "models.a.default_max_tokens: is more than max_tokens"},
		{engine + "models: {a: {strip_billing_line: 1}}", "is not true or false"},
		{engine + "models: {a: {params: {stream: true}}}", "models.a.params.stream: is set by the gateway itself"},
		{engine + "models: {a: {effort: {low: {n: 3}}}}", "models.a.effort.low.n: is set by the gateway itself"},
		{engine + "models: {a: {sampling: {max_tokens: 5}}}", "is said by the model's max_tokens"},
		{engine + "models: {a: {sampling: {temperature: .inf}}}", "models.a.sampling.temperature: .inf has no form in JSON"},
		{engine + "models: {a: {params: {x: {y: 1, y: 2}}}}", "models.a.params.x.y: is there already"},
		{engine + "models: {a: {params: {x: !!binary aGk=}}}", "is of type !!binary"},
		{engine + "models: {a: &a {}, b: *a}", "models.b: refers to an anchor"},
		{engine + "models: {a: &a {params: {x: [*a]}}}", "anchor"},
		{engine + "limits: {max_request: 64}", `limits.max_request: "64" is not a size such as 64MiB, above 0`},
		{engine + "limits: {max_request: 0B}", "above 0"},
		{engine + "limits: {max_open: 0}", "limits.max_open: 0 is less than 1"},
		{engine + "limits: {heartbeat: 0s}", "limits.heartbeat: must be above 0"},
		{engine + "limits: {call: 10}", `limits.call: "10" is not a time such as 15s or 5m`},
		{engine + "limits: {call: -1s}", `"-1s" is not a time`},
		{engine + "models: {m: {chat_template: absent.jinja}}", "line 2: models.m.chat_template: file does not exist"},
		{engine + "models: {m: {chat_template: broken.jinja}}", "line 2: models.m.chat_template: read the chat template"},
		{engine + "models: {m: {chat_template: chat.jinja, chat_template_tools: x}}", `"x" is none of as_sent, filled, function`},
		{engine + "models: {m: {chat_template_tools: filled}}", "and no chat_template"},
		{engine + "retries: {marked: maybe}", `"maybe" is none of cancel, run`},
		{"engines: [{}]", "line 1: engines[0].url: is missing"},
		{"engines:\n- url: gpu:8000", `line 2: engines[0].url: "gpu:8000" is not a URL such as`},
		{"engines:\n- url: 127.0.0.1:8000", `line 2: engines[0].url: "127.0.0.1:8000" is not a URL such as`},
		{"engines:\n- url: 'http://gpu:80x'", `"http://gpu:80x" is not a URL such as`},
		{"engines:\n- url: 'u:secret@gpu'", "what is given is not a URL such as"},
		{"engines:\n- url: 'http://u:secret@gpu:80x'", "what is given is not a URL such as"},
		{"engines:\n- url: http://gpu:8000?x=1", "has a query"},
		{"engines:\n- url: ftp://gpu", "is not a URL such as"},
		{"engines:\n- {url: 'http://gpu'}\n- {url: 'http://gpu'}", "line 3: engines[1].url: http://gpu is there already"},
		{"engines:\n- {url: 'http://gpu/a'}\n- {url: 'http://gpu/b'}", `line 3: engines[1].name: "gpu" is there already`},
		{"engines: [{url: 'http://gpu', kind: trt}]", `"trt" is none of vllm, sglang, openai`},
		{"engines: [{url: 'http://gpu', key_env: ABSENT}]", "line 1: engines[0].key_env: the variable ABSENT of the environment is not set"},
		{"engines: [{url: 'http://gpu', key_env: EMPTY}]", "engines[0].key_env: EMPTY is empty"},
		{"engines: [{url: 'http://gpu', key_env: ODD}]", "ODD holds a key that cannot be sent in a header"},
		{"engines: [{url: 'http://gpu', key_file: absent}]", "engines[0].key_file: read key:"},
		{"engines: [{url: 'http://gpu', key_file: second.key, key_env: ENGINE_KEY}]", "only one of them may be there"},
		{"engines: [{url: 'http://gpu', version_header: 'a b'}]", `"a b" is no name of a header`},
		{"engines: [{url: 'http://gpu', models: [a, a]}]", `engines[0].models[1]: "a" is there already`},
	} {
		_, err := read(c.text)
		require.ErrorContains(t, err, c.fault, c.text)
	}
}

// TestSecretsStayOut: a key that stands in the file is refused, and no error repeats
// one.
func TestSecretsStayOut(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"engines: [{url: 'http://gpu', key: hunter2}]",
		"engines: [{url: 'http://gpu', api_key: hunter2}]",
		"engines: [{url: 'http://gpu', token: hunter2}]",
		"engines: [{url: 'http://me:hunter2@gpu'}]",
		"engines: [{url: 'http://me:hunter2@gpu:x'}]",
		"engines: [{url: 'http://me:hunter2@gpu?a=b'}]",
	} {
		_, err := read(text)
		require.ErrorContains(t, err, "line 1: engines[0].", text)
		require.NotContains(t, err.Error(), "hunter2", text)
	}
	s, err := read(whole)
	require.NoError(t, err)
	text, err := json.Marshal(s)
	require.NoError(t, err)
	require.NotContains(t, string(text), "secret-")
}

// TestAllFaultsAtOnce: who mends a file sees everything that is wrong with it.
func TestAllFaultsAtOnce(t *testing.T) {
	t.Parallel()
	_, err := read("engines: [{url: gpu}]\ncallers: x\nbodies: y")
	require.ErrorContains(t, err, "line 1:")
	require.ErrorContains(t, err, "line 2:")
	require.ErrorContains(t, err, "line 3:")
}

func TestLoad(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.yaml")
	require.NoError(t, os.WriteFile(path, []byte("models: {policy: {aliases: ['*']}}\n"), 0o600))
	s, err := Load(path, []string{"http://a", "http://b"}, Source{})
	require.NoError(t, err)
	require.False(t, s.FirstServed)
	require.Equal(t, []Engine{{URL: "http://a"}, {URL: "http://b"}}, s.Engines)
	_, err = Load(path, nil, Source{})
	require.ErrorContains(t, err, path)
	_, err = Load(path, []string{"http://a", "http://a"}, Source{})
	require.ErrorContains(t, err, "--engine: http://a is named already")
	_, err = Load("", []string{"nowhere"}, Source{})
	require.ErrorContains(t, err, "--engine")
	_, err = Load(path+".absent", nil, Source{})
	require.ErrorIs(t, err, os.ErrNotExist)
	s, err = Load("", []string{"http://a"}, Source{})
	require.NoError(t, err)
	require.True(t, s.FirstServed)
}

// FuzzFile: whatever a file holds, it is read or refused, and what was read is fit
// to be used.
func FuzzFile(f *testing.F) {
	f.Add(whole)
	f.Add("engines: [{url: 'http://gpu'}]\nmodels: {a: {params: {x: [1, {y: 0x10}, 1_000, 1e400, ~, '']}}}")
	f.Add("engines: &e [{url: 'http://gpu'}]\nmodels: *e")
	f.Add("? [a]\n: b\n<<: {c: d}")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := read(text)
		if err != nil {
			require.NotContains(t, err.Error(), "secret-1")
			return
		}
		require.NotEmpty(t, s.Engines)
		require.Positive(t, s.Limits.MaxRequest)
		require.Positive(t, s.Limits.MaxOpen)
		require.Positive(t, s.Limits.Heartbeat)
		for _, m := range s.Models {
			all := []Members{m.Sampling, m.Params}
			for _, p := range m.Effort {
				all = append(all, p)
			}
			for _, members := range all {
				for name, v := range members {
					require.True(t, json.Valid(v), fmt.Sprintf("%s: %s", name, v))
				}
			}
			name, found := s.Resolve(m.Name, nil)
			require.Equal(t, m.Name, name)
			require.Same(t, m, found)
		}
	})
}
