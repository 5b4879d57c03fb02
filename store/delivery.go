package store

import "errors"

// Candidate is a group that a consumer may be given: no lease of the consumer
// holds it, and it is not settled for it. Times are microseconds since the Unix
// epoch, UTC; 0: there is none.
type Candidate struct {
	// Key is the group_key, by which the other calls name the group.
	Key int64
	// GroupID is empty for a rollout without one, which is a group by itself.
	GroupID string
	// Declared is the largest group_size that its rollouts say; nil: none says.
	Declared *int64
	// Known counts its rollouts, Finished those that ended, Settled those that
	// ended and have an outcome reward or failed.
	Known, Finished, Settled int
	// FinishedAt is when the rollout ended that ended last.
	FinishedAt int64
	// NewestAt is when its newest rollout was opened.
	NewestAt int64
	// IncompleteAt is the newest change of a finished rollout that still lacks
	// announced calls.
	IncompleteAt int64
}

// Pin says what of a rollout a lease delivers: its calls up to a batch, and the
// reward that counted. RewardID is empty when it had none.
type Pin struct {
	Rollout   int64
	LastBatch int64
	RewardID  string
}

// LeasedGroup is one group of a lease that is to be opened.
type LeasedGroup struct {
	Key int64
	// Shards holds the group's rows: one, or several when it is split.
	Shards []int
	// PolicyVersionMin is the oldest version in its rows; nil: not known.
	PolicyVersionMin *int64
	Pins             []Pin
}

// Skip settles a group for a consumer without giving it out.
type Skip struct {
	Key              int64
	Reason           string
	PolicyVersionMin *int64
}

// NewLease is what a lease is opened with.
type NewLease struct {
	Consumer string
	// Key names the lease for the consumer; empty: one is made.
	Key string
	// Request and Plan are kept as they are. The plan is dropped when the lease
	// is settled.
	Request, Plan []byte
	Shards        int
	Seconds       int
	Groups        []LeasedGroup
	Skips         []Skip
	// What the lease delivers, for whoever counts.
	Rollouts, Rows  int
	Tokens, Trained int64
}

// What a lease can be.
const (
	LeaseOpen         = "open"
	LeaseAcknowledged = "acknowledged"
	LeaseReturned     = "returned"
	LeaseCancelled    = "cancelled"
	// LeaseExpired: its time passed. Until another lease is given one of its
	// groups (SettledAt is 0) it can still be acknowledged, extended, returned.
	LeaseExpired = "expired"
)

// Lease is the state of a lease. Times are microseconds since the Unix epoch,
// UTC.
type Lease struct {
	ID, Consumer, Key string
	Request           []byte
	// Plan is nil once the lease is settled.
	Plan    []byte
	State   string
	Shards  int
	Seconds int
	// Acked lists the acknowledged shards, ascending.
	Acked                  []int
	Groups, Rollouts, Rows int
	Tokens, Trained        int64
	CreatedAt              int64
	// ExpiresAt is when its groups go back to the queue; of a returned lease,
	// when its delay ends.
	ExpiresAt int64
	// SettledAt is when nothing could become of it any more; 0: not yet.
	SettledAt int64

	rowKey int64
}

var (
	// ErrGroupTaken says that a group, or a rollout in it, went to another lease
	// since the plan was made: plan again.
	ErrGroupTaken = errors.New("a group of the plan was given to another lease")
	// ErrLeaseAcked says that the lease is acknowledged.
	ErrLeaseAcked = errors.New("the lease is acknowledged")
	// ErrLeaseLost says that the lease no longer holds its groups.
	ErrLeaseLost = errors.New("the lease no longer holds its groups")
	// ErrNoShard says that the lease has no such shard.
	ErrNoShard = errors.New("the lease has no such shard")
)

// Seek is where a consumer goes on. The zero value is the beginning; one field
// at most is set.
type Seek struct {
	// Time: groups whose last rollout finished at or after it (microseconds).
	Time *int64
	// PolicyVersion: groups of which all rows are of this version or a newer one.
	PolicyVersion *int64
	// End: groups that finish from now on.
	End bool
}

// Delivered counts what was acknowledged since the consumer was made. Groups
// counts every acknowledged group, also of leases that were acknowledged in
// part; the rest counts leases that were acknowledged as a whole.
type Delivered struct {
	Leases, Groups, Rollouts, Rows int64
	Tokens, Trained                int64
}

// ChangedAfterLease counts rollouts that changed after they were given out, by
// leases that are open or acknowledged.
type ChangedAfterLease struct {
	// Rollouts changed in one way or the other.
	Rollouts int64
	// Reopened got another trace, RewardedAnew another outcome reward.
	Reopened, RewardedAnew int64
	// Late are finished rollouts of groups in such leases that came too late to be
	// in one; Rollouts does not count them.
	Late int64
}

// ConsumerState is how far a consumer is. What it may be given next, and so its
// lag, is what Candidates lists.
type ConsumerState struct {
	Name      string
	CreatedAt int64
	// FromTime and FromPolicyVersion are bounds that a seek set; nil: none.
	FromTime          *int64
	FromPolicyVersion *int64
	Acknowledged      Delivered
	// OpenLeases are those that hold groups now, oldest first, without Request
	// and Plan.
	OpenLeases []Lease
	// ExpiredLeases counts those whose time passed without an ack, ReturnedLeases
	// those that a learner gave back.
	ExpiredLeases, ReturnedLeases int64
	// RedeliveredGroups counts the times that a group was given out again.
	RedeliveredGroups int64
	Changed           ChangedAfterLease
	// Skipped counts the groups settled without delivery, by reason.
	Skipped map[string]int64
}
