package sse

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ten thousand streams wait behind a first event with a prompt's ids: what it needed
// must not stay with each.
func TestReader_GivesRoomBack(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("1,", 40<<10)
	in, out := io.Pipe()
	go func() { _, _ = io.WriteString(out, "data: "+long+"\n\ndata: a\n\ndata: b\n\n") }() // the reader sees what is missing
	r := NewReader(in, 1<<20)
	for _, want := range []string{long, "a", "b"} {
		e, err := r.Next()
		require.NoError(t, err)
		require.Equal(t, want, string(e.Data))
	}
	require.Len(t, r.buf, usual)
	require.LessOrEqual(t, cap(r.data), usual)
}
