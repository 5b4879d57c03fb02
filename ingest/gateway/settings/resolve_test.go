package settings

import (
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestResolve(t *testing.T) {
	t.Parallel()
	two, err := read("engines: [{url: 'http://gpu'}]\nmodels:\n  a: {aliases: ['x-*', 'y']}\n  b: {aliases: ['x-b*', '*/*']}\n")
	require.NoError(t, err)
	fallback := *two
	fallback.DefaultModel = "b"
	one, err := read("engines: [{url: 'http://gpu'}]\nmodels: {a: {max_tokens: 5}}")
	require.NoError(t, err)
	none, err := read("engines: [{url: 'http://gpu'}]")
	require.NoError(t, err)
	named, err := read("engines: [{url: 'http://gpu'}]\ndefault_model: s2")
	require.NoError(t, err)
	flags, err := Engines([]string{"http://gpu"})
	require.NoError(t, err)
	for _, c := range []struct {
		s      *Settings
		asked  string
		served []string
		want   string
	}{
		{two, "b", nil, "b"},
		{two, "x-b1", nil, "a"}, // the first in the order of the file
		{two, "openai/x", nil, "b"},
		{two, "y", nil, "a"},
		{two, "yy", nil, ""},
		{two, "", nil, ""},
		{two, "s1", []string{"s1"}, ""}, // only what the file names
		{&fallback, "yy", nil, "b"},
		{one, "whatever", nil, "a"},
		{none, "s2", []string{"s1", "s2"}, "s2"},
		{none, "other", []string{"s1", "s2"}, ""},
		{none, "other", []string{"s1"}, "s1"},
		{none, "other", nil, ""},
		{named, "s1", []string{"s1", "s2"}, "s1"},
		{named, "other", []string{"s1", "s2"}, "s2"},
		{flags, "other", []string{"s1", "s2"}, "s1"},
		{flags, "s2", []string{"s1", "s2"}, "s2"},
		{flags, "s2", nil, ""},
	} {
		name, m := c.s.Resolve(c.asked, c.served)
		require.Equal(t, c.want, name, c.asked)
		if c.want == "" {
			require.Nil(t, m, c.asked)
			continue
		}
		require.Equal(t, c.want, m.Name)
	}
	_, m := one.Resolve("whatever", nil)
	require.Equal(t, int64(5), m.MaxTokens)
	_, m = none.Resolve("s2", []string{"s1", "s2"})
	require.Equal(t, DefaultModel("s2"), m)
}

func TestMatch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, name string
		is            bool
	}{
		{"*", "", true},
		{"*", "org/model:7b", true},
		{"claude-*", "claude-sonnet-4-5[1m]", true},
		{"claude-sonnet-4-5[1m]", "claude-sonnet-4-5[1m]", true},
		{"claude-sonnet-4-5[1m]", "claude-sonnet-4-5m", false},
		{"gpt-?", "gpt-5", true},
		{"gpt-?", "gpt-55", false},
		{"?", "ä", true},
		{"*-mini", "gpt-5-mini-mini", true},
		{"*-mini", "gpt-5-mini-max", false},
		{"a", "A", false},
		{"", "a", false},
	} {
		require.Equal(t, c.is, Match(c.pattern, c.name), "%s %s", c.pattern, c.name)
	}
	require.True(t, Plain("gpt-5[1m]"))
	require.False(t, Plain("gpt-*"))
	require.False(t, Plain("gpt-?"))
}

// TestMatchAgreesWithPath: where path.Match has no syntax of its own, it is the judge.
func TestMatchAgreesWithPath(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		letters := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "*", "?"}), 0, 8)
		pattern := strings.Join(letters.Draw(t, "pattern"), "")
		name := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b"}), 0, 8).Draw(t, "name"), "")
		want, err := path.Match(pattern, name)
		require.NoError(t, err)
		require.Equal(t, want, Match(pattern, name))
	})
}
