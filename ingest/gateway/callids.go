package gateway

import (
	"icecore/ingest/gateway/parser"
	"icecore/ingest/gateway/turn"
)

// flagCallIDs says that the engine named calls without ids.
const flagCallIDs = "call_ids_minted"

// callIDs gives ids to calls that the engine gave none, before anybody sees them: the
// harness sends back the id that it got, and continuity compares that with what it
// holds.
type callIDs struct {
	traces []string // by choice
	// seen are calls that have an id, and whether it is of ours.
	seen   map[[2]int]bool
	minted bool
}

// fill puts ids where they are missing. An engine's own is never changed; one that
// comes behind ours comes too late, and is left out.
func (m *callIDs) fill(deltas []turn.Delta) {
	for i := range deltas {
		for k := range deltas[i].Calls {
			call := &deltas[i].Calls[k]
			at := [2]int{deltas[i].Choice, call.Index}
			ours, seen := m.seen[at]
			switch {
			case ours:
				call.ID = ""
				continue
			case seen || call.ID == "" && call.Name == "" && call.Arguments == "":
				continue // it has one, or nothing is said of it yet
			case call.ID == "" && at[0] < len(m.traces):
				call.ID = parser.CallID(m.traces[at[0]], call.Index)
				ours, m.minted = true, true
			}
			if m.seen == nil {
				m.seen = map[[2]int]bool{}
			}
			m.seen[at] = ours
		}
	}
}
