package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPageIsUpToDate(t *testing.T) {
	t.Parallel()
	have, err := os.ReadFile("../../docs/errors.md")
	require.NoError(t, err)
	require.Equal(t, page(), string(have), "docs/errors.md is not what the catalogue gives: run `go generate ./problem`")
}

func TestSectionsAreNamed(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for i, e := range sections {
		require.NotEmpty(t, e, "section %d", i)
		require.False(t, seen[e], "section %d has another's text", i)
		seen[e] = true
	}
}
