package torture

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
)

// consumers is the list of what was delivered and acknowledged, of all consumers.
type consumers struct {
	home *home
	from *feeder

	mu sync.Mutex
	// streams has the hash of what came under a consumer, key and shard.
	streams map[string][sha256.Size]byte
	// acked has by consumer and group the lease that was acknowledged for it.
	acked map[string]map[string]string
	// doubtful are acknowledgements whose answer nobody heard.
	doubtful []*batch
	tally    map[string]int
}

func newConsumers(h *home, f *feeder) *consumers {
	return &consumers{home: h, from: f, streams: map[string][sha256.Size]byte{}, acked: map[string]map[string]string{}, tally: map[string]int{}}
}

func (c *consumers) did(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tally[what]++
}

// batch is a lease, or a shard of it, as it came.
type batch struct {
	consumer, key, lease string
	shard                *int
	groups               []string
	expires              time.Time
}

// lease asks with a key until there is an answer, and checks what comes. nil: ctx
// ended, or nothing came within the time of the request, or the lease of the key
// is lost, which it cannot be before the time held.
func (c *consumers) lease(ctx context.Context, consumer string, body object, held time.Time) (b *batch, lost bool) {
	a := c.home.ask(ctx, request{"POST", "/v1/consumers/" + consumer + "/lease", jsonOf(body)})
	switch {
	case a == nil || a.status == http.StatusNoContent:
		return nil, false
	case a.status == http.StatusConflict && a.code == "lease_lost" && time.Now().After(held):
		c.did("key lost")
		return nil, true
	case a.status != http.StatusOK || !a.whole:
		c.home.fail("%s leased %s and was answered %d, whole %v: %.300s", consumer, jsonOf(body), a.status, a.whole, a.body)
		return nil, true
	}
	b, err := c.read(consumer, body, a)
	if err != nil {
		c.home.fail("%s leased %s: %w", consumer, jsonOf(body), err)
	}
	return b, err != nil
}

// read checks a stream: it is what was promised, of groups that were stored, as
// they were stored; and what came before under the same key was the same.
func (c *consumers) read(consumer string, body object, a *answered) (*batch, error) {
	b := &batch{consumer: consumer, key: a.header.Get("Icecore-Key"), lease: a.header.Get("Icecore-Lease-Id")}
	if shard, ok := body["shard"].(int); ok {
		b.shard = &shard
	}
	var err error
	if b.expires, err = time.Parse(time.RFC3339, a.header.Get("Icecore-Expires-At")); err != nil || b.key != body["key"] {
		return nil, fmt.Errorf("came as key %q, expires %w", b.key, err)
	}
	rows, err := readRows(a.body)
	if err != nil {
		return nil, err
	}
	if n := a.header.Get("Icecore-Rows"); n != strconv.Itoa(len(rows)) {
		return nil, fmt.Errorf("%d rows came of %s", len(rows), n)
	}
	byRollout := map[string][][]int32{}
	for _, r := range rows {
		one := c.from.known(r.rollout)
		if one == nil || one.group != r.group || !slices.Contains(one.rewards, r.reward) {
			return nil, fmt.Errorf("a row of rollout %s, group %s, reward %g was never stored", r.rollout, r.group, r.reward)
		}
		byRollout[r.rollout] = append(byRollout[r.rollout], r.ids)
		if !slices.Contains(b.groups, r.group) {
			b.groups = append(b.groups, r.group)
		}
	}
	for rollout, ids := range byRollout {
		if err := c.from.known(rollout).rowsOf(ids); err != nil {
			return nil, err
		}
	}
	if err := c.from.wholeGroups(b.groups, byRollout); err != nil {
		return nil, err
	}
	if err := c.same(b, a.body); err != nil {
		return nil, err
	}
	return b, nil
}

// same holds a stream against the one that came before under its key.
func (c *consumers) same(b *batch, body []byte) error {
	name := b.consumer + "/" + b.key
	if b.shard != nil {
		name = fmt.Sprint(name, "/", *b.shard)
	}
	hash := sha256.Sum256(body)
	c.mu.Lock()
	defer c.mu.Unlock()
	before, again := c.streams[name]
	if again && before != hash {
		return fmt.Errorf("other bytes came under key %s than before", name)
	}
	if c.streams[name] = hash; again {
		c.tally["fetched again"]++
	}
	c.tally["leased"]++
	return nil
}

// wholeGroups: a group comes with all of its rollouts.
func (f *feeder) wholeGroups(groups []string, rollouts map[string][][]int32) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, one := range f.rollouts {
		if slices.Contains(groups, one.group) && rollouts[one.id] == nil {
			return fmt.Errorf("group %s came without rollout %s", one.group, one.id)
		}
	}
	return nil
}

type delivered struct {
	group, rollout string
	ids            []int32
	reward         float64
}

func readRows(stream []byte) (rows []delivered, err error) {
	in, err := ipc.NewReader(bytes.NewReader(stream))
	if err != nil {
		return nil, fmt.Errorf("read stream: %w", err)
	}
	defer in.Release()
	for in.Next() {
		rec := in.RecordBatch()
		column := func(name string) int { return rec.Schema().FieldIndices(name)[0] }
		groups, rollouts := rec.Column(column("group_id")).(*array.String), rec.Column(column("rollout_id")).(*array.String)
		rewards, ids := rec.Column(column("reward")).(*array.Float64), rec.Column(column("token_ids")).(*array.List)
		values := ids.ListValues().(*array.Int32).Int32Values()
		for i := range int(rec.NumRows()) {
			from, to := ids.ValueOffsets(i)
			rows = append(rows, delivered{groups.Value(i), rollouts.Value(i), slices.Clone(values[from:to]), rewards.Value(i)})
		}
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("read stream: %w", err)
	}
	return rows, nil
}

// settleBody names the shard of a batch, if it is one.
func (b *batch) settleBody() []byte {
	if b.shard == nil {
		return []byte("{}")
	}
	return jsonOf(object{"shard": *b.shard})
}

// ack acknowledges until it is answered. Only a lease whose time is over may be
// lost.
func (c *consumers) ack(ctx context.Context, b *batch) {
	began := time.Now()
	a := c.home.ask(ctx, request{"POST", "/v1/leases/" + b.lease + "/ack", b.settleBody()})
	switch {
	case a == nil:
		c.doubt(b)
	case a.status == http.StatusOK:
		c.settled(b)
		c.did("acknowledged")
	case a.status == http.StatusConflict && a.code == "lease_lost" && time.Now().After(b.expires):
		c.did("ack too late")
	default:
		c.home.fail("ack of %s's lease %s, which expires in %v: %d %s", b.consumer, b.lease, b.expires.Sub(began), a.status, a.body)
	}
}

// settled notes that groups are acknowledged, and that they were not before.
func (c *consumers) settled(b *batch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	done := c.acked[b.consumer]
	if done == nil {
		done = map[string]string{}
		c.acked[b.consumer] = done
	}
	for _, g := range b.groups {
		if other := done[g]; other != "" && other != b.lease {
			c.home.fail("group %s was acknowledged twice for %s: in lease %s and in %s", g, b.consumer, other, b.lease)
		}
		done[g] = b.lease
	}
}

func (c *consumers) doubt(b *batch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.doubtful = append(c.doubtful, b)
}

// resolve asks what became of acknowledgements that nobody heard of.
func (c *consumers) resolve(ctx context.Context) {
	c.mu.Lock()
	list := slices.Clone(c.doubtful)
	c.mu.Unlock()
	for _, b := range list {
		a := c.home.ask(ctx, request{"GET", "/v1/leases/" + b.lease, nil})
		var state struct {
			Shards []int `json:"acknowledged_shards"`
		}
		if a == nil || a.status != http.StatusOK || json.Unmarshal(a.body, &state) != nil {
			c.home.fail("look up lease %s: %+v", b.lease, a)
			return
		}
		shard := 0
		if b.shard != nil {
			shard = *b.shard
		}
		if slices.Contains(state.Shards, shard) {
			c.settled(b)
		}
	}
}

// remaining counts groups that a consumer has not acknowledged.
func (c *consumers) remaining(consumer string) int {
	all := c.from.all()
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(all) - len(c.acked[consumer])
}
