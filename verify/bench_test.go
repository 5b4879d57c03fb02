package verify

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"icecore/merge"
	"icecore/merge/pass"
	"icecore/store"
	"icecore/trace"
)

// BenchmarkRun verifies rollouts of 40 calls and 50,000 ids with
// log-probabilities; VERIFY_TOKENS says how many ids in all (1,000,000).
func BenchmarkRun(b *testing.B) {
	tokens, err := strconv.Atoi(os.Getenv("VERIFY_TOKENS"))
	if err != nil {
		tokens = 1_000_000
	}
	src := open(b, grown(b, tokens))
	var read int64
	for b.Loop() {
		r, err := Run(context.Background(), src, Options{})
		require.NoError(b, err)
		require.True(b, r.OK())
		read += r.Tokens
	}
	b.ReportMetric(float64(read)/b.Elapsed().Seconds()/1e6, "Mtok/s")
}

func grown(b *testing.B, tokens int) string {
	ctx := context.Background()
	dir := b.TempDir()
	s, err := store.Open(ctx, store.Options{Dir: dir, MemoryLimit: 1 << 30, Log: slog.New(slog.DiscardHandler)})
	require.NoError(b, err)
	const calls, step, response = 40, 1250, 300
	var keys []int64
	var newest int64
	for r := range int64(max(1, tokens/calls/step)) {
		var history []int32
		var ts []*trace.Trace
		for c := range int64(calls) {
			for i := range step - response {
				history = append(history, int32((r*7919+c*104729+int64(i)*31)%150_000))
			}
			t := &trace.Trace{TraceID: fmt.Sprintf("%d-%d", r, c), RolloutID: strconv.FormatInt(r, 10), Seq: num(c),
				PromptIDs: trace.TokensOf(history[:len(history):len(history)]), ResponseLogprobs: &trace.Logprobs{}}
			for i := range response {
				t.ResponseIDs = append(t.ResponseIDs, int32(i))
				t.ResponseLogprobs.Append(-float32(i) / 100)
			}
			history = append(history, t.ResponseIDs...)
			require.Nil(b, t.Validate(trace.Limits{}))
			ts = append(ts, t)
		}
		_, newest, err = s.PutTraces(ctx, ts)
		require.NoError(b, err)
		keys = append(keys, r+1)
	}
	require.NoError(b, s.WaitDrained(ctx, newest))
	p, err := pass.New(ctx, s, pass.Options{Quiet: time.Hour, Log: slog.New(slog.DiscardHandler)})
	require.NoError(b, err)
	require.NoError(b, p.Ensure(ctx, keys, merge.Policy{}))
	p.Close()
	require.NoError(b, s.Close(ctx))
	return dir
}
