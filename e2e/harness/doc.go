// Harness runs the real harnesses, headless, through the gateway of a real server
// against the test engine, and compares what was stored with the engine's own ledger,
// id for id.
//
// Each harness does a small coding task of several turns in a directory of its own:
// it looks, runs a test that fails, edits, runs the test again, answers. The engine's
// agent (agent.go) drives whatever tools the harness offers. A variant (variants.go)
// makes one thing different: thinking, a sub-agent, a compaction, a fault, sampling
// that drifts.
//
// Besides, streaming.go shows for each provider API that tokens are passed on as they
// are made: the engine lets token k+1 out only when the client has seen token k.
package main
