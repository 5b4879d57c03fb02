package turn_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"icecore/ingest/gateway/turn"
)

// What a rewrite names may be as long as a body: it is cut, between characters.
func TestRewriteTextsAreBounded(t *testing.T) {
	t.Parallel()
	var r turn.Request
	r.Rewrite("dropped_field", "a"+strings.Repeat("é", 1<<10), strings.Repeat("é", 1<<10))
	for _, text := range []string{r.Rewrites[0].Where, r.Rewrites[0].Detail} {
		require.LessOrEqual(t, len(text), 310)
		require.True(t, utf8.ValidString(text))
		require.True(t, strings.HasSuffix(text, "é…"))
	}
}
