package openai

import (
	"strconv"
	"strings"

	"icecore/ingest/gateway/turn"
)

// Calls follows the tool calls of one choice as they stream: it counts them from 0 in
// the order of their first appearance, holds what came before a call's name, and gives
// an id to a call whose engine gave none.
type Calls struct {
	// TraceID is what made-up ids are made of.
	TraceID string
	all     []*Call
}

// Call is a call that goes on.
type Call struct {
	At       int
	ID, Name string
	index    int
	begun    bool
	held     []byte
}

// Add takes what a call went on by. Begins: this is the first that may be told of it;
// arguments is what is told now. A call without a name yet gives nil.
func (c *Calls) Add(d turn.CallDelta) (call *Call, begins bool, arguments string) {
	for _, had := range c.all {
		if had.index == d.Index {
			call = had
		}
	}
	if call == nil {
		call = &Call{At: len(c.all), index: d.Index}
		c.all = append(c.all, call)
	}
	if call.begun {
		return call, false, d.Arguments
	}
	if call.ID == "" {
		call.ID = d.ID
	}
	call.Name = d.Name
	call.held = append(call.held, d.Arguments...)
	if call.Name == "" {
		return nil, false, ""
	}
	return call, true, c.begin(call)
}

// Rest gives the calls that never got a name, with all their arguments.
func (c *Calls) Rest(each func(call *Call, arguments string)) {
	for _, call := range c.all {
		if !call.begun {
			each(call, c.begin(call))
		}
	}
}

func (c *Calls) begin(call *Call) string {
	call.begun = true
	if call.ID == "" {
		call.ID = CallID(c.TraceID, call.At)
	}
	arguments := string(call.held)
	call.held = nil
	return arguments
}

// CallID makes an id for the call at a place of a trace's answer.
func CallID(traceID string, at int) string {
	return "call_" + Short(traceID) + "_" + strconv.Itoa(at)
}

// Short is a trace's id as it stands in ids that we make.
func Short(traceID string) string { return strings.ReplaceAll(traceID, "-", "") }
