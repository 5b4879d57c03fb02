package wire

import (
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/trace"
)

func TestNewKeyJSON(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]trace.NewKey{
		"":                {},
		`{}`:              {},
		`{"label": null}`: {},
		`{"label": "ü", "expires_in_seconds": 316224000}`: {Label: "ü", ExpiresInSeconds: new(int64(316224000))},
	} {
		have, err := NewKeyJSON([]byte(body), Limits{})
		require.NoError(t, err, body)
		require.Equal(t, &want, have, body)
	}
	for body, field := range map[string]string{
		`{"expires_in_seconds": 316224001}`: "expires_in_seconds", `{"expires_in_seconds": 0}`: "expires_in_seconds",
		`{"label": "a\u0007"}`: "label", `{"label": ["a"]}`: "label", `{"key": "ick_0"}`: "key", "{\"label\": \"\xff\"}": "label",
	} {
		_, err := NewKeyJSON([]byte(body), Limits{})
		var fault *trace.Error
		require.ErrorAs(t, err, &fault, body)
		require.Equal(t, field, fault.Field, body)
	}
	_, err := NewKeyJSON([]byte(`{} {}`), Limits{})
	var envelope *EnvelopeError
	require.ErrorAs(t, err, &envelope)
}

func TestVersionNoticeJSON(t *testing.T) {
	t.Parallel()
	have, err := VersionNoticeJSON([]byte(`{"at": "1970-01-01T01:00:00.000001+01:00", "model": "a/b", "policy_version": 9223372036854775807}`), Limits{})
	require.NoError(t, err)
	require.Equal(t, &trace.VersionNotice{PolicyVersion: new(int64(9223372036854775807)), Model: "a/b", At: new(int64(1))}, have)
	for body, field := range map[string]string{
		`{"model": "a"}`: "policy_version", `{"policy_version": 9223372036854775808}`: "policy_version", `{"policy_version": 1.0}`: "policy_version",
		`{"policy_version": 1, "at": "2026-01-01"}`: "at", `{"policy_version": 1, "model": 7}`: "model", `{"policy_version": 1, "x": 1}`: "x",
	} {
		_, err := VersionNoticeJSON([]byte(body), Limits{})
		var fault *trace.Error
		require.ErrorAs(t, err, &fault, body)
		require.Equal(t, field, fault.Field, body)
	}
}
