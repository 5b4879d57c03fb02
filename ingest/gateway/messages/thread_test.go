package messages

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/ingest/gateway/turn"
)

// TestThreadsAreRefused: a request whose history lies elsewhere must not be answered
// without it, and the refusal tells Anthropic's SDKs to send the whole.
func TestThreadsAreRefused(t *testing.T) {
	t.Parallel()
	for _, thread := range []string{`{"type":"create"}`, `{"type":"continue","previous_message_id":"msg_1"}`} {
		body := `{"model":"m","max_tokens":9,"thread":` + thread + `,"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"x"}]}]}`
		_, err := Provider{}.Decode(turn.Incoming{Path: "messages", Body: []byte(body)})
		var f *turn.Fault
		require.ErrorAs(t, err, &f)
		status, _, answer := Provider{}.Fault(f)
		require.Equal(t, 400, status)
		var said struct {
			Error struct {
				Type    string
				Details struct {
					ErrorCode   string `json:"error_code"`
					Unsupported []string
				}
			}
		}
		require.NoError(t, json.Unmarshal(answer, &said))
		require.Equal(t, "invalid_request_error", said.Error.Type)
		require.Equal(t, "thread_unsupported_request", said.Error.Details.ErrorCode)
		require.Equal(t, []string{"thread"}, said.Error.Details.Unsupported)
	}
	_, err := Provider{}.Decode(turn.Incoming{Path: "messages", Body: []byte(`{"model":"m","max_tokens":9,"thread":null,"messages":[{"role":"user","content":"x"}]}`)})
	require.NoError(t, err)
}
