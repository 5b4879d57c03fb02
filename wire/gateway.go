package wire

import "icecore/trace"

var keyFields = newTable(refuseUnknown,
	field[trace.NewKey]{name: "label", set: plainText(func(k *trace.NewKey) *string { return &k.Label })},
	field[trace.NewKey]{name: "expires_in_seconds", set: optionalInteger(func(k *trace.NewKey) **int64 { return &k.ExpiresInSeconds })},
)

// NewKeyJSON reads the body of POST /v1/rollouts/{rollout_id}/keys, which may be
// empty. The error is an *EnvelopeError or a *trace.Error.
func NewKeyJSON(body []byte, lim Limits) (*trace.NewKey, error) {
	if len(body) == 0 {
		return &trace.NewKey{}, nil
	}
	return readOne(body, lim, keyFields, (*trace.NewKey).Validate)
}

var versionFields = newTable(refuseUnknown,
	field[trace.VersionNotice]{name: "policy_version", set: optionalInteger(func(n *trace.VersionNotice) **int64 { return &n.PolicyVersion })},
	field[trace.VersionNotice]{name: "model", set: plainText(func(n *trace.VersionNotice) *string { return &n.Model })},
	field[trace.VersionNotice]{name: "at", set: moment(func(n *trace.VersionNotice) **int64 { return &n.At })},
)

// VersionNoticeJSON reads the body of PUT /v1/policy_version. The error is an
// *EnvelopeError or a *trace.Error.
func VersionNoticeJSON(body []byte, lim Limits) (*trace.VersionNotice, error) {
	return readOne(body, lim, versionFields, (*trace.VersionNotice).Validate)
}

// plainText is a text that is not repaired: what it names must be what was meant.
func plainText[T any](at func(*T) *string) setter[T] {
	return func(s *scanner, dst *T) (err error) {
		*at(dst), err = cleanText(s)
		return err
	}
}
