package main

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"time"
)

// Sizes of the synthetic warehouse: agents that call callsPerRollout times, each
// time with all that went before, in groups as GRPO samples them.
const (
	callsPerRollout  = 20
	rolloutsPerGroup = 16
	firstPrompt      = 100
	toolTokens       = 40
	sampledTokens    = 30
	// perVersion is how many rollouts one policy version samples.
	perVersion = 2000
)

var syntheticHarnesses = []string{"codex", "claude-code", "qwen-code", "pi"}

// synthetic makes rollout n of a warehouse of any size: the traces as NDJSON
// lines, and its attributes, finish and reward. Later policy versions solve more,
// some harnesses faster than others. The same n gives the same rollout.
func synthetic(n int) (traces []byte, attributes string, reward float64) {
	rng := rand.New(rand.NewPCG(uint64(n), 7))
	group := n / rolloutsPerGroup
	task, version := group%5000, n/perVersion
	kind := task % len(syntheticHarnesses)
	attributes = fmt.Sprintf(`{"task_id":"task-%d","group_id":"group-%d","group_size":%d,"sample_index":%d,"split":%q,"harness":%q,"policy_version":%d}`,
		task, group, rolloutsPerGroup, n%rolloutsPerGroup, []string{"train", "train", "train", "eval"}[group%4], syntheticHarnesses[kind], version)
	if rng.Float64() < 0.2+0.01*float64(version*(kind+1)) {
		reward = 1
	}
	begun := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(n) * time.Second)
	prompt := sha256.New()
	length := 0
	for k := range callsPerRollout {
		fresh := toolTokens
		if k == 0 {
			fresh = firstPrompt
		}
		tail, _ := numbers(rng, fresh, prompt)
		length += fresh
		started := begun.Add(time.Duration(k) * 40 * time.Millisecond)
		traces = fmt.Appendf(traces, `{"trace_id":"s%d-%d","rollout_id":"s%d","seq":%d,"policy_version":%d,"model":"policy","finish_reason":"stop","started_at":%q,"finished_at":%q,"prompt_token_ids":[%s]`,
			n, k, n, k, version, started.Format(time.RFC3339Nano), started.Add(time.Duration(5+rng.IntN(30))*time.Millisecond).Format(time.RFC3339Nano), tail)
		if k > 0 {
			traces = fmt.Appendf(traces, `,"prompt_prefix":{"trace_id":"s%d-%d","length":%d},"prompt_hash":"%s"`,
				n, k-1, length-fresh, hex.EncodeToString(prompt.Sum(nil)))
		}
		sampled, logprobs := numbers(rng, sampledTokens, prompt)
		length += sampledTokens
		traces = fmt.Appendf(traces, `,"response_token_ids":[%s],"response_logprobs":[%s]}`+"\n", sampled, logprobs)
	}
	return traces, attributes, reward
}

// numbers draws ids, adds them to a running hash, and writes them and as many
// log-probs as JSON lists without brackets.
func numbers(rng *rand.Rand, n int, into interface{ Write([]byte) (int, error) }) (ids, logprobs []byte) {
	var raw []byte
	for i := range n {
		if i > 0 {
			ids, logprobs = append(ids, ','), append(logprobs, ',')
		}
		id := rng.Uint32N(150000)
		ids = fmt.Appendf(ids, "%d", id)
		logprobs = fmt.Appendf(logprobs, "-%.4f", rng.ExpFloat64()/4)
		raw = binary.LittleEndian.AppendUint32(raw, id)
	}
	_, _ = into.Write(raw) // a hash takes everything
	return ids, logprobs
}
