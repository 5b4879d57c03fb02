package enginetest

// A past stands for a sequence of ids; add and logprob cost the same at any length.
type past uint64

const nothing past = 0x9E3779B97F4A7C15

func (c past) add(id int32) past {
	x := (uint64(c) ^ uint64(uint32(id)) + 0x2545F4914F6CDD1D) * 0xD6E8FEB86659FD93
	return past(x ^ x>>32)
}

func pastOf(ids []int32) past {
	c := nothing
	for _, id := range ids {
		c = c.add(id)
	}
	return c
}

// mixed spreads the past over all bits.
func (c past) mixed() uint64 {
	x := uint64(c)
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// logprob lies in (-8, 0], with 24 bits, so a float32 holds it exactly.
func (c past) logprob(id int32) float32 {
	return -float32(c.add(id).mixed()>>40) / (1 << 21)
}

// Logprob is the log-probability that the engine gives to response[i] after prompt
// and response[:i], in nats. It does not hang on seed, script or face. To check a
// whole answer use Logprobs.
func Logprob(prompt, response []int32, i int) float32 {
	c := pastOf(prompt)
	for _, id := range response[:i] {
		c = c.add(id)
	}
	return c.logprob(response[i])
}

// Logprobs gives the log-probability of each id of response.
func Logprobs(prompt, response []int32) []float32 {
	return logprobs(pastOf(prompt), response)
}

func logprobs(c past, response []int32) []float32 {
	out := make([]float32, len(response))
	for i, id := range response {
		out[i] = c.logprob(id)
		c = c.add(id)
	}
	return out
}
