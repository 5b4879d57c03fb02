package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"icecore/store/warehouse"
)

// The views of the SQL face give whole prompts, trajectories and bodies; these
// functions are how. Each takes integer keys and works on a vector of rows: it
// asks the warehouse once for what all of them need, and copies ids straight
// into DuckDB's memory.

// maxVectorIDs bounds what one column of one vector may hold: 512 MiB of ids.
// DuckDB does not count it towards its memory limit, so somebody must.
const maxVectorIDs = 1 << 27

// spanType is an element of the column spans of the view trajectories.
var spanType = arrow.StructOf(
	arrow.Field{Name: "trace_id", Type: text}, arrow.Field{Name: "start", Type: i32}, arrow.Field{Name: "end", Type: i32},
	arrow.Field{Name: "trainable", Type: flag}, arrow.Field{Name: "policy_version", Type: i64})

// Functions are what the warehouse's views are made of.
func Functions() []warehouse.Function {
	return []warehouse.Function{
		// ice_tape_ids(tape_key, start, stop): ids start to stop of a tape.
		{Name: "ice_tape_ids", Params: 3, Result: ids, Run: tapeIDs},
		// ice_trace_logprobs(trace_key, response_length).
		{Name: "ice_trace_logprobs", Params: 2, Result: floats, Run: traceLogprobs},
		// ice_body_request(rollout_key, trace_key), and ice_body_response.
		{Name: "ice_body_request", Params: 2, Result: text, Run: bodiesOf("request")},
		{Name: "ice_body_response", Params: 2, Result: text, Run: bodiesOf("response")},
		// ice_row_*(generation, rollout_key, row_index, last_key, length).
		{Name: "ice_row_ids", Params: rowParams, Result: ids, Run: rowIDs},
		{Name: "ice_row_mask", Params: rowParams, Result: arrow.ListOf(arrow.PrimitiveTypes.Int8), Run: rowMask},
		{Name: "ice_row_logprobs", Params: rowParams, Result: floats, Run: rowLogprobs},
		{Name: "ice_row_spans", Params: rowParams, Result: arrow.ListOf(spanType), Run: rowSpans},
	}
}

// keysWhere selects rows by an integer column. Keys that lie close together
// become a range, which DuckDB skips to; rows beside them may come along.
func keysWhere(column string, keys []int64) string {
	slices.Sort(keys)
	keys = slices.Compact(keys)
	first, last := keys[0], keys[len(keys)-1]
	where := fmt.Sprintf("%s BETWEEN %d AND %d", column, first, last)
	if last-first >= 4*int64(len(keys)) {
		where += " AND " + column + " IN " + inList(keys)
	}
	return where
}

// room checks the lengths of a vector of lists, and gives where each begins.
func room(lengths []int) ([]int, error) {
	starts, total, rows := make([]int, len(lengths)), 0, 0
	for i, n := range lengths {
		starts[i] = total
		total += max(n, 0)
		if n > 0 {
			rows++
		}
	}
	if total > maxVectorIDs {
		return nil, fmt.Errorf("%d rows taken in one step hold %d tokens together, and a step may hold %d: "+
			"select fewer rows with WHERE or LIMIT, or lengths and hashes instead of tokens", rows, total, maxVectorIDs)
	}
	return starts, nil
}

// layOut makes room for lists and gives where each begins among their elements.
func layOut(out warehouse.Out, lengths []int) ([]int, warehouse.Out, error) {
	starts, err := room(lengths)
	if err != nil {
		return nil, warehouse.Out{}, err
	}
	list, err := out.Lists(lengths)
	return starts, list, err
}

// need is a range of a tape and the place in the output where it belongs.
type need struct {
	tape     int64
	from, to int
	at       int
}

func tapeIDs(ctx context.Context, q warehouse.Querier, args []warehouse.Column, out warehouse.Out) error {
	lengths := make([]int, out.Rows)
	for i := range lengths {
		lengths[i] = -1
		from, ok := args[1].Get(i)
		to, known := args[2].Get(i)
		if _, tape := args[0].Get(i); tape && ok && known && from <= to {
			lengths[i] = int(to - from)
		}
	}
	starts, list, err := layOut(out, lengths)
	if err != nil {
		return err
	}
	var needs []need
	for i, n := range lengths {
		if n > 0 {
			tape, _ := args[0].Get(i)
			from, _ := args[1].Get(i)
			needs = append(needs, need{tape, int(from), int(from) + n, starts[i]})
		}
	}
	return gatherIDs(ctx, q, needs, list.Int32s())
}

// gatherIDs copies ranges of tapes into out.
func gatherIDs(ctx context.Context, q warehouse.Querier, needs []need, out []int32) error {
	byTape, err := onOwn(ctx, q, needs)
	if err != nil || len(byTape) == 0 {
		return err
	}
	missing := 0
	keys := make([]int64, 0, len(byTape))
	for key, list := range byTape {
		keys = append(keys, key)
		for _, n := range list {
			missing += n.to - n.from
		}
	}
	err = q.Query(ctx, eachRow(func(c *columnsOf) error {
		key, start, ids := c.i64(), c.i32(), c.ids()
		for _, n := range byTape[key] {
			from, to := max(n.from, start), min(n.to, start+len(ids))
			if from < to {
				missing -= copy(out[n.at+from-n.from:], ids[from-start:to-start])
			}
		}
		return nil
	}), `SELECT tape_key, start, token_ids FROM ice.tape_chunks WHERE `+keysWhere("tape_key", keys))
	if err != nil {
		return fmt.Errorf("read tapes: %w", err)
	}
	if missing != 0 {
		return fmt.Errorf("read tapes: %d ids of tapes %v are missing, or stand there twice", missing, keys[:min(len(keys), 8)])
	}
	return nil
}

// onOwn splits ranges at forks, so that each part lies on its tape's own ids.
func onOwn(ctx context.Context, q warehouse.Querier, needs []need) (map[int64][]need, error) {
	type origin struct {
		parent int64
		fork   int
	}
	tapes := map[int64]origin{}
	own := map[int64][]need{}
	for len(needs) > 0 {
		var ask []int64
		for _, n := range needs {
			if _, known := tapes[n.tape]; !known {
				ask = append(ask, n.tape)
			}
		}
		if len(ask) > 0 {
			err := q.Query(ctx, eachRow(func(c *columnsOf) error {
				tapes[c.i64()] = origin{c.i64(), c.i32()}
				return nil
			}), `SELECT tape_key, parent_key, fork FROM ice.tapes WHERE `+keysWhere("tape_key", ask))
			if err != nil {
				return nil, fmt.Errorf("read tapes: %w", err)
			}
		}
		var above []need
		for _, n := range needs {
			o, known := tapes[n.tape]
			if !known {
				return nil, fmt.Errorf("read tapes: tape %d is missing", n.tape)
			}
			if n.from < o.fork {
				above = append(above, need{o.parent, n.from, min(n.to, o.fork), n.at})
			}
			if n.to > o.fork {
				from := max(n.from, o.fork)
				own[n.tape] = append(own[n.tape], need{n.tape, from, n.to, n.at + from - n.from})
			}
		}
		needs = above
	}
	return own, nil
}

// span is where the log-probs of a trace belong in the output.
type span struct {
	length, at int
}

func traceLogprobs(ctx context.Context, q warehouse.Querier, args []warehouse.Column, out warehouse.Out) error {
	lengths := make([]int, out.Rows)
	for i := range lengths {
		lengths[i] = -1
		_, known := args[0].Get(i)
		if n, ok := args[1].Get(i); ok && known {
			lengths[i] = int(n)
		}
	}
	starts, list, err := layOut(out, lengths)
	if err != nil {
		return err
	}
	wanted := map[int64][]span{}
	for i, n := range lengths {
		if n > 0 {
			key, _ := args[0].Get(i)
			wanted[key] = append(wanted[key], span{n, starts[i]})
		}
	}
	return gatherLogprobs(ctx, q, wanted, list)
}

// gatherLogprobs copies the log-probs of traces, by trace key, into out. A place
// that no log-prob is known for is NULL.
func gatherLogprobs(ctx context.Context, q warehouse.Querier, wanted map[int64][]span, out warehouse.Out) error {
	known := out.AllNull()
	if len(wanted) == 0 {
		return nil
	}
	keys := make([]int64, 0, len(wanted))
	for key := range wanted {
		keys = append(keys, key)
	}
	values := out.Floats()
	err := q.Query(ctx, eachRow(func(c *columnsOf) error {
		key, start := c.i64(), c.i32()
		list, from, to := c.floats()
		for _, s := range wanted[key] {
			for j := from; j < to; j++ {
				if at := start + j - from; at < s.length && !list.IsNull(j) {
					values[s.at+at] = list.Value(j)
					known.Set(s.at + at)
				}
			}
		}
		return nil
	}), `SELECT trace_key, start, logprobs FROM ice.logprob_chunks WHERE `+keysWhere("trace_key", keys))
	if err != nil {
		return fmt.Errorf("read log-probs: %w", err)
	}
	return nil
}
