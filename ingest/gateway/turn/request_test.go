package turn_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/ingest/gateway/turn"
)

func TestRewritesAreBounded(t *testing.T) {
	t.Parallel()
	var r turn.Request
	for range 5000 {
		r.Rewrite("dropped_field", "x", "")
	}
	require.Len(t, r.Rewrites, 1001)
	require.Equal(t, "dropped_field", r.Rewrites[999].What)
	require.Equal(t, "more", r.Rewrites[1000].What)
}
