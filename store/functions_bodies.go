package store

import (
	"context"
	"fmt"
	"unicode/utf8"

	"icecore/store/warehouse"
)

// maxVectorBodies bounds the bodies of one vector, in bytes.
const maxVectorBodies = 512 * mib

// storedBody is one body as the warehouse keeps it.
type storedBody struct {
	base int64
	size int
	data []byte
}

// bodiesOf gives one side's bodies as texts; NULL when there is none, or it is
// not UTF-8.
func bodiesOf(side string) func(context.Context, warehouse.Querier, []warehouse.Column, warehouse.Out) error {
	return func(ctx context.Context, q warehouse.Querier, args []warehouse.Column, out warehouse.Out) error {
		rows := map[int64][]int64{} // rollout key → trace keys
		for i := range out.Rows {
			rollout, ok := args[0].Get(i)
			if key, known := args[1].Get(i); ok && known {
				rows[rollout] = append(rows[rollout], key)
			}
		}
		bodies, err := readBodies(ctx, q, rows, side)
		if err != nil {
			return err
		}
		for i := range out.Rows {
			key, _ := args[1].Get(i)
			if body, ok := bodies[key]; ok && utf8.Valid(body) {
				out.Text(i, body)
			} else {
				out.Null(i)
			}
		}
		return nil
	}
}

// readBodies reads the bodies of traces, given by rollout, on one side. A trace
// without one is absent.
func readBodies(ctx context.Context, q warehouse.Querier, traces map[int64][]int64, side string) (map[int64][]byte, error) {
	out := map[int64][]byte{}
	if len(traces) == 0 {
		return out, nil
	}
	rollouts := make([]int64, 0, len(traces))
	for key := range traces {
		rollouts = append(rollouts, key)
	}
	where := ` FROM ice.bodies WHERE side = '` + side + `' AND ` + keysWhere("rollout_key", rollouts)
	all := map[int64]*storedBody{}
	err := q.Query(ctx, eachRow(func(c *columnsOf) error {
		all[c.i64()] = &storedBody{base: c.i64(), size: c.i32()}
		return nil
	}), `SELECT trace_key, base_key, raw_bytes`+where)
	if err != nil {
		return nil, fmt.Errorf("read bodies: %w", err)
	}
	var needed []int64
	total := 0
	seen := map[int64]bool{}
	for _, keys := range traces {
		for _, key := range keys {
			if all[key] != nil {
				total += all[key].size
			}
			for k := key; all[k] != nil && !seen[k]; k = all[k].base {
				seen[k] = true
				needed = append(needed, k)
			}
		}
	}
	if total > maxVectorBodies {
		return nil, fmt.Errorf("bodies taken in one step have %d bytes together, and a step may hold %d: "+
			"select fewer rows with WHERE or LIMIT", total, maxVectorBodies)
	}
	if len(needed) == 0 {
		return out, nil
	}
	err = q.Query(ctx, eachRow(func(c *columnsOf) error {
		if b := all[c.i64()]; b != nil {
			b.data = c.blob()
		}
		return nil
	}), `SELECT trace_key, data`+where+` AND `+keysWhere("trace_key", needed))
	if err != nil {
		return nil, fmt.Errorf("read bodies: %w", err)
	}
	unpacked := map[int64][]byte{}
	for _, keys := range traces {
		for _, key := range keys {
			if all[key] == nil {
				continue
			}
			if out[key], err = unpackBody(all, unpacked, key); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// unpackBody decompresses a body after those on which it builds.
func unpackBody(all map[int64]*storedBody, unpacked map[int64][]byte, key int64) ([]byte, error) {
	var chain []int64
	var base []byte
	for k := key; k != 0; k = all[k].base {
		if b, ok := unpacked[k]; ok {
			base = b
			break
		}
		if all[k] == nil || len(chain) > len(all) {
			return nil, fmt.Errorf("read body of trace %d: the body of trace %d, on which it builds, is missing", key, k)
		}
		chain = append(chain, k)
	}
	for i := len(chain) - 1; i >= 0; i-- {
		b := all[chain[i]]
		body, err := decompress(b.data, base, b.size)
		if err != nil {
			return nil, fmt.Errorf("read body of trace %d: %w", chain[i], err)
		}
		unpacked[chain[i]], base = body, body
	}
	return base, nil
}
