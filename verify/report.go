package verify

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// Finding is one fault.
type Finding struct {
	Check   string `json:"check"`
	Rollout string `json:"rollout,omitempty"`
	Trace   string `json:"trace,omitempty"`
	Message string `json:"message"`
}

// Check is one kind of question that was asked, how often, and how often the
// answer was wrong.
type Check struct {
	Name    string `json:"name"`
	What    string `json:"what"`
	Checked int64  `json:"checked"`
	Failed  int64  `json:"failed"`
}

// Report is what Run found.
type Report struct {
	// ThroughBatch is the newest batch that was looked at.
	ThroughBatch int64 `json:"through_batch"`
	Rollouts     int64 `json:"rollouts"`
	Traces       int64 `json:"traces"`
	// Tokens counts the ids that tapes hold, each once.
	Tokens       int64 `json:"tokens"`
	Bodies       int64 `json:"bodies"`
	Generations  int64 `json:"generations"`
	Trajectories int64 `json:"trajectories"`
	// Behind counts merges that lack a rollout's newest traces, and rollouts
	// that no policy has merged: work to do, not a fault.
	Behind int64 `json:"behind"`
	// Ahead counts merges of traces newer than ThroughBatch, which were left to
	// the next run.
	Ahead int64 `json:"ahead"`

	Checks   []Check   `json:"checks"`
	Findings []Finding `json:"findings"`
	// Truncated counts the findings of each check beyond Options.MaxFindings.
	Truncated   map[string]int64 `json:"truncated,omitempty"`
	TookSeconds float64          `json:"took_seconds"`

	max int
}

// Names of the checks.
const (
	checkTapes      = "tapes"
	checkTraces     = "traces"
	checkLogprobs   = "logprobs"
	checkBodies     = "bodies"
	checkContent    = "content"
	checkIndex      = "index"
	checkJournal    = "journal"
	checkDrains     = "drains"
	checkCounters   = "counters"
	checkRollouts   = "rollouts"
	checkRewards    = "rewards"
	checkIntents    = "intents"
	checkMerges     = "merges"
	checkFaithful   = "faithful"
	checkConserved  = "conserved"
	checkPolicy     = "policy"
	checkGroups     = "groups"
	checkLeases     = "leases"
	checkDeliveries = "delivery"
	checkPins       = "pins"
	checkLearner    = "learner"
)

func newReport(maxFindings int) *Report {
	return &Report{max: maxFindings, Findings: []Finding{}, Checks: []Check{
		{Name: checkTapes, What: "tapes: parents, forks and chunks hang together"},
		{Name: checkTraces, What: "traces: ids are there, give the prompt hash, fields are sane"},
		{Name: checkLogprobs, What: "traces: log-probabilities cover the response exactly"},
		{Name: checkBodies, What: "bodies: decompress along their chains to their size"},
		{Name: checkContent, What: "traces: all that is stored gives the content hash"},
		{Name: checkIndex, What: "traces: index and warehouse know the same ones"},
		{Name: checkJournal, What: "journal parts: decode, are indexed, match the warehouse"},
		{Name: checkDrains, What: "warehouse tables: no batch twice, none ahead of the drains"},
		{Name: checkCounters, What: "counters: lie beyond every key in use"},
		{Name: checkRollouts, What: "rollouts: counts and attributes agree in both databases"},
		{Name: checkRewards, What: "rewards: agree in both databases"},
		{Name: checkIntents, What: "intents: none whose trace is stored"},
		{Name: checkMerges, What: "merges: complete, named and counted right"},
		{Name: checkFaithful, What: "spans: stand after exactly the prompt they were sampled from"},
		{Name: checkConserved, What: "merges: every sampled token is accounted for once"},
		{Name: checkPolicy, What: "merges: the law, computed anew, gives the same"},
		{Name: checkGroups, What: "groups: are known, and sums that are not stale are right"},
		{Name: checkLeases, What: "leases: state, shards and groups agree"},
		{Name: checkDeliveries, What: "groups of consumers: acknowledged when all their shards are"},
		{Name: checkLearner, What: "learners' log-probs: whole, on their traces' places, indexed"},
		{Name: checkPins, What: "delivered rollouts: exist, are given out once, changes are seen"},
	}}
}

func (r *Report) check(name string) *Check {
	for i := range r.Checks {
		if r.Checks[i].Name == name {
			return &r.Checks[i]
		}
	}
	panic("verify: no check is called " + name)
}

func (r *Report) checked(name string, n int) { r.check(name).Checked += int64(n) }

func (r *Report) fail(check, rollout, trace, format string, args ...any) {
	c := r.check(check)
	c.Failed++
	if c.Failed > int64(r.max) {
		if r.Truncated == nil {
			r.Truncated = map[string]int64{}
		}
		r.Truncated[check]++
		return
	}
	r.Findings = append(r.Findings, Finding{check, rollout, trace, fmt.Sprintf(format, args...)})
}

// OK says that no fault was found.
func (r *Report) OK() bool {
	for _, c := range r.Checks {
		if c.Failed > 0 {
			return false
		}
	}
	return true
}

// Text writes the report for people: a line per check, the findings, the
// verdict.
func (r *Report) Text(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "batches up to %d: %s rollouts, %s traces, %s tokens, %s bodies, %s merges with %s trajectories\n\n",
		r.ThroughBatch, grouped(r.Rollouts), grouped(r.Traces), grouped(r.Tokens), grouped(r.Bodies), grouped(r.Generations),
		grouped(r.Trajectories))
	for _, c := range r.Checks {
		mark := "ok  "
		if c.Failed > 0 {
			mark = "FAIL"
		}
		fmt.Fprintf(&b, "%s  %-9s  %13s checked  %9s failed  %s\n", mark, c.Name, grouped(c.Checked), grouped(c.Failed), c.What)
	}
	b.WriteByte('\n')
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "%s: %s\n", f.Check, f.place()+f.Message)
	}
	for _, c := range r.Checks {
		if n := r.Truncated[c.Name]; n > 0 {
			fmt.Fprintf(&b, "%s: and %s more\n", c.Name, grouped(n))
		}
	}
	if len(r.Findings) > 0 {
		b.WriteByte('\n')
	}
	if r.Behind > 0 {
		fmt.Fprintf(&b, "note: %s merges do not hold the newest traces yet\n", grouped(r.Behind))
	}
	if r.Ahead > 0 {
		fmt.Fprintf(&b, "note: %s merges of newer batches were left out\n", grouped(r.Ahead))
	}
	took := time.Duration(r.TookSeconds * float64(time.Second)).Round(time.Millisecond)
	if r.OK() {
		fmt.Fprintf(&b, "verified in %v: everything agrees\n", took)
	} else {
		fmt.Fprintf(&b, "verified in %v: FAULTS WERE FOUND\n", took)
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

func (f *Finding) place() string {
	switch {
	case f.Rollout != "" && f.Trace != "":
		return fmt.Sprintf("rollout %s, trace %s: ", f.Rollout, f.Trace)
	case f.Rollout != "":
		return fmt.Sprintf("rollout %s: ", f.Rollout)
	case f.Trace != "":
		return fmt.Sprintf("trace %s: ", f.Trace)
	}
	return ""
}

// grouped writes 1234567 as 1,234,567.
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
