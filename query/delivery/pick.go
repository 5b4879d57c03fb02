package delivery

import (
	"icecore/query/advantage"
	"icecore/store"
)

// pick is a group that is delivered, or would be if there were room.
type pick struct {
	group store.Candidate
	// finished counts the group's rollouts that ended.
	finished int
	members  []*member
	left     leftOut

	// Of the rows of all members.
	rows, longest   int
	tokens, trained int64
	// oldest is the least policy version of a row; unknown: some row has none.
	oldest  *int64
	unknown bool
	// outcome has the members' advantages, but those of reinforce_pp: they are
	// computed over the whole lease.
	outcome    advantage.Group
	unscorable bool
}

// version is the oldest policy version of the group's rows; nil: that of some row
// is not known.
func (p *pick) version() *int64 {
	if p.unknown {
		return nil
	}
	return p.oldest
}

// delivering counts the members that have rows.
func (p *pick) delivering() (n int) {
	for _, m := range p.members {
		if len(m.rows) > 0 {
			n++
		}
	}
	return n
}

// member is a rollout that takes part in its group: it is scored, or has rows.
type member struct {
	store.Rollout
	rewardID string
	// reward is what it is scored with; nil: never rewarded.
	reward *float64
	// through is the batch up to which its calls count.
	through int64
	rows    []row
	trained int64
}

// newerThan counts the rows that have tokens of a newer policy version; nil: of
// none.
func (m *member) newerThan(version *int64) (n int) {
	for _, r := range m.rows {
		if version != nil && r.newest != nil && *r.newest > *version {
			n++
		}
	}
	return n
}

// row is one row that is delivered of a member.
type row struct {
	index, length, trained int
	// oldest and newest policy version; nil: not known.
	oldest, newest *int64
}

// leftOut counts what a delivered group has that is not delivered.
type leftOut struct {
	ExcludedFailed, ExcludedIncomplete, ScoredFailed int
	Unfinished, Unscored, Repeated, UnpromptedRows   int
	// BeyondDeclared are not left out: so many more take part than were declared.
	BeyondDeclared int
}

func (l *leftOut) add(o leftOut) {
	l.ExcludedFailed += o.ExcludedFailed
	l.ExcludedIncomplete += o.ExcludedIncomplete
	l.ScoredFailed += o.ScoredFailed
	l.Unfinished += o.Unfinished
	l.Unscored += o.Unscored
	l.Repeated += o.Repeated
	l.UnpromptedRows += o.UnpromptedRows
	l.BeyondDeclared += o.BeyondDeclared
}
