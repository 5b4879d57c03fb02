package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestClip(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{"a call", "a call"},
		{"twelve chars", "twelve chars"},
		{"thirteen here", "thirteen …"},
		{"two words and more", "two words …"},
		{"two words. and", "two words. …"},
		{"onewordalonewithout", "onewordalon…"},
		{"éééé éééééé é", "éééé …"},
	} {
		require.Equal(t, c.want, clip(c.text, 12), c.text)
	}
}
