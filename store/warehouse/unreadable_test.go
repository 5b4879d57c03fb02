package warehouse

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// Circumstances are no reason to set a file aside.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]bool{
		"Serialization Error: Failed to deserialize":             true,
		"IO Error: Resource temporarily unavailable":             false,
		"IO Error: Cannot allocate memory":                       false,
		"std::bad_alloc":                                         false,
		"bad allocation":                                         false,
		"Out of Memory Error: failed to pin block":               false,
		"Invalid Error: out of memory":                           false,
		"IO Error: Could not write file: Disk quota exceeded":    false,
		"IO Error: Could not set lock on file: Conflicting lock": false,
	} {
		require.Equal(t, want, unreadable(errors.New(said)), said)
	}
}
