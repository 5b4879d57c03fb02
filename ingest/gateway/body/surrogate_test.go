package body_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/ingest/gateway/body"
)

func TestLoneSurrogate(t *testing.T) {
	t.Parallel()
	for raw, lone := range map[string]bool{
		`"plain"`: false, `"\\ud800"`: false, `"\ud83d\ude00"`: false, `"\uD83D\uDE00"`: false, `"\u00e9\n\ud7ff\ue000"`: false,
		`"\ud83d"`: true, `"\ude00"`: true, `"\ude00\ud83d"`: true, `"\ud83d\ud83d\ude00"`: true, `"\ud83d\n"`: true, `"\\\ud800"`: true,
		`"\ud83d \ude00"`: true,
	} {
		require.NoError(t, body.Check([]byte(raw), ""))
		require.Equal(t, lone, body.LoneSurrogate([]byte(raw)), raw)
		var text string
		require.NoError(t, json.Unmarshal([]byte(raw), &text))
		require.Equal(t, lone, strings.Contains(text, "\ufffd"), raw)
	}
}
