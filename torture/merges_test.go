package torture

import (
	"encoding/json"
	"fmt"
	"net/url"
	"reflect"
	"strconv"
	"strings"

	"icecore/merge"
	"icecore/trace"
)

// policies are those whose results are compared.
var policies = []merge.Policy{{Name: merge.StrictTree}, {Name: merge.PerRequest},
	{Name: merge.PolarCompat, EndOfTurn: ptr(int32(endOfTurn))}}

func query(p merge.Policy) string {
	q := "?policy=" + p.Name
	if p.EndOfTurn != nil {
		q += fmt.Sprintf("&end_of_turn=%d", *p.EndOfTurn)
	}
	return q
}

// logprob is a log-prob as bits, read from JSON.
type logprob int64

func (l *logprob) UnmarshalJSON(b []byte) error {
	text := strings.Trim(string(b), `"`)
	if text == "null" {
		*l = unknownBits
		return nil
	}
	v, err := strconv.ParseFloat(text, 32)
	*l = logprob(bits(float32(v), true))
	return err
}

type span struct {
	TraceID   string `json:"trace_id"`
	Start     int
	End       int
	Trainable bool
}

// row is a trajectory as delivered, and as package merge makes it.
type row struct {
	TrajectoryID string    `json:"trajectory_id"`
	TokenIDs     []int32   `json:"token_ids"`
	LossMask     []int8    `json:"loss_mask"`
	Logprobs     []logprob `json:"logprobs"`
	Spans        []span
	Rewritten    bool `json:"history_rewritten"`
}

type boundary struct {
	TraceID string `json:"trace_id"`
	Kind    string
	Nearest *string
	Shared  int
}

// merged is what a policy makes of a rollout.
type merged struct {
	Trajectories []row
	Dispositions map[string]string
	Boundaries   []boundary
}

// law merges the traces that are there, in this process.
func (ro *rollout) law(p merge.Policy) *merged {
	items := ro.present()
	tree := merge.NewTree()
	for _, it := range items {
		t := it.t
		tree.Add(merge.Call{TraceID: t.TraceID, Seq: t.Seq, Prompt: t.PromptIDs, Response: trace.TokensOf(t.ResponseIDs),
			IDsIncomplete: t.IDsIncomplete, Status: t.Status, FinishReason: t.FinishReason, ChoiceGroup: t.ChoiceGroup,
			ChoiceIndex: t.ChoiceIndex})
	}
	res := tree.Run(p)
	m := &merged{Trajectories: []row{}, Dispositions: map[string]string{}, Boundaries: []boundary{}}
	for i := range res.Trajectories {
		tr := &res.Trajectories[i]
		r := row{TrajectoryID: merge.TrajectoryID(ro.id, p, items[tr.Namer].t.TraceID), TokenIDs: tree.Tokens(res, i).Flat(),
			LossMask: make([]int8, tr.Length), Logprobs: make([]logprob, tr.Length), Rewritten: tr.Rewritten}
		for j := range r.Logprobs {
			r.Logprobs[j] = unknownBits
		}
		for _, s := range res.Spans(i) {
			t := items[s.Call].t
			r.Spans = append(r.Spans, span{t.TraceID, s.Start, s.End, s.Trainable})
			for j := s.Start; j < s.End; j++ {
				if s.Trainable {
					r.LossMask[j] = 1
				}
				if t.ResponseLogprobs != nil {
					r.Logprobs[j] = logprob(bits(t.ResponseLogprobs.At(j - s.Start)))
				}
			}
		}
		m.Trajectories = append(m.Trajectories, r)
	}
	for i, it := range items {
		m.Dispositions[it.t.TraceID] = string(res.Nodes[i].Disposition)
	}
	for _, b := range res.Boundaries {
		x := boundary{items[b.Call].t.TraceID, string(b.Kind), nil, b.Shared}
		if b.Nearest != merge.None {
			x.Nearest = &items[b.Nearest].t.TraceID
		}
		m.Boundaries = append(m.Boundaries, x)
	}
	return m
}

// merges compares the server's answer for one rollout with the law.
func (o *oracle) merges(ro *rollout, p merge.Policy) {
	var got merged
	if !o.get("/v1/rollouts/"+url.PathEscape(ro.id)+"/trajectories"+query(p), &got) {
		o.fail("rollout %s has no trajectories by %s", ro.id, p)
		return
	}
	if want := ro.law(p); !reflect.DeepEqual(&got, want) {
		o.fail("rollout %s by %s:\n got %s\nwant %s", ro.id, p, brief(&got), brief(want))
	}
}

// brief shows a result without its long lists.
func brief(m *merged) []byte {
	short := *m
	short.Trajectories = nil
	for _, r := range m.Trajectories {
		r.TokenIDs, r.LossMask, r.Logprobs = []int32{int32(len(r.TokenIDs))}, nil, nil
		short.Trajectories = append(short.Trajectories, r)
	}
	b, err := json.Marshal(short)
	if err != nil {
		return []byte(err.Error())
	}
	return b
}
