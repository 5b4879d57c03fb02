package main

import (
	"encoding/json"
	"regexp"
	"strings"
	"sync/atomic"

	"icecore/enginetest"
)

// agent is what the engine's "model" does in one rollout. It goes by what the
// conversation shows and not by counting: harnesses rewrite their history.
type agent struct {
	dir      string // where the task lies: some tools want whole paths
	think    bool
	delegate bool
	// bulk makes the first test run print much, so that the context must be compacted.
	bulk bool
	// How often a summary was asked for, and a sub-agent reported.
	summaries, reports atomic.Int64
}

func (a *agent) turn(seen *enginetest.Seen) enginetest.Turn {
	t := a.next(&conversation{seen})
	if a.think {
		t.Reasoning = "What do I know? \"Only\" what <the> files say — größtenteils.\n\nSo: one step further."
	}
	return t
}

func (a *agent) next(c *conversation) enginetest.Turn {
	switch {
	case c.Assistant > 40: // a harness that does not take what it is given
		return enginetest.Turn{Text: "I give up."}
	case c.wantsSummary():
		a.summaries.Add(1)
		return enginetest.Turn{Text: "<state_snapshot><analysis>Where things stand.</analysis><summary>Known so far: " + c.marks() + ".</summary></state_snapshot>"}
	case c.offered("shell") == nil:
		return enginetest.Turn{Text: "There is nothing that I could run."}
	case c.users(subtaskTag):
		return a.subtask(c)
	case a.delegate && !c.says(reportMark):
		if t, ok := delegate(c); ok {
			return t
		}
	}
	switch {
	case c.says(passedMark):
		return enginetest.Turn{Text: "sum.sh took the difference. It takes the sum now, and the test passes."}
	case c.edited() && strings.Contains(c.lastResult(), failedMark): // the tool refused, or changed nothing
		return sed(c)
	case c.edited():
		return run(c, "The change is made; does it help?", "sh test.sh")
	case c.says(failedMark):
		return a.edit(c)
	case c.says(wrongLine[:18]):
		command := "sh test.sh || true"
		if a.bulk {
			// Its result stands before and behind: tools cut long output somewhere.
			command = "sh test.sh; seq 1 6000; " + command
		}
		return run(c, "", command)
	}
	return a.look(c)
}

func run(c *conversation, text, command string) enginetest.Turn {
	return enginetest.Turn{Text: text, Calls: []enginetest.Call{c.call("shell", command)}}
}

// look makes parallel calls where there is a tool to read with.
func (a *agent) look(c *conversation) enginetest.Turn {
	t := run(c, "First a look at what is there.\n", "ls; git log --oneline | cat; cat \"test.sh\"")
	if c.offered("read") != nil {
		t.Calls = append(t.Calls, c.call("read", a.dir+"/sum.sh"))
	} else {
		t.Calls = append(t.Calls, c.call("shell", "cat sum.sh"))
	}
	return t
}

const patch = "*** Begin Patch\n*** Update File: sum.sh\n@@\n #!/bin/sh\n-" + wrongLine + "\n+" + rightLine + "\n*** End Patch\n"

func (a *agent) edit(c *conversation) enginetest.Turn {
	t := enginetest.Turn{Text: "A minus where a plus belongs."}
	switch {
	case c.offered("patch") != nil:
		t.Calls = []enginetest.Call{c.call("patch", patch)}
	case c.offered("edit") != nil:
		t.Calls = []enginetest.Call{c.call("edit", a.dir+"/sum.sh")}
	default:
		return sed(c)
	}
	return t
}

func sed(c *conversation) enginetest.Turn {
	return run(c, "The stream editor can do that.", `sed -i 's/\$1 - \$2/$1 + $2/' sum.sh && git diff | cat && echo ICE-"EDITED"`)
}

// subtask is the delegated agent's way.
func (a *agent) subtask(c *conversation) enginetest.Turn {
	if c.says(wrongLine[:18]) {
		a.reports.Add(1)
		return enginetest.Turn{Text: reportMark + ": sum.sh subtracts."}
	}
	return run(c, "", "cat sum.sh")
}

var agentID = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// delegate starts a sub-agent, and waits for it where the harness has it run beside.
func delegate(c *conversation) (enginetest.Turn, bool) {
	task := subtaskTag + ": look at sum.sh and report what it does."
	started := c.called("spawn")
	switch {
	case c.offered("spawn") == nil:
		return enginetest.Turn{}, false
	case !started:
		return enginetest.Turn{Text: "Somebody else may look.", Calls: []enginetest.Call{c.call("spawn", task)}}, true
	case c.offered("wait") != nil:
		id := agentID.FindString(c.lastResult())
		arguments, _ := json.Marshal(map[string]any{"targets": []string{id}, "timeout_ms": 60000}) // maps of text marshal
		return enginetest.Turn{Calls: []enginetest.Call{{Name: c.offered("wait").Name, Arguments: string(arguments)}}}, true
	}
	return enginetest.Turn{}, false
}

// conversation is a request as the agent reads it.
type conversation struct{ *enginetest.Seen }

// says looks for a text wherever somebody other than the harness itself put it.
func (c *conversation) says(text string) bool {
	for _, m := range c.Messages {
		if m.Role != "system" && strings.Contains(m.Content, text) {
			return true
		}
	}
	return false
}

func (c *conversation) users(text string) bool {
	for _, m := range c.Messages {
		if m.Role == "user" && strings.Contains(m.Content, text) {
			return true
		}
	}
	return false
}

// edited says whether the wrong line was replaced: a call did it, or a summary says so.
func (c *conversation) edited() bool {
	if c.says(editedMark) {
		return true
	}
	for _, m := range c.Messages {
		for _, call := range m.Calls {
			if strings.Contains(call.Arguments, "$1 + $2") {
				return true
			}
		}
	}
	return false
}

// wantsSummary knows a compaction: no tools, or the demand to call none.
func (c *conversation) wantsSummary() bool {
	if len(c.Tools) == 0 {
		return true
	}
	for i := len(c.Messages) - 1; i >= 0; i-- {
		if m := c.Messages[i]; m.Role == "user" {
			return strings.Contains(strings.ToLower(m.Content), "do not call any tools")
		}
	}
	return false
}

func (c *conversation) marks() string {
	var out []string
	for _, mark := range []string{failedMark, passedMark, reportMark} {
		if c.says(mark) {
			out = append(out, mark)
		}
	}
	if c.edited() {
		out = append(out, editedMark)
	}
	return strings.Join(out, ", ")
}

func (c *conversation) lastResult() string {
	for i := len(c.Messages) - 1; i >= 0; i-- {
		if c.Messages[i].Role == "tool" {
			return c.Messages[i].Content
		}
	}
	return ""
}
