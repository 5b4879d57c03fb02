package enginetest

import (
	"encoding/json"
	"net/http"
)

// tokenize gives the ids of a text or, on engines that take them, of messages.
func (e *Engine) tokenize(raw []byte, r *http.Request) (any, error) {
	ids, script, err := e.ids(raw, r, false)
	if err != nil {
		return nil, err
	}
	return map[string]any{"count": len(ids), "max_model_len": script.maxLen(), "tokens": ids, "token_strs": nil}, nil
}

// tokenizeVLLM is vLLM's: its chat takes thinking by either name, its /tokenize gives
// the template only what stands in reasoning.
func (e *Engine) tokenizeVLLM(raw []byte, r *http.Request) (any, error) {
	ids, script, err := e.ids(raw, r, true)
	if err != nil {
		return nil, err
	}
	return map[string]any{"count": len(ids), "max_model_len": script.maxLen(), "tokens": ids, "token_strs": nil}, nil
}

// render gives the prompt of a chat without sampling.
func (e *Engine) render(raw []byte, r *http.Request) (any, error) {
	ids, _, err := e.ids(raw, r, false)
	if err != nil {
		return nil, err
	}
	return map[string]any{"request_id": r.Header.Get("X-Request-Id"), "token_ids": ids}, nil
}

func (e *Engine) ids(raw []byte, r *http.Request, plainReasoning bool) ([]int32, *Script, error) {
	b, err := readBody(raw)
	if err != nil {
		return nil, nil, refuse(http.StatusBadRequest, "%s", err)
	}
	name, s := e.scripted(b.Model, r)
	if s == nil {
		return nil, nil, refuse(http.StatusNotFound, "The model `%s` does not exist.", name)
	}
	if s.script.Server.NoTokenize {
		return nil, nil, refuse(http.StatusNotFound, "Not Found")
	}
	if len(b.Messages) == 0 {
		var text string
		if json.Unmarshal(b.Prompt, &text) != nil {
			return nil, nil, refuse(http.StatusBadRequest, "prompt must be a text")
		}
		return Encode(text), s.script, nil
	}
	if plainReasoning {
		for i := range b.Messages {
			b.Messages[i].ReasoningContent = nil
		}
	}
	c := &call{e: e, script: s.script, req: b, thinking: b.wantsThinking()}
	if err := c.template(); err != nil {
		return nil, nil, err
	}
	return c.prompt, s.script, nil
}

// detokenize gives the text of ids in the member of this name. vLLM keeps specials;
// SGLang leaves out those that an answer would not show, unless told.
func (e *Engine) detokenize(member string) func([]byte, *http.Request) (any, error) {
	return func(raw []byte, _ *http.Request) (any, error) {
		var b struct {
			Model  string  `json:"model"`
			Tokens []int32 `json:"tokens"`
			Skip   *bool   `json:"skip_special_tokens"`
		}
		if err := json.Unmarshal(raw, &b); err != nil || b.Tokens == nil {
			return nil, refuse(http.StatusBadRequest, "tokens must be a list of ids")
		}
		if e.server(b.Model).NoTokenize {
			return nil, refuse(http.StatusNotFound, "Not Found")
		}
		var kept []int32
		skip := member == "text" && (b.Skip == nil || *b.Skip)
		for i, id := range b.Tokens {
			if Token(id) == "" {
				return nil, refuse(http.StatusBadRequest, "tokens[%d]: %d is out of vocabulary", i, id)
			}
			if !skip || !hidden(id) {
				kept = append(kept, id)
			}
		}
		return map[string]string{member: Decode(kept)}, nil
	}
}
