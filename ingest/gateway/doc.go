// Package gateway is the capturing proxy: harnesses call it in the API of their
// provider, it calls an engine, streams the answer back, and hands one trace for each
// sampled choice to whoever keeps them. DESIGN.md says what holds at every moment.
package gateway
