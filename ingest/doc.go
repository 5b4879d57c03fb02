// Package ingest takes traces, intents, rollouts and rewards in over HTTP: it
// decodes and validates, has the store make them durable, and answers item by
// item. The decoders are in package wire.
package ingest
