package trace

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits bounds one trace. Zero values mean the defaults.
type Limits struct {
	// MaxTokens bounds prompt and response together. Default 1,048,576.
	MaxTokens int
	// MaxBodyBytes bounds request and response each. Default 16 MiB.
	MaxBodyBytes int
	// MaxJSONDepth bounds nesting. Default 512.
	MaxJSONDepth int
}

// Defaults of Limits.
const (
	DefaultMaxTokens    = 1 << 20
	DefaultMaxBodyBytes = 16 << 20
	DefaultMaxJSONDepth = 512
	maxIDBytes          = 128
)

// WithDefaults replaces zero values.
func (l Limits) WithDefaults() Limits {
	if l.MaxTokens == 0 {
		l.MaxTokens = DefaultMaxTokens
	}
	if l.MaxBodyBytes == 0 {
		l.MaxBodyBytes = DefaultMaxBodyBytes
	}
	if l.MaxJSONDepth == 0 {
		l.MaxJSONDepth = DefaultMaxJSONDepth
	}
	return l
}

// Validate checks everything that can be checked without looking elsewhere, and
// sets the defaults of Status and Kind. PromptPrefix may still be unresolved.
// The returned error is nil or an *Error naming field and element.
func (t *Trace) Validate(l Limits) *Error {
	if t.Status == "" {
		t.Status = StatusOK
	}
	if t.Kind == "" {
		t.Kind = KindAgent
	}
	return firstError(
		func() *Error { return ValidateID("trace_id", t.TraceID) },
		func() *Error { return ValidateID("rollout_id", t.RolloutID) },
		func() *Error { return nonNegative("seq", t.Seq) },
		func() *Error { return t.validateIDs(l.WithDefaults()) },
		func() *Error { return t.validatePrefix() },
		func() *Error { return t.validateVersions() },
		func() *Error { return oneOf("status", t.Status, Statuses) },
		func() *Error { return oneOf("kind", t.Kind, Kinds) },
		func() *Error { return optionalOneOf("finish_reason", t.FinishReason, FinishReasons) },
		func() *Error { return nonNegative("choice_index", t.ChoiceIndex) },
		func() *Error { return nonNegative("policy_version", t.PolicyVersion) },
		func() *Error { return nonNegative("sample_index", t.Attributes.SampleIndex) },
		func() *Error { return optionalID("task_id", t.Attributes.TaskID) },
		func() *Error { return optionalID("group_id", t.Attributes.GroupID) },
		func() *Error { return optionalID("parent_rollout_id", t.ParentRolloutID) },
		func() *Error { return optionalID("choice_group", t.ChoiceGroup) },
		func() *Error { return t.validateBodies(l.WithDefaults()) },
	)
}

func (t *Trace) validateIDs(l Limits) *Error {
	if err := ValidateTokenIDs("prompt_token_ids", t.PromptIDs); err != nil {
		return err
	}
	if err := ValidateTokenIDs("response_token_ids", TokensOf(t.ResponseIDs)); err != nil {
		return err
	}
	if n := t.PromptIDs.Len() + len(t.ResponseIDs); n > l.MaxTokens {
		return &Error{CodeTooManyTokens, "prompt_token_ids",
			fmt.Sprintf("prompt and response hold %d tokens, more than the limit of %d", n, l.MaxTokens)}
	}
	if t.ResponseLogprobs == nil {
		return nil
	}
	if t.ResponseIDs == nil {
		return &Error{CodeLengthMismatch, "response_logprobs", "is given without response_token_ids"}
	}
	if n, m := t.ResponseLogprobs.Len(), len(t.ResponseIDs); n != m {
		return &Error{CodeLengthMismatch, "response_logprobs",
			fmt.Sprintf("has %d entries for %d response_token_ids", n, m)}
	}
	return nil
}

// ValidateTokenIDs checks that no id is negative.
func ValidateTokenIDs(field string, ids Tokens) *Error {
	at := 0
	for _, piece := range ids {
		for i, id := range piece {
			if id < 0 {
				return &Error{CodeInvalidTokenID, fmt.Sprintf("%s[%d]", field, at+i),
					fmt.Sprintf("%d is not a token id (int32 ≥ 0)", id)}
			}
		}
		at += len(piece)
	}
	return nil
}

func (t *Trace) validatePrefix() *Error {
	if t.PromptHash != nil && len(t.PromptHash) != 32 {
		return Invalid("prompt_hash", "is not a SHA-256 (64 hexadecimal digits)")
	}
	if t.PromptPrefix == nil {
		return nil
	}
	if err := ValidateID("prompt_prefix.trace_id", t.PromptPrefix.TraceID); err != nil {
		return err
	}
	if t.PromptPrefix.Length < 0 || t.PromptPrefix.Length > math.MaxInt32 {
		return Invalid("prompt_prefix.length", "is not between 0 and 2147483647")
	}
	if t.PromptHash == nil {
		return &Error{CodeMissingField, "prompt_hash", "is required with prompt_prefix"}
	}
	return nil
}

func (t *Trace) validateVersions() *Error {
	last := int64(-1)
	for i, s := range t.PolicyVersionSpans {
		field := fmt.Sprintf("policy_version_spans[%d]", i)
		switch {
		case i == 0 && s.Start != 0:
			return Invalid(field+".start", "the first span must start at 0")
		case s.Start <= last:
			return Invalid(field+".start", "is not after the span before it")
		case s.Start > 0 && s.Start >= int64(len(t.ResponseIDs)):
			return Invalid(field+".start",
				fmt.Sprintf("is %d, beyond the %d response_token_ids", s.Start, len(t.ResponseIDs)))
		case s.Version < 0:
			return Invalid(field+".version", "is negative")
		}
		last = s.Start
	}
	return nil
}

func (t *Trace) validateBodies(l Limits) *Error {
	for _, b := range []struct {
		field string
		body  []byte
	}{{"request", t.RequestBody}, {"response", t.ResponseBody}} {
		if len(b.body) > l.MaxBodyBytes {
			return &Error{CodeBodyTooLarge, b.field,
				fmt.Sprintf("holds %d bytes, more than the limit of %d", len(b.body), l.MaxBodyBytes)}
		}
	}
	return nil
}

// Validate checks a patch of a rollout's attributes.
func (p *RolloutPatch) Validate() *Error {
	return firstError(
		func() *Error { return optionalID("task_id", deref(p.TaskID)) },
		func() *Error { return optionalID("group_id", deref(p.GroupID)) },
		func() *Error { return nonNegative("sample_index", p.SampleIndex) },
		func() *Error { return nonNegative("policy_version", p.PolicyVersion) },
		func() *Error { return optionalOneOf("split", deref(p.Split), Splits) },
		func() *Error {
			if p.GroupSize != nil && *p.GroupSize < 1 {
				return Invalid("group_size", "is less than 1")
			}
			return nil
		},
	)
}

// Validate checks how a rollout is finished.
func (f *Finish) Validate() *Error {
	if f.Status == "" {
		return Missing("status")
	}
	return oneOf("status", f.Status, FinishStatuses)
}

// Validate checks what is asked of a key.
func (k *NewKey) Validate() *Error {
	if n := k.ExpiresInSeconds; n != nil && (*n < 1 || *n > MaxKeySeconds) {
		return Invalid("expires_in_seconds", fmt.Sprintf("is not between 1 and %d", MaxKeySeconds))
	}
	return optionalID("label", k.Label)
}

// Validate checks what is said of a policy version.
func (n *VersionNotice) Validate() *Error {
	if n.PolicyVersion == nil {
		return Missing("policy_version")
	}
	return firstError(
		func() *Error { return nonNegative("policy_version", n.PolicyVersion) },
		func() *Error { return optionalID("model", n.Model) },
	)
}

// Validate checks an intent.
func (i *Intent) Validate() *Error {
	return firstError(
		func() *Error { return ValidateID("trace_id", i.TraceID) },
		func() *Error { return ValidateID("rollout_id", i.RolloutID) },
		func() *Error { return nonNegative("seq", i.Seq) },
	)
}

// Validate checks a reward and sets the default name.
func (r *Reward) Validate() *Error {
	if r.Name == "" {
		r.Name = DefaultReward
	}
	return firstError(
		func() *Error { return ValidateID("reward_id", r.RewardID) },
		func() *Error { return ValidateID("rollout_id", r.RolloutID) },
		func() *Error { return optionalID("trace_id", r.TraceID) },
		func() *Error { return optionalID("name", r.Name) },
		func() *Error { return optionalID("source", r.Source) },
		func() *Error { return nonNegative("revision", &r.Revision) },
		func() *Error {
			if math.IsNaN(r.Value) || math.IsInf(r.Value, 0) {
				return Invalid("value", "is not a finite number")
			}
			return nil
		},
	)
}

// ValidateID checks a caller-made id: 1 to 128 bytes of valid UTF-8, printable,
// no control characters.
func ValidateID(field, id string) *Error {
	if id == "" {
		return Missing(field)
	}
	return optionalID(field, id)
}

func optionalID(field, id string) *Error {
	if len(id) > maxIDBytes {
		return Invalid(field, fmt.Sprintf("has %d bytes, more than %d", len(id), maxIDBytes))
	}
	if !utf8.ValidString(id) {
		return Invalid(field, "is not valid UTF-8")
	}
	for i, r := range id {
		if !unicode.IsPrint(r) {
			return Invalid(field, fmt.Sprintf("holds the character %U, which is not printable, at byte %d", r, i))
		}
		if r == utf8.RuneError {
			return Invalid(field, fmt.Sprintf("holds a replaced or invalid character at byte %d", i))
		}
	}
	return nil
}

func nonNegative(field string, v *int64) *Error {
	if v != nil && *v < 0 {
		return Invalid(field, fmt.Sprintf("is %d, less than 0", *v))
	}
	return nil
}

func oneOf[T ~string](field string, v T, allowed []T) *Error {
	if slices.Contains(allowed, v) {
		return nil
	}
	names := make([]string, len(allowed))
	for i, a := range allowed {
		names[i] = string(a)
	}
	return Invalid(field, fmt.Sprintf("is %q, not one of %s", truncate(string(v)), strings.Join(names, ", ")))
}

func optionalOneOf(field, v string, allowed []string) *Error {
	if v == "" {
		return nil
	}
	return oneOf(field, v, allowed)
}

func truncate(s string) string {
	if len(s) > 64 {
		return s[:64] + "…"
	}
	return s
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func firstError(checks ...func() *Error) *Error {
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}
