package enginetest

import (
	"encoding/json"
	"errors"
	"fmt"
)

// body is a request of any route; each reads what it knows.
type body struct {
	Model       string            `json:"model"`
	Messages    []wireMessage     `json:"messages"`
	Tools       []json.RawMessage `json:"tools"`
	ToolChoice  json.RawMessage   `json:"tool_choice"`
	Stream      bool              `json:"stream"`
	RequestID   string            `json:"request_id"`
	RID         string            `json:"rid"`
	Prompt      json.RawMessage   `json:"prompt"`    // completions, tokenize
	TokenIDs    []int32           `json:"token_ids"` // vLLM generate
	InputIDs    []int32           `json:"input_ids"` // SGLang
	Text        string            `json:"text"`
	Params      *params           `json:"sampling_params"`
	TopLogprobs int               `json:"top_logprobs"`
	params

	ReturnTokenIDs         bool  `json:"return_token_ids"`
	ReturnTokensAsTokenIDs bool  `json:"return_tokens_as_token_ids"`
	ReturnPromptText       bool  `json:"return_prompt_text"`
	IncludeReasoning       *bool `json:"include_reasoning"`
	ReturnPromptTokenIDs   bool  `json:"return_prompt_token_ids"`
	ReturnMetaInfo         bool  `json:"return_meta_info"`
	SglextInput            bool  `json:"return_input_ids_in_sglext"`
	SglextOutput           bool  `json:"return_output_ids_in_sglext"`
	ReturnLogprob          bool  `json:"return_logprob"`

	StreamOptions struct {
		IncludeUsage    bool `json:"include_usage"`
		ContinuousUsage bool `json:"continuous_usage_stats"`
	} `json:"stream_options"`
	Template            map[string]json.RawMessage `json:"chat_template_kwargs"`
	AddGenerationPrompt *bool                      `json:"add_generation_prompt"`
	Format              *struct {
		Type   string `json:"type"`
		Schema *struct {
			Schema json.RawMessage `json:"schema"`
		} `json:"json_schema"`
	} `json:"response_format"`
}

// params are the sampling parameters, at the body's top or in an object of their own.
type params struct {
	N            int             `json:"n"`
	MaxTokens    *int            `json:"max_tokens"`
	MaxNew       *int            `json:"max_new_tokens"`
	MaxComplete  *int            `json:"max_completion_tokens"`
	MinTokens    int             `json:"min_tokens"`
	Stop         json.RawMessage `json:"stop"`
	StopTokenIDs []int32         `json:"stop_token_ids"`
	IgnoreEOS    bool            `json:"ignore_eos"`
	Logprobs     json.RawMessage `json:"logprobs"`
}

func readBody(raw []byte) (*body, error) {
	var b body
	if err := json.Unmarshal(raw, &b); err != nil {
		return nil, fmt.Errorf("read body: %w", err)
	}
	if b.Params != nil {
		b.params = *b.Params
	}
	for _, m := range []*int{b.MaxComplete, b.MaxNew} {
		if m != nil {
			b.MaxTokens = m
		}
	}
	if b.MaxTokens != nil && *b.MaxTokens < 1 {
		return nil, fmt.Errorf("max_tokens must be at least 1, got %d.", *b.MaxTokens) //nolint:staticcheck,revive // vLLM's own words
	}
	if b.N < 0 || b.N > 128 {
		return nil, errors.New("n must be between 1 and 128")
	}
	b.N = max(b.N, 1)
	return &b, nil
}

// max is the bound on the answer; 0: not said.
func (b *body) max() int {
	if b.MaxTokens == nil {
		return 0
	}
	return *b.MaxTokens
}

func (b *body) stops() []string {
	var several []string
	if json.Unmarshal(b.Stop, &several) == nil {
		return several
	}
	var one string
	if json.Unmarshal(b.Stop, &one) == nil && one != "" {
		return []string{one}
	}
	return nil
}

func (b *body) stopIDs() []int32 { return b.StopTokenIDs }

// wantsLogprobs reads true, and any number, as yes: completions ask by a number.
func (b *body) wantsLogprobs() bool {
	switch text := string(b.Logprobs); text {
	case "", "null", "false":
		return false
	}
	return true
}

func (b *body) wantsThinking() bool { return string(b.Template["enable_thinking"]) != "false" }

func (b *body) generates() bool { return b.AddGenerationPrompt == nil || *b.AddGenerationPrompt }

// seen reads messages and tools.
func (b *body) seen() (Seen, error) {
	s := Seen{MaxTokens: b.max(), ToolChoice: readToolChoice(b.ToolChoice)}
	if len(b.Messages) == 0 {
		return s, errors.New("messages: at least one is needed")
	}
	for i := range b.Messages {
		m, err := b.Messages[i].message(i)
		if err != nil {
			return s, err
		}
		s.Messages = append(s.Messages, m)
	}
	var err error
	if f := b.Format; f != nil && f.Type != "text" {
		s.Format = json.RawMessage("{}")
		if f.Schema != nil && f.Schema.Schema != nil {
			s.Format = f.Schema.Schema
		}
	}
	s.Tools, err = readTools(b.Tools)
	s.count()
	return s, err
}

// promptIDs reads a prompt of completions: text, ids, or one of these in an array.
func (b *body) promptIDs() ([]int32, error) {
	var text string
	if json.Unmarshal(b.Prompt, &text) == nil {
		return Encode(text), nil
	}
	var ids []int32
	if json.Unmarshal(b.Prompt, &ids) == nil && ids != nil {
		return ids, nil
	}
	var several []json.RawMessage
	if json.Unmarshal(b.Prompt, &several) == nil && len(several) == 1 {
		inner := body{Prompt: several[0]}
		return inner.promptIDs()
	}
	return nil, errors.New("prompt must be one text or one list of ids")
}
