// Package torture kills the real server, fills its disk and damages its files,
// and holds what it serves afterwards against the list of what it acknowledged.
// It has tests only:
//
//	go test ./torture -torture.rounds=40 -torture.seed=7
//
// The oracle is the client. Whatever a request was answered "stored" or
// "duplicate" is there exactly once and as it was sent; what was sent without an
// answer is there whole or not at all; what is merged and exported is what
// package merge makes of the traces that are there.
//
// Calls of the gateway have one more: what the engine noted that it sampled. icecore,
// the engine and the harness are processes of their own there, and each is killed.
package torture
