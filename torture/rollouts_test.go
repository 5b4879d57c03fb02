package torture

import (
	"cmp"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"icecore/trace"
)

// shown is a rollout as the server shows it.
type shown struct {
	TaskID      *string `json:"task_id"`
	GroupID     *string `json:"group_id"`
	Split       *string
	Harness     *string
	Status      *string
	Error       *string
	Complete    bool
	Reopened    bool
	Traces      int
	OpenIntents int `json:"open_intents"`
	Rewards     []struct {
		RewardID string `json:"reward_id"`
		Name     string
		Revision int64
		Value    float64
	}
}

// rollout checks state and merges of one rollout.
func (o *oracle) rollout(ro *rollout) {
	must, may := ro.exists()
	if !may {
		return
	}
	settled := true
	for _, it := range ro.items {
		settled = settled && it.acked != 0
	}
	if ro.looked && settled && o.skips() {
		return
	}
	ro.looked = settled
	var got shown
	found := o.get("/v1/rollouts/"+url.PathEscape(ro.id), &got)
	if !found {
		if must {
			o.fail("rollout %s is gone", ro.id)
		}
		return
	}
	o.counts(ro, &got)
	o.attributes(ro, &got)
	o.finished(ro, &got)
	o.rewards(ro, &got)
	o.traceList(ro)
	for _, p := range policies {
		o.merges(ro, p)
	}
}

func said(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func (o *oracle) counts(ro *rollout, got *shown) {
	here := map[string]bool{}
	for _, it := range ro.present() {
		here[it.t.TraceID] = true
	}
	if got.Traces != len(here) {
		o.fail("rollout %s counts %d traces for %d", ro.id, got.Traces, len(here))
	}
	least, most := 0, 0
	for _, s := range ro.smalls {
		if s.intent == "" || here[s.intent] || s.sent == 0 {
			continue
		}
		most++
		if s.acked != 0 {
			least++
		}
	}
	if n := got.OpenIntents; n < least || n > most {
		o.fail("rollout %s counts %d open intents, not %d to %d", ro.id, n, least, most)
	}
}

// attributes: those of a PUT win, else the first trace that brings one counts.
func (o *oracle) attributes(ro *rollout, got *shown) {
	items := ro.present()
	slices.SortFunc(items, func(a, b *item) int {
		x, y := a.t.Seq, b.t.Seq
		switch {
		case (x == nil) != (y == nil):
			return cmp.Compare(absent(x), absent(y))
		case x != nil && *x != *y:
			return cmp.Compare(*x, *y)
		}
		return strings.Compare(a.t.TraceID, b.t.TraceID)
	})
	first := func(of func(*trace.Trace) string) string {
		for _, it := range items {
			if v := of(it.t); v != "" {
				return v
			}
		}
		return ""
	}
	task := first(func(t *trace.Trace) string { return t.Attributes.TaskID })
	group := first(func(t *trace.Trace) string { return t.Attributes.GroupID })
	harness := first(func(t *trace.Trace) string { return t.Attributes.Harness })
	have := [3]string{said(got.TaskID), said(got.GroupID), said(got.Split)}
	allowed := [][3]string{{task, group, ""}}
	for _, s := range ro.smalls {
		if s.patch != nil && s.sent != 0 {
			put := [3]string{s.patch.task, s.patch.group, s.patch.split}
			if s.acked != 0 {
				allowed = nil
			}
			allowed = append(allowed, put)
		}
	}
	if !slices.Contains(allowed, have) {
		o.fail("rollout %s has task, group, split %q, not %q", ro.id, have, allowed)
	}
	if h := said(got.Harness); h != harness {
		o.fail("rollout %s has harness %q, not %q", ro.id, h, harness)
	}
}

// absent sorts an absent seq last.
func absent(seq *int64) int {
	if seq == nil {
		return 1
	}
	return 0
}

func (o *oracle) finished(ro *rollout, got *shown) {
	status := said(got.Status)
	var f *small
	for _, s := range ro.smalls {
		if s.finish != nil {
			f = s
		}
	}
	switch {
	case f == nil || f.sent == 0:
		if status != "" || got.Reopened {
			o.fail("rollout %s is finished as %q, which nobody said", ro.id, status)
		}
		return
	case status != "" && (status != f.finish.Status || said(got.Error) != f.finish.Error):
		o.fail("rollout %s is finished as %q, not %q", ro.id, status, f.finish.Status)
	case status == "" && f.acked != 0:
		o.fail("rollout %s: the acknowledged finish is lost", ro.id)
	}
	if status == "" {
		return
	}
	after, never := false, true
	for _, it := range ro.present() {
		after = after || f.acked != 0 && it.sent > f.acked
		never = never && it.acked < f.sent
	}
	if after && !got.Reopened || never && got.Reopened {
		o.fail("rollout %s: reopened is %v", ro.id, got.Reopened)
	}
	if got.Complete != (status != "" && got.OpenIntents == 0) {
		o.fail("rollout %s: complete is %v", ro.id, got.Complete)
	}
}

func (o *oracle) rewards(ro *rollout, got *shown) {
	for _, name := range []string{"outcome", "style"} {
		newest := int64(-1)
		sent := map[int64]*trace.Reward{}
		for _, s := range ro.smalls {
			if s.reward == nil || s.reward.Name != name || s.sent == 0 {
				continue
			}
			sent[s.reward.Revision] = s.reward
			if s.acked != 0 {
				newest = max(newest, s.reward.Revision)
			}
		}
		n := 0
		for _, w := range got.Rewards {
			if w.Name != name {
				continue
			}
			n++
			want := sent[w.Revision]
			if want == nil || w.Revision < newest || w.Value != want.Value || w.RewardID != want.RewardID {
				o.fail("rollout %s has reward %+v; the newest acknowledged revision is %d", ro.id, w, newest)
			}
		}
		if n > 1 || n == 0 && newest >= 0 {
			o.fail("rollout %s has %d rewards %s", ro.id, n, name)
		}
	}
}

// traceList checks that each trace is listed exactly once.
func (o *oracle) traceList(ro *rollout) {
	var page struct {
		Traces []struct {
			TraceID string `json:"trace_id"`
		}
		Total int
	}
	if !o.get("/v1/rollouts/"+url.PathEscape(ro.id)+"/traces?limit=1000", &page) {
		return
	}
	var got, want []string
	for _, t := range page.Traces {
		got = append(got, t.TraceID)
	}
	for _, it := range ro.present() {
		want = append(want, it.t.TraceID)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !reflect.DeepEqual(got, want) || page.Total != len(want) {
		o.fail("rollout %s lists traces %q (total %d), not %q", ro.id, got, page.Total, want)
	}
}
