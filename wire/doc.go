// Package wire turns request bytes into vocabulary, item by item.
//
// It reads JSON, NDJSON and Arrow IPC streams into the types of package trace.
// One bad item refuses that item only; what cannot be read at all is an
// EnvelopeError. Nothing that is returned points into the request's bytes, so
// the caller may reuse its buffer at once.
package wire
