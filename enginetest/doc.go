// Package enginetest is an inference server without a model: the faces of vLLM and
// SGLang in the generations that differ, and of a server that tells no ids, with a
// byte-level tokenizer, a chat template, scripted agents and faults, and a ledger
// of what it really sampled.
//
// An Engine is an http.Handler. Each face lies under a prefix of its own; what an
// engine's base URL would be is the server's URL and the prefix:
//
//	/vllm             vLLM: chat, completions, generate, tokenize, weights, pause, abort
//	/sglang-0.5.13    SGLang: prompt ids and meta_info in answers that are not streamed
//	/sglang-30917     SGLang: return_token_ids, refused (400) in a streamed chat
//	/sglang-sglext    SGLang: sglext, ids in one chunk near a stream's end
//	/plain            any server of OpenAI's chat completions that tells no ids
//
// Everything that is sampled follows from the seed, the script and the prompt: the
// same request is answered with the same ids on every face and in every process.
// A sampled id's log-probability is a function of all ids before it and of itself
// (Logprob), so whoever holds a prompt and an answer can prove that each
// log-probability stands beside the id that it belongs to.
//
// What is answered is said by a Script: turns in their order, a function, or a
// built-in agent that uses a shell tool like a coding agent. A script belongs to a
// model's name; the header X-Script names another for one request. Scripts also
// switch the template, the tokenisation, how ids and log-probs are told, chunking,
// time, faults and weights. The zero Script answers well.
//
// The ledger (Engine.Ledger, GET /_ledger) tells for each request what the engine
// saw and sampled, and how it ended, also where the answer hid or lost it.
//
// A process of its own (icecore test-engine) is told by HTTP what a test tells in Go:
// PUT /_scripts/{name}, GET and DELETE /_ledger, PUT /_health/{up,down}, POST /_restart.
package enginetest
