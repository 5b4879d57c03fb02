// Package store keeps traces: a control database that makes an acknowledgement
// durable, a warehouse that answers questions, and the drain between them. Its
// invariants stand in DESIGN.md.
package store
