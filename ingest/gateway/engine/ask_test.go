package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Looks that fail ask for the next one. An engine that refuses every connection must be
// looked at in its time all the same, not in a loop.
func TestALookDoesNotBringOnTheNext(t *testing.T) {
	t.Parallel()
	e := &Engine{poke: make(chan struct{}, 1)}
	e.looked.Store(time.Now().UnixNano())
	e.ask()
	require.Empty(t, e.poke)
	e.looked.Store(time.Now().Add(-2 * lookWhenDown).UnixNano())
	e.ask()
	require.Len(t, e.poke, 1)
}
