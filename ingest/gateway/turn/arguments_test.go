package turn_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/ingest/gateway/turn"
)

func TestInput(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		arguments, want string
		valid           bool
	}{
		{"", "{}", true},
		{" \n", "{}", true},
		{`{"a": 1.50, "b": " x "}` + "\n", `{"a":1.50,"b":" x "}`, true},
		{`{"n":12345678901234567890}`, `{"n":12345678901234567890}`, true},
		{`{"a": 1`, "{}", false},
		{`{"a": 1} {}`, "{}", false},
		{`["a"]`, "{}", false},
		{`"text"`, "{}", false},
		{`null`, "{}", false},
		{`{"a": NaN}`, "{}", false},
		{"{\"a\":\"\xff\"}", "{\"a\":\"\ufffd\"}", true},
	} {
		input, valid := (&turn.Call{Arguments: c.arguments}).Input()
		require.Equal(t, c.want, string(input), c.arguments)
		require.Equal(t, c.valid, valid, c.arguments)
	}
}
