package store

import (
	"context"
	"fmt"
	"slices"

	"icecore/store/warehouse"
)

// rowParams is the number of parameters of the functions of trajectories.
const rowParams = 5

// rowCall is one call of a trajectory, as a merge left it.
type rowCall struct {
	key, previous        int64
	cut, spanStart, row  int
	hasRow               bool
	tape                 int64
	prompt, response     int
	traceID              string
	policyVersion        int64
	policyVersionIsKnown bool
}

// trajectoryRows are the trajectories of one vector with their calls in order;
// nil for a row with a NULL argument.
type trajectoryRows struct {
	calls   [][]*rowCall
	index   []int
	lengths []int
	starts  []int
}

// loadRows reads what merges made of the calls, and walks each row from its last
// call back to its first. It lays out out by the lengths of the rows, and gives
// the vector of their elements.
func loadRows(ctx context.Context, q warehouse.Querier, args []warehouse.Column, out warehouse.Out,
	lengthOf func(calls []*rowCall, length int) int) (*trajectoryRows, warehouse.Out, error) {
	n := args[0].Len()
	r := &trajectoryRows{calls: make([][]*rowCall, n), index: make([]int, n), lengths: make([]int, n)}
	byGeneration := map[int64]map[int64]*rowCall{}
	var generations, rollouts []int64
	for i := range n {
		r.lengths[i] = -1
		if !given(args, i) {
			continue
		}
		g, _ := args[0].Get(i)
		k, _ := args[1].Get(i)
		length, _ := args[4].Get(i)
		byGeneration[g] = map[int64]*rowCall{}
		generations, rollouts = append(generations, g), append(rollouts, k)
		r.lengths[i] = int(length)
	}
	if len(generations) > 0 {
		if err := loadRowCalls(ctx, q, generations, rollouts, byGeneration); err != nil {
			return nil, warehouse.Out{}, err
		}
	}
	for i := range n {
		if r.lengths[i] < 0 {
			continue
		}
		g, _ := args[0].Get(i)
		row, _ := args[2].Get(i)
		key, _ := args[3].Get(i)
		r.index[i] = int(row)
		for key != 0 {
			c := byGeneration[g][key]
			if c == nil || len(r.calls[i]) > len(byGeneration[g]) {
				return nil, warehouse.Out{}, fmt.Errorf("read trajectories: call %d of merge %d is missing", key, g)
			}
			r.calls[i] = append(r.calls[i], c)
			key = c.previous
		}
		slices.Reverse(r.calls[i])
		r.lengths[i] = lengthOf(r.calls[i], r.lengths[i])
	}
	var list warehouse.Out
	var err error
	r.starts, list, err = layOut(out, r.lengths)
	return r, list, err
}

// given says that no argument of row i is NULL.
func given(args []warehouse.Column, i int) bool {
	return !slices.ContainsFunc(args, func(a warehouse.Column) bool {
		_, ok := a.Get(i)
		return !ok
	})
}

func loadRowCalls(ctx context.Context, q warehouse.Querier, generations, rollouts []int64, into map[int64]map[int64]*rowCall) error {
	err := q.Query(ctx, eachRow(func(c *columnsOf) error {
		generation := c.i64()
		call := &rowCall{key: c.i64()}
		if p := c.optI64(); p != nil {
			call.previous = *p
		}
		call.cut = c.i32()
		call.spanStart, _ = c.optI32()
		call.row, call.hasRow = c.optI32()
		call.tape = c.i64()
		call.prompt, _ = c.optI32()
		call.response, _ = c.optI32()
		call.traceID = c.str()
		if v := c.optI64(); v != nil {
			call.policyVersion, call.policyVersionIsKnown = *v, true
		}
		if m := into[generation]; m != nil {
			m[call.key] = call
		}
		return nil
	}), `SELECT m.generation, m.trace_key, m.previous_key, m.cut, m.span_start, m.row_index,
		t.tape_key, t.prompt_length, t.response_length, t.trace_id, t.policy_version
		FROM ice.merged_traces m JOIN ice.traces t ON t.trace_key = m.trace_key
		WHERE `+keysWhere("m.generation", generations)+` AND `+keysWhere("t.rollout_key", rollouts))
	if err != nil {
		return fmt.Errorf("read trajectories: %w", err)
	}
	return nil
}

// wholeRow is the length of columns that have an element per token.
func wholeRow(_ []*rowCall, length int) int { return length }

func rowIDs(ctx context.Context, q warehouse.Querier, args []warehouse.Column, out warehouse.Out) error {
	r, list, err := loadRows(ctx, q, args, out, wholeRow)
	if err != nil {
		return err
	}
	var needs []need
	for i, calls := range r.calls {
		at := 0
		for _, c := range calls {
			if c.cut < c.prompt+c.response {
				needs = append(needs, need{c.tape, c.cut, c.prompt + c.response, r.starts[i] + at})
				at += c.prompt + c.response - c.cut
			}
		}
		if at != max(r.lengths[i], 0) {
			return fmt.Errorf("read trajectories: the calls of row %d hold %d ids, and the row has %d", r.index[i], at, r.lengths[i])
		}
	}
	return gatherIDs(ctx, q, needs, list.Int32s())
}

func rowMask(ctx context.Context, q warehouse.Querier, args []warehouse.Column, out warehouse.Out) error {
	r, list, err := loadRows(ctx, q, args, out, wholeRow)
	if err != nil {
		return err
	}
	mask := list.Bytes()
	clear(mask)
	for i, calls := range r.calls {
		for _, c := range calls {
			if c.hasRow && c.row == r.index[i] {
				from := r.starts[i] + c.spanStart
				for j := from; j < from+c.response; j++ {
					mask[j] = 1
				}
			}
		}
	}
	return nil
}

func rowLogprobs(ctx context.Context, q warehouse.Querier, args []warehouse.Column, out warehouse.Out) error {
	r, list, err := loadRows(ctx, q, args, out, wholeRow)
	if err != nil {
		return err
	}
	wanted := map[int64][]span{}
	for i, calls := range r.calls {
		for _, c := range calls {
			if c.hasRow {
				wanted[c.key] = append(wanted[c.key], span{c.response, r.starts[i] + c.spanStart})
			}
		}
	}
	return gatherLogprobs(ctx, q, wanted, list)
}

func rowSpans(ctx context.Context, q warehouse.Querier, args []warehouse.Column, out warehouse.Out) error {
	r, list, err := loadRows(ctx, q, args, out, func(calls []*rowCall, _ int) (n int) {
		for _, c := range calls {
			if c.hasRow {
				n++
			}
		}
		return n
	})
	if err != nil {
		return err
	}
	starts, ends, trainable, versions := list.Field(1).Int32s(), list.Field(2).Int32s(), list.Field(3).Flags(), list.Field(4)
	at := 0
	for i, calls := range r.calls {
		for _, c := range calls {
			if !c.hasRow {
				continue
			}
			list.Field(0).Text(at, []byte(c.traceID))
			starts[at], ends[at] = int32(c.spanStart), int32(c.spanStart+c.response)
			trainable[at] = c.row == r.index[i]
			if c.policyVersionIsKnown {
				versions.Int64s()[at] = c.policyVersion
			} else {
				versions.Null(at)
			}
			at++
		}
	}
	return nil
}
