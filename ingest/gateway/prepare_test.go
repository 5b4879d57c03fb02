package gateway

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"icecore/ingest/gateway/settings"
	"icecore/ingest/gateway/turn"
)

func said2(role, text string) turn.Message {
	return turn.Message{Role: role, Content: turn.TextOf(text)}
}

func whats(r *turn.Request) (out []string) {
	for _, w := range r.Rewrites {
		out = append(out, w.What)
	}
	return out
}

func TestPrepare(t *testing.T) {
	t.Parallel()
	n := func(v int64) *int64 { return &v }
	yes, no := true, false
	raw := func(text string) settings.Members {
		var m settings.Members
		require.NoError(t, json.Unmarshal([]byte(text), &m))
		return m
	}
	for _, c := range []struct {
		name    string
		change  func(*settings.Model)
		request turn.Request
		want    []string
		check   func(r *turn.Request, params settings.Members)
	}{
		{"nothing to do", func(m *settings.Model) { m.MaxTokens = 10 }, turn.Request{MaxTokens: n(10)}, nil, nil},
		{"clamp", func(m *settings.Model) { m.MaxTokens = 10 }, turn.Request{MaxTokens: n(11)}, []string{"clamped_max_tokens"}, func(r *turn.Request, _ settings.Members) { require.Equal(t, int64(10), *r.MaxTokens) }},
		{"nothing said, nothing clamped", func(m *settings.Model) { m.MaxTokens = 10 }, turn.Request{}, nil, func(r *turn.Request, _ settings.Members) { require.Nil(t, r.MaxTokens) }},
		{"default", func(m *settings.Model) { m.DefaultMaxTokens = 7 }, turn.Request{}, []string{"default_max_tokens"}, func(r *turn.Request, _ settings.Members) { require.Equal(t, int64(7), *r.MaxTokens) }},
		{"same sampling", func(m *settings.Model) { m.Sampling = raw(`{"top_p":1}`) }, turn.Request{Sampling: raw(`{"top_p":1}`)}, nil, nil},
		{"other sampling", func(m *settings.Model) { m.Sampling = raw(`{"top_p":1,"top_k":2}`) }, turn.Request{Sampling: raw(`{"top_p":0.5}`)}, []string{"set_sampling", "set_sampling"},
			func(r *turn.Request, _ settings.Members) { require.JSONEq(t, `2`, string(r.Sampling["top_k"])) }},
		{"effort is not guessed", func(*settings.Model) {}, turn.Request{Reasoning: turn.Reasoning{Effort: "high"}}, []string{"dropped_effort"}, nil},
		{"effort by table", func(m *settings.Model) {
			m.Params, m.Effort = raw(`{"a":1}`), map[string]settings.Members{"high": raw(`{"b":2}`)}
		}, turn.Request{Reasoning: turn.Reasoning{Effort: "high"}}, []string{"mapped_effort"}, func(_ *turn.Request, p settings.Members) { require.Len(t, p, 2) }},
		{"thinking off", func(m *settings.Model) { m.Effort = map[string]settings.Members{"none": raw(`{"b":2}`)} }, turn.Request{Reasoning: turn.Reasoning{Enabled: &no}}, []string{"mapped_effort"}, nil},
		{"thinking on", func(*settings.Model) {}, turn.Request{Reasoning: turn.Reasoning{Enabled: &yes, Budget: n(9)}}, []string{"dropped_thinking_budget", "dropped_thinking"}, nil},
		{"developer", func(*settings.Model) {}, turn.Request{Messages: []turn.Message{said2("developer", "x")}}, []string{"developer_as_system"}, func(r *turn.Request, _ settings.Members) { require.Equal(t, "system", r.Messages[0].Role) }},
		{"developer stays", func(m *settings.Model) { m.Developer = "developer" }, turn.Request{Messages: []turn.Message{said2("developer", "x")}}, nil, func(r *turn.Request, _ settings.Members) { require.Equal(t, "developer", r.Messages[0].Role) }},
		{"length", func(m *settings.Model) { m.LengthAsCompleted = true }, turn.Request{}, nil, func(r *turn.Request, _ settings.Members) { require.True(t, r.LengthAsCompleted) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := settings.DefaultModel("policy")
			c.change(m)
			before := len(m.Params)
			params := prepare(&c.request, m)
			require.Equal(t, c.want, whats(&c.request))
			require.Len(t, m.Params, before, "the settings are everybody's")
			if c.check != nil {
				c.check(&c.request, params)
			}
		})
	}
}

// System messages amid the history stay where they are unless the option folds them
// (row 18); folded, they are in a user's turn and nothing of any text is lost.
func TestFoldSystem(t *testing.T) {
	t.Parallel()
	r := &turn.Request{Messages: []turn.Message{
		said2("system", "base"), said2("user", "one"), said2("assistant", "two"), said2("system", "note"), said2("user", "three"),
		said2("system", "end"), said2("assistant", "four"), said2("system", "lone"), said2("assistant", "five"),
	}, Anchors: map[int]string{2: "t-1", 6: "t-2", 8: "t-3"}}
	prepare(r, settings.DefaultModel("m"))
	require.Len(t, r.Messages, 9, "in place by default")
	m := settings.DefaultModel("m")
	m.System = settings.SystemFold
	prepare(r, m)
	var got []string
	for i := range r.Messages {
		got = append(got, r.Messages[i].Role+": "+r.Messages[i].Text())
	}
	require.Equal(t, []string{
		"system: base", "user: one", "assistant: two", "user: <system>\nnote\n</system>\n\nthree\n\n<system>\nend\n</system>",
		"assistant: four", "user: <system>\nlone\n</system>", "assistant: five",
	}, got)
	require.Equal(t, map[int]string{2: "t-1", 4: "t-2", 6: "t-3"}, r.Anchors)
	require.Equal(t, []string{"folded_system", "folded_system", "folded_system"}, whats(r))
}

func TestFoldKeepsEveryText(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		roles := rapid.SliceOfN(rapid.SampledFrom([]string{"system", "user", "assistant", "tool"}), 0, 12).Draw(t, "roles")
		r := &turn.Request{}
		image := rapid.Bool().Draw(t, "image")
		for i, role := range roles {
			m := said2(role, "text-"+string(rune('a'+i)))
			if image && role == "user" {
				m.Content = append(m.Content, turn.Part{Raw: json.RawMessage(`{"type":"image_url"}`)})
			}
			r.Messages = append(r.Messages, m)
		}
		foldSystem(r)
		all, lead := "", true
		for i := range r.Messages {
			lead = lead && r.Messages[i].Role == turn.RoleSystem
			if r.Messages[i].Role == turn.RoleSystem && !lead {
				t.Fatalf("a system message is left at %d", i)
			}
			all += r.Messages[i].Text() + "\n"
		}
		for i := range roles {
			text := "text-" + string(rune('a'+i))
			if strings.Count(all, text) != 1 {
				t.Fatalf("%s is there %d times in\n%s", text, strings.Count(all, text), all)
			}
		}
	})
}

func TestBillingLineIsCut(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"x-anthropic-billing-header: a; cch=1;\n\nYou": "You",
		"x-anthropic-billing-header: a; cch=1;":        "",
		"You\nx-anthropic-billing-header: a":           "You\nx-anthropic-billing-header: a",
		"":                                             "",
	} {
		rest, had := cutBillingLine(text)
		require.Equal(t, want, rest)
		require.Equal(t, text != want, had)
	}
}
