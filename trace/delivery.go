package trace

import (
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
)

// DeliverySchema is one row of a lease: the columns of TrajectorySchema, then
// what the lease says of the row. "Row" and "stream" are those of one answer;
// indexes count over the whole lease, also where only a shard of it is sent.
//
// In a lease, the columns of TrajectorySchema describe the row as it is delivered
// (cut to the kinds asked for), and count the rollout's delivered rows. reward is
// the one that counted when the lease was made.
var DeliverySchema = arrow.NewSchema(append(slices.Clone(TrajectorySchema.Fields()),
	// Dense over the lease, from 0. Rows stand by group, then by rollout.
	field("group_index", arrow.PrimitiveTypes.Int32, false),
	field("rollout_index", arrow.PrimitiveTypes.Int32, false),
	// The group's finished rollouts, and those that its mean was taken over.
	field("group_finished", arrow.PrimitiveTypes.Int32, false),
	field("group_scored", arrow.PrimitiveTypes.Int32, false),
	// Of the rollout, not yet scaled by weight; null: it has no reward.
	field("advantage", arrow.PrimitiveTypes.Float32, true),
	// All rewards of the group are equal, or only one is known.
	field("zero_advantage", arrow.FixedWidthTypes.Boolean, false),
	// advantage times weight counts rows as row_weight asked.
	field("weight", arrow.PrimitiveTypes.Float32, false),
	field("shard", arrow.PrimitiveTypes.Int32, false),
	// Within the shard, from 0; null: none were asked for.
	field("microbatch", arrow.PrimitiveTypes.Int32, true),
	// The place in the stream of the earlier row of the same group that shares the
	// longest beginning (the first such), and its length; null and 0 for the first
	// row of a group.
	field("shared_prefix_row", arrow.PrimitiveTypes.Int32, true),
	field("shared_prefix_len", arrow.PrimitiveTypes.Int32, false),
), nil)
