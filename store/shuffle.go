package store

import (
	"bytes"
	"container/heap"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// shuffled is a heap of ready groups by a hash of a seed and the group's name, so
// that the same groups come in the same order wherever they are stored.
type shuffled []struct {
	hash [sha256.Size]byte
	key  int64
}

// Len implements heap.Interface.
func (h shuffled) Len() int { return len(h) }

// Less implements heap.Interface.
func (h shuffled) Less(i, j int) bool { return bytes.Compare(h[i].hash[:], h[j].hash[:]) < 0 }

// Swap implements heap.Interface.
func (h shuffled) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface: nothing is ever pushed.
func (h *shuffled) Push(any) { panic("a shuffle takes nothing in") }

// Pop implements heap.Interface.
func (h *shuffled) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last.key
}

// shuffle reads the keys and names of all groups that are ready. They come as one
// text, since reading a row each takes four times as long.
func (r *Ready) shuffle(ctx context.Context, seed int64) (*shuffled, error) {
	sources, args := r.sources(`g.group_key AS key, coalesce(g.group_id, '') AS id`)
	var all sql.NullString
	err := r.s.control.read.QueryRowContext(ctx, `SELECT group_concat(key || char(0) || id, char(0)) FROM (`+
		strings.Join(sources, ` UNION ALL `)+`)`, args...).Scan(&all)
	if err != nil {
		return nil, fmt.Errorf("list ready groups: %w", err)
	}
	out, buf := shuffled{}, make([]byte, 0, 1024)
	for rest := all.String; rest != ""; {
		var number, id string
		number, rest, _ = strings.Cut(rest, "\x00") // no id holds a NUL
		id, rest, _ = strings.Cut(rest, "\x00")
		key, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("list ready groups: %w", err)
		}
		buf = append(binary.BigEndian.AppendUint64(buf[:0], uint64(seed)), id...)
		if id == "" {
			buf = binary.BigEndian.AppendUint64(append(buf, 0), uint64(key))
		}
		out = append(out, struct {
			hash [sha256.Size]byte
			key  int64
		}{sha256.Sum256(buf), key})
	}
	heap.Init(&out)
	return &out, nil
}

// inShuffle reads the n groups that come next by their hash.
func (r *Ready) inShuffle(ctx context.Context, n int) error {
	keys := []int64{}
	for len(keys) < n && r.shuffled.Len() > 0 {
		keys = append(keys, heap.Pop(r.shuffled).(int64))
	}
	r.end = len(keys) < n
	list, err := json.Marshal(keys)
	if err != nil {
		return fmt.Errorf("list ready groups: %w", err)
	}
	got, err := r.read(ctx, `SELECT `+candidateColumns+` FROM json_each(?) j CROSS JOIN groups g ON g.group_key = j.value ORDER BY j.key`, string(list))
	if err != nil {
		return err
	}
	r.add(got)
	return nil
}
