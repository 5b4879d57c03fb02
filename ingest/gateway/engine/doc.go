// Package engine calls inference engines (vLLM, SGLang, and other servers that speak
// Chat Completions) and reads what they truly saw and sampled: token ids,
// log-probabilities, versions of the weights. It keeps a pool of engines, asks after
// their health and models, and learns by trying what each can give.
package engine
