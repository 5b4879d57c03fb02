package engine

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestScan_IDs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]int32{
		`[]`:                              {},
		`[0]`:                             {0},
		`[1,22, 333 ,4444` + "\n" + `]`:   {1, 22, 333, 4444},
		`[007]`:                           {7},
		`[99999999,999999999,1000000000]`: {99_999_999, 999_999_999, 1_000_000_000},
		`[2147483647]`:                    {math.MaxInt32},
		`[2147483648]`:                    nil,
		`[99999999999999999999]`:          nil,
		`[1,-1]`:                          nil,
		`[1,1.5]`:                         nil,
		`[1,1e3]`:                         nil,
		`[1,"2"]`:                         nil,
		`[[1],2]`:                         nil,
		`null`:                            nil,
	} {
		s := scan{b: []byte(text + ` `)}
		got, ok := s.ids([]int32{9})
		require.NoError(t, s.err, text)
		require.Equal(t, want != nil, ok, text)
		require.Equal(t, append([]int32{9}, want...), got, text)
		require.Zero(t, s.peek(), "all of %s is read", text)
	}
	for _, text := range []string{`[1`, `[1,`, `[123456789`, `[1234567890`, `[1,,2]`} {
		s := scan{b: []byte(text)}
		_, ok := s.ids(nil)
		require.False(t, ok, text)
		require.Error(t, s.err, text)
	}
	// A prompt's ids stay as long as their stream is open.
	s := scan{b: []byte(`[` + strings.Repeat("12345,", 4999) + `1]`)}
	got, ok := s.ids(nil)
	require.True(t, ok)
	require.Len(t, got, 5000)
	require.LessOrEqual(t, cap(got), 5200)
}
