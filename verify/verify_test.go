package verify

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func text(t *testing.T, r *Report) string {
	var b strings.Builder
	require.NoError(t, r.Text(&b))
	return b.String()
}

func TestCleanDataIsOK(t *testing.T) {
	x := full.make(t)
	for name, dir := range map[string]string{"killed": x.killed, "closed": x.closed} {
		t.Run(name, func(t *testing.T) {
			var done, total int64
			r, err := Run(context.Background(), copied(t, dir), Options{PageTokens: 20_000, Progress: func(d, n int64) { done, total = d, n }})
			require.NoError(t, err)
			require.True(t, r.OK(), text(t, r))
			require.Empty(t, r.Findings)
			require.Equal(t, total, done)
			require.Equal(t, r.Rollouts, done)
			require.EqualValues(t, 38, r.Rollouts)
			for _, c := range r.Checks {
				if c.Name != checkJournal || name == "killed" {
					require.NotZero(t, c.Checked, c.Name)
				}
			}
			require.NotZero(t, r.Behind)
			require.Contains(t, text(t, r), "everything agrees")
			_, err = json.Marshal(r)
			require.NoError(t, err)
		})
	}
}
