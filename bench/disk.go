package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
)

// disk measures what is kept per unique token, in order and shuffled.
func (b *bench) disk() error {
	for _, shuffled := range []bool{false, true} {
		s, err := b.start()
		if err != nil {
			return err
		}
		for i := range b.rounds {
			lines := b.fresh(i)
			if shuffled {
				rand.New(rand.NewPCG(1, uint64(i))).Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
			}
			if _, err := s.send("/v1/traces", "application/x-ndjson", requests(lines), 4, nil); err != nil {
				return err
			}
		}
		sent, err := s.metric("icecore_tokens_sent_total")
		if err != nil {
			return err
		}
		kept, err := s.metric("icecore_tokens_kept_total")
		if err != nil {
			return err
		}
		if err := s.shutdown(); err != nil {
			return err
		}
		n, err := s.diskBytes()
		if err != nil {
			return err
		}
		how := "in order"
		if shuffled {
			how = "shuffled"
		}
		fmt.Printf("%s: %.1f M tokens sent, %.2f M kept, %.1f MB on disk: %.2f bytes per kept token\n",
			how, sent/1e6, kept/1e6, float64(n)/1e6, float64(n)/kept)
	}
	return nil
}

// growth measures what twice the turns cost.
func (b *bench) growth() error {
	for _, bodies := range []bool{false, true} {
		var before int64
		for _, turns := range []int{64, 128, 256} {
			s, err := b.start()
			if err != nil {
				return err
			}
			for rollout := range 12 {
				body := longRollout(rollout, turns, bodies)
				if _, err := s.send("/v1/traces", "application/x-ndjson", body, 1, nil); err != nil {
					return err
				}
			}
			if err := s.shutdown(); err != nil {
				return err
			}
			n, err := s.diskBytes()
			if err != nil {
				return err
			}
			ratio := ""
			if before > 0 {
				ratio = fmt.Sprintf(", %.2f × the half", float64(n)/float64(before))
			}
			fmt.Printf("12 rollouts of %3d turns, bodies %-5v: %6.1f MB%s\n", turns, bodies, float64(n)/1e6, ratio)
			before = n
		}
	}
	return nil
}

// longRollout is one agent that appends to its history, as requests.
func longRollout(rollout, turns int, bodies bool) [][]byte {
	r := rand.New(rand.NewPCG(uint64(rollout), 7))
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	var messages []message
	var prompt []int32
	for range 3000 {
		prompt = append(prompt, r.Int32N(150_000))
	}
	text := func(n int) string {
		out := ""
		for range n {
			out += strconv.Itoa(r.IntN(5000)) + " "
		}
		return out
	}
	messages = append(messages, message{"system", text(2000)})
	var lines [][]byte
	for turn := range turns {
		response := make([]int32, 150)
		logprobs := make([]float32, len(response))
		for i := range response {
			response[i], logprobs[i] = r.Int32N(150_000), -r.Float32()
		}
		t := map[string]any{"trace_id": fmt.Sprintf("g%d-%d", rollout, turn), "rollout_id": fmt.Sprintf("g%d", rollout), "seq": turn,
			"prompt_token_ids": prompt, "response_token_ids": response, "response_logprobs": logprobs, "harness": "bench", "policy_version": 1}
		if bodies {
			t["request"] = map[string]any{"model": "policy", "messages": messages}
			answer := message{"assistant", text(120)}
			t["response"] = map[string]any{"choices": []message{answer}}
			messages = append(messages, answer, message{"tool", text(400)})
		}
		line, err := json.Marshal(t)
		if err != nil {
			panic(err) // these types always encode
		}
		lines = append(lines, line)
		prompt = append(append([]int32(nil), prompt...), response...)
		for range 450 {
			prompt = append(prompt, r.Int32N(150_000))
		}
	}
	return requests(lines)
}
