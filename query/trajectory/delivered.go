package trajectory

import (
	"errors"

	"github.com/apache/arrow-go/v18/arrow/array"

	"icecore/merge"
)

// Delivered is what a lease says of a row beyond the row itself: the columns that
// trace.DeliverySchema appends, but for the shared prefixes, which are found on
// the way out.
type Delivered struct {
	// GroupIndex and RolloutIndex are dense over the whole lease, from 0.
	GroupIndex, RolloutIndex int
	// GroupFinished counts the group's finished rollouts, GroupScored those that
	// mean and deviation were taken over.
	GroupFinished, GroupScored int
	// Advantage is that of the rollout; nil: it has no reward.
	Advantage     *float32
	ZeroAdvantage bool
	Weight        float32
	Shard         int
	// Microbatch is nil when none were asked for.
	Microbatch *int
}

// delivered appends the columns of a lease.
func (s *Arrow) delivered(r *Row, d *Delivered) error {
	if d == nil {
		return errors.New("make Arrow row: what the lease says of the row is missing")
	}
	s.i32(d.GroupIndex)
	s.i32(d.RolloutIndex)
	s.i32(d.GroupFinished)
	s.i32(d.GroupScored)
	if b := s.next().(*array.Float32Builder); d.Advantage != nil {
		b.Append(*d.Advantage)
	} else {
		b.AppendNull()
	}
	s.flag(d.ZeroAdvantage)
	s.next().(*array.Float32Builder).Append(d.Weight)
	s.i32(d.Shard)
	s.optI32(d.Microbatch)
	row, shared := s.prefixes.add(d.GroupIndex, r)
	s.optI32(row)
	s.i32(shared)
	return nil
}

func (s *Arrow) optI32(v *int) {
	if v == nil {
		s.next().AppendNull()
		return
	}
	s.i32(*v)
}

// prefixes finds for each row of a stream the earlier row of its group that
// shares the longest beginning with it. It holds one group's ids, as long as the
// group lasts.
type prefixes struct {
	rows  int // of the stream
	group int
	first int // the stream's first row of the group
	tree  *merge.Prefixes
}

// add gives the place in the stream of the earliest row that reaches the longest
// common beginning, and its length; nil for the first row of a group. Rows of a
// group must come one behind another.
func (p *prefixes) add(group int, r *Row) (row *int, shared int) {
	if p.tree == nil || group != p.group {
		p.group, p.first, p.tree = group, p.rows, merge.NewPrefixes()
	}
	p.rows++
	nearest, shared := p.tree.Add(r.tokens)
	if nearest == merge.None {
		return nil, 0
	}
	at := p.first + nearest
	return &at, shared
}
