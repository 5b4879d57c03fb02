// Package template renders chat templates of Hugging Face models in the gateway, for
// engines that cannot say what they make of messages. It follows how transformers
// sets up Jinja: block trimming, tojson without escapes, raise_exception,
// strftime_now, loop controls, generation blocks.
//
// The Jinja in Go is not the one in Python, and engines prepare messages each in their
// way. So nothing may rest on a rendering alone: set it against the prompt ids of calls
// that the engine rendered itself (continuity.Trust), under a name that holds the
// engine, the model and the form of tools, and use it only as far as it agreed. What
// cannot be rendered surely is an error: images, numbers beyond 64 bits.
package template
