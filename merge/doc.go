// Package merge turns the traces of one rollout into trajectories. A policy is
// a pure function: it reads token ids and a handful of fields beside them, never
// a clock, a disk or the order in which traces happened to arrive.
//
// A Tree takes the calls of a rollout as they come and links them by their
// tokens; Run applies a policy to what the tree holds. Nothing is copied: a
// trajectory is given as ranges over the calls that went in.
//
// Three policies exist: strict_tree (the default), per_request, and
// polar_compat, which repeats the prefix_merging builder of Polar
// (NVIDIA-NeMo/ProRL-Agent-Server, src/polar/trajectory/builder; arXiv
// 2605.24220) so that published runs can be compared.
//
// DESIGN.md says where loss masks come from, what must always hold, and what it
// costs.
package merge
