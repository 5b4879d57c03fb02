package trajectory

import "encoding/json"

// sampling is what a span tells of how it was sampled.
type sampling struct {
	Temperature  *float64 `json:"temperature"`
	TopP         *float64 `json:"top_p"`
	TopK         *int64   `json:"top_k"`
	LogprobsMode string   `json:"logprobs_mode"`
}

func samplingOf(raw []byte) sampling {
	var s sampling
	if len(raw) > 0 {
		// Sampling is the capturer's own object: a field of another type than
		// ours is left unknown rather than refused.
		_ = json.Unmarshal(raw, &s)
	}
	switch s.LogprobsMode {
	case "raw", "processed":
	case "raw_logprobs":
		s.LogprobsMode = "raw"
	case "processed_logprobs":
		s.LogprobsMode = "processed"
	default:
		s.LogprobsMode = "unknown"
	}
	return s
}
