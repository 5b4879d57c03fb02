package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"icecore/store/warehouse"
)

// maxVectorBodies bounds the bodies of one vector, in bytes, those on which they
// build included.
const maxVectorBodies = 512 * mib

// storedBody is one body as the warehouse keeps it.
type storedBody struct {
	base int64
	size int
	data []byte
	// uses counts what it is still needed for: bodies that build on it, the answer.
	uses int
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
	if len(traces) == 0 {
		return map[int64][]byte{}, nil
	}
	where := ` FROM ice.bodies WHERE side = '` + side + `' AND ` + keysWhere("rollout_key", slices.Collect(maps.Keys(traces)))
	c := bodyChains{all: map[int64]*storedBody{}, unpacked: map[int64][]byte{}}
	err := q.Query(ctx, eachRow(func(row *columnsOf) error {
		c.all[row.i64()] = &storedBody{base: row.i64(), size: row.i32()}
		return nil
	}), `SELECT trace_key, base_key, raw_bytes`+where)
	if err != nil {
		return nil, fmt.Errorf("read bodies: %w", err)
	}
	wanted, needed, err := c.plan(slices.Concat(slices.Collect(maps.Values(traces))...))
	if err != nil || len(needed) == 0 {
		return map[int64][]byte{}, err
	}
	err = q.Query(ctx, eachRow(func(row *columnsOf) error {
		if b := c.all[row.i64()]; b != nil {
			b.data = row.blob()
		}
		return nil
	}), `SELECT trace_key, data`+where+` AND `+keysWhere("trace_key", needed))
	if err != nil {
		return nil, fmt.Errorf("read bodies: %w", err)
	}
	out := make(map[int64][]byte, len(wanted))
	for _, key := range wanted {
		if out[key], err = c.unpack(key); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// bodyChains are the bodies of some rollouts on one side. A body builds on its
// base, that on its own, and so on.
type bodyChains struct {
	all map[int64]*storedBody
	// unpacked holds those that are still needed.
	unpacked map[int64][]byte
}

// plan gives those of the keys that have a body, each once and in order, and all
// bodies that must be read for them. It refuses what would take too much memory.
// One row is never refused: it needs two bodies at a time, however long its chain.
func (c *bodyChains) plan(keys []int64) (wanted, needed []int64, err error) {
	total, rows := 0, 0
	seen := map[int64]bool{}
	asked := map[int64]bool{}
	for _, key := range keys {
		b := c.all[key]
		if b == nil {
			continue
		}
		if rows++; asked[key] {
			total += b.size // once more in the answer
			continue
		}
		asked[key] = true
		wanted = append(wanted, key)
		b.uses++
		for k := key; c.all[k] != nil && !seen[k]; k = c.all[k].base {
			seen[k] = true
			needed = append(needed, k)
			total += c.all[k].size
			if base := c.all[c.all[k].base]; base != nil {
				base.uses++
			}
		}
	}
	if total > maxVectorBodies && rows > 1 {
		return nil, nil, fmt.Errorf("bodies of %d rows taken in one step have %d bytes together, with those on which they build, "+
			"and a step may hold %d: select fewer rows with WHERE or LIMIT", rows, total, maxVectorBodies)
	}
	slices.Sort(wanted)
	return wanted, needed, nil
}

// unpack decompresses a body after those on which it builds. What nothing else
// builds on is forgotten.
func (c *bodyChains) unpack(key int64) ([]byte, error) {
	var chain []int64
	var base []byte
	for k := key; k != 0; k = c.all[k].base {
		if b, ok := c.unpacked[k]; ok {
			base = b
			break
		}
		if c.all[k] == nil || len(chain) > len(c.all) {
			return nil, fmt.Errorf("read body of trace %d: the body of trace %d, on which it builds, is missing", key, k)
		}
		chain = append(chain, k)
	}
	for _, k := range slices.Backward(chain) {
		b := c.all[k]
		body, err := decompress(b.data, base, b.size)
		if err != nil {
			return nil, fmt.Errorf("read body of trace %d: %w", k, err)
		}
		c.unpacked[k], base, b.data = body, body, nil
		c.used(b.base)
	}
	c.used(key)
	return base, nil
}

// used forgets a body after its last use.
func (c *bodyChains) used(key int64) {
	if b := c.all[key]; b != nil {
		if b.uses--; b.uses == 0 {
			delete(c.unpacked, key)
		}
	}
}
