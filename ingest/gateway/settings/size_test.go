package settings

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{"0B": 0, "7B": 7, "1KiB": 1024, "1.5MiB": 1572864, "2GB": 2e9, "4 GiB": 4 << 30, "1TiB": 1 << 40} {
		got, err := ParseSize(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "7", "MiB", "-1MiB", "1e30TiB", "1 mib", "NaNGB"} {
		_, err := ParseSize(text)
		require.ErrorContains(t, err, "such as 512MiB", text)
	}
}
