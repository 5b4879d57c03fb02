package chat

import (
	"bytes"
	"encoding/json"
	"strings"
)

// byID begins what an engine writes for a token's text when it is asked for ids in its
// place, which capture does and no harness expects.
const byID = "token_id:"

// named gives log-probs whose tokens are texts again where the engine tells their bytes.
func named(raw json.RawMessage) json.RawMessage {
	if !bytes.Contains(raw, []byte(byID)) {
		return raw
	}
	var whole map[string]any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if d.Decode(&whole) != nil {
		return raw
	}
	for _, list := range whole {
		name(list)
	}
	out, err := json.Marshal(whole)
	if err != nil {
		return raw
	}
	return out
}

func name(list any) {
	tokens, _ := list.([]any)
	for _, one := range tokens {
		t, ok := one.(map[string]any)
		if !ok {
			continue
		}
		name(t["top_logprobs"])
		text, _ := t["token"].(string)
		if !strings.HasPrefix(text, byID) {
			continue
		}
		if read := texted(t["bytes"]); read != "" && !strings.HasPrefix(read, byID) {
			t["token"] = read
		}
	}
}

func texted(list any) string {
	numbers, _ := list.([]any)
	out := make([]byte, 0, len(numbers))
	for _, one := range numbers {
		n, _ := one.(json.Number)
		v, err := n.Int64()
		if err != nil || v < 0 || v > 255 {
			return ""
		}
		out = append(out, byte(v))
	}
	return string(out)
}
