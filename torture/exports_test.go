package torture

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"reflect"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"icecore/merge"
)

// exported is one row of GET /v1/trajectories.
type exported struct {
	row
	RolloutID string `json:"rollout_id"`
	Reward    *float64
	Status    *string `json:"rollout_status"`
	Complete  bool
}

// exports compares the export of all rollouts, in both formats, with the law.
func (o *oracle) exports() {
	for _, p := range policies {
		o.export(p, "ndjson", readLines)
		o.export(p, "arrow", readArrow)
	}
}

func (o *oracle) export(p merge.Policy, format string, read func(io.Reader) ([]exported, error)) {
	req, err := http.NewRequestWithContext(context.Background(), "GET", o.url+"/v1/trajectories"+query(p)+"&format="+format, nil)
	if err != nil {
		o.fail("export: %w", err)
		return
	}
	resp, err := o.client.Do(req)
	if err != nil {
		o.fail("export: %w", err)
		return
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	rows, err := read(resp.Body)
	_, _ = io.Copy(io.Discard, resp.Body)
	if err != nil || resp.StatusCode != 200 || resp.Trailer.Get("Icecore-Complete") != "true" {
		o.fail("export by %s as %s: %d, trailer %v: %v", p, format, resp.StatusCode, resp.Trailer, err)
		return
	}
	by := map[string][]exported{}
	for _, r := range rows {
		by[r.RolloutID] = append(by[r.RolloutID], r)
	}
	for _, ro := range o.w.rollouts {
		want := ro.law(p).Trajectories
		got := by[ro.id]
		delete(by, ro.id)
		if len(got) != len(want) {
			o.fail("export by %s as %s: rollout %s has %d rows, not %d", p, format, ro.id, len(got), len(want))
			continue
		}
		for i := range got {
			if !reflect.DeepEqual(got[i].row, want[i]) {
				o.fail("export by %s as %s: rollout %s, row %d differs", p, format, ro.id, i)
			}
		}
		if len(got) > 0 {
			o.exportedState(ro, &got[0])
		}
	}
	for id := range by {
		o.fail("export by %s as %s: unknown rollout %s", p, format, id)
	}
}

// exportedState compares what each row says of its rollout with the rollout.
func (o *oracle) exportedState(ro *rollout, got *exported) {
	if o.skips() {
		return
	}
	var want shown
	if !o.get("/v1/rollouts/"+url.PathEscape(ro.id), &want) {
		return
	}
	var reward *float64
	for _, w := range want.Rewards {
		if w.Name == "outcome" {
			reward = &w.Value
		}
	}
	if !reflect.DeepEqual(got.Reward, reward) || said(got.Status) != said(want.Status) || got.Complete != want.Complete {
		o.fail("export: rollout %s has another state than the rollout itself", ro.id)
	}
}

func readLines(r io.Reader) (rows []exported, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var x exported
		if err := json.Unmarshal(lines.Bytes(), &x); err != nil {
			return nil, err
		}
		rows = append(rows, x)
	}
	return rows, lines.Err()
}

func readArrow(r io.Reader) (rows []exported, err error) {
	in, err := ipc.NewReader(r)
	if err != nil {
		return nil, err
	}
	defer in.Release()
	for in.Next() {
		rec := in.RecordBatch()
		for i := range int(rec.NumRows()) {
			rows = append(rows, arrowRow(rec, i))
		}
	}
	return rows, in.Err()
}

func arrowRow(rec arrow.RecordBatch, i int) (x exported) {
	col := func(name string) arrow.Array { return rec.Column(rec.Schema().FieldIndices(name)[0]) }
	list := func(name string) (values arrow.Array, from, to int) {
		l := col(name).(*array.List)
		a, b := l.ValueOffsets(i)
		return l.ListValues(), int(a), int(b)
	}
	x.TrajectoryID = col("trajectory_id").(*array.String).Value(i)
	x.RolloutID = col("rollout_id").(*array.String).Value(i)
	x.Rewritten = col("history_rewritten").(*array.Boolean).Value(i)
	x.Complete = col("complete").(*array.Boolean).Value(i)
	if c := col("reward").(*array.Float64); c.IsValid(i) {
		x.Reward = ptr(c.Value(i))
	}
	if c := col("rollout_status").(*array.Dictionary); c.IsValid(i) {
		x.Status = ptr(c.Dictionary().(*array.String).Value(c.GetValueIndex(i)))
	}
	ids, from, to := list("token_ids")
	x.TokenIDs = append([]int32{}, ids.(*array.Int32).Int32Values()[from:to]...)
	mask, from, to := list("loss_mask")
	x.LossMask = append([]int8{}, mask.(*array.Int8).Int8Values()[from:to]...)
	values, from, to := list("logprobs")
	x.Logprobs = make([]logprob, 0, to-from)
	for j := from; j < to; j++ {
		x.Logprobs = append(x.Logprobs, logprob(bits(values.(*array.Float32).Value(j), values.IsValid(j))))
	}
	spans, from, to := list("spans")
	s := spans.(*array.Struct)
	for j := from; j < to; j++ {
		x.Spans = append(x.Spans, span{s.Field(0).(*array.String).Value(j), int(s.Field(1).(*array.Int32).Value(j)),
			int(s.Field(2).(*array.Int32).Value(j)), s.Field(3).(*array.Boolean).Value(j)})
	}
	return x
}
