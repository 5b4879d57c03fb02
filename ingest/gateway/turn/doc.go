// Package turn is one model call in the form that engines take (messages and tools
// of OpenAI's Chat Completions) and its answer as a stream of deltas, whichever
// provider API it crosses the gateway in. It is pure data: providers read and write
// it, engines send and sample it, and it knows neither.
package turn
