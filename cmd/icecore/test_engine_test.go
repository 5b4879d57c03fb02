package main

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/enginetest"
)

// What is wrong is said once, with the flag that it is about.
func TestTestEngineRefuses(t *testing.T) {
	t.Parallel()
	script := filepath.Join(t.TempDir(), "script.json")
	for text, want := range map[string]string{
		`{"agent": "cook"}`:         `: agent: unknown word "cook"; known are: coder echo`,
		`{"turns": [{"txt": "x"}]}`: `: json: unknown field "txt"`,
		`{"turns": []} {}`:          `: something follows at byte 15`,
		`{"turns": [`:               `: unexpected EOF`,
	} {
		require.NoError(t, os.WriteFile(script, []byte(text), 0o600))
		require.EqualError(t, readScript(script, &enginetest.Script{}), "--script "+script+want)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close() //nolint:errcheck // nothing was sent
	addr := l.Addr().String()
	require.EqualError(t, testEngineCmd{Listen: addr}.Run(t.Context()),
		"--listen: listen tcp "+addr+": bind: address already in use; --listen 127.0.0.1:0 picks a free port")
	nowhere := filepath.Join(t.TempDir(), "no", "ledger")
	require.EqualError(t, testEngineCmd{Ledger: nowhere}.Run(t.Context()), "--ledger: open "+nowhere+": no such file or directory")
}
