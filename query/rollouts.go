package query

import (
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"strconv"

	"github.com/labstack/echo/v4"

	"icecore/merge"
	"icecore/merge/pass"
	"icecore/problem"
	"icecore/query/trajectory"
	"icecore/store"
	"icecore/trace"
	"icecore/wire"
)

func (a *API) rollouts(c echo.Context) error {
	if err := only(c, append(slices.Clone(filterNames), "limit", "cursor")...); err != nil {
		return err
	}
	f, err := filterOf(c)
	if err != nil {
		return err
	}
	limit, after, err := pageOf(c)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	total, err := a.s.CountRollouts(ctx, f)
	if err != nil {
		return fault(err)
	}
	list, err := a.s.Rollouts(ctx, f, after, int(limit)+1)
	if err != nil {
		return fault(err)
	}
	page := struct {
		Rollouts   []*store.Rollout `json:"rollouts"`
		Total      int64            `json:"total"`
		NextCursor *string          `json:"next_cursor"`
	}{Rollouts: []*store.Rollout{}, Total: total}
	for i := range list {
		if int64(i) == limit {
			page.NextCursor = cursorText(list[i-1].Key)
			break
		}
		page.Rollouts = append(page.Rollouts, &list[i])
	}
	return writeJSON(c, page)
}

// pageOf reads limit= and cursor=.
func pageOf(c echo.Context) (limit, after int64, err error) {
	if limit, err = intParam(c, "limit", defaultPage, 1, maxPage); err != nil {
		return 0, 0, err
	}
	after, err = intParam(c, "cursor", 0, 0, math.MaxInt64)
	return limit, after, err
}

func cursorText(key int64) *string {
	s := strconv.FormatInt(key, 10)
	return &s
}

type rewardJSON struct {
	RewardID string          `json:"reward_id"`
	TraceID  *string         `json:"trace_id"`
	Name     string          `json:"name"`
	Source   *string         `json:"source"`
	Revision int64           `json:"revision"`
	Value    float64         `json:"value"`
	At       *string         `json:"at"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
}

func rewardsJSON(ws []trace.Reward) []rewardJSON {
	out := make([]rewardJSON, len(ws))
	for i, w := range ws {
		out[i] = rewardJSON{RewardID: w.RewardID, Name: w.Name, Revision: w.Revision, Value: w.Value, Metadata: w.Metadata}
		if w.TraceID != "" {
			out[i].TraceID = &w.TraceID
		}
		if w.Source != "" {
			out[i].Source = &w.Source
		}
		if w.At != nil {
			at := store.FormatTime(*w.At)
			out[i].At = &at
		}
	}
	return out
}

func (a *API) findRollout(c echo.Context) (*store.Rollout, error) {
	id, err := pathID(c, "rollout_id")
	if err != nil {
		return nil, err
	}
	r, err := a.s.Rollout(c.Request().Context(), id)
	return r, fault(err)
}

func (a *API) rollout(c echo.Context) error {
	if err := only(c); err != nil {
		return err
	}
	r, err := a.findRollout(c)
	if err != nil {
		return err
	}
	rewards, err := a.s.Rewards(c.Request().Context(), []int64{r.Key})
	if err != nil {
		return fault(err)
	}
	out, err := json.Marshal(r)
	if err != nil {
		return problem.Internal(err)
	}
	list, err := json.Marshal(rewardsJSON(rewards[r.Key]))
	if err != nil {
		return problem.Internal(err)
	}
	out = append(append(out[:len(out)-1], `,"rewards":`...), list...)
	return c.Blob(http.StatusOK, echo.MIMEApplicationJSON, append(out, "}\n"...))
}

func (a *API) rolloutTraces(c echo.Context) error {
	if err := only(c, "limit", "cursor"); err != nil {
		return err
	}
	limit, after, err := pageOf(c)
	if err != nil {
		return err
	}
	r, err := a.findRollout(c)
	if err != nil {
		return err
	}
	list, err := a.s.Traces(c.Request().Context(), r, after, int(limit)+1)
	if err != nil {
		return fault(err)
	}
	page := struct {
		RolloutID  string            `json:"rollout_id"`
		Traces     []json.RawMessage `json:"traces"`
		Total      int64             `json:"total"`
		NextCursor *string           `json:"next_cursor"`
	}{RolloutID: r.ID, Traces: []json.RawMessage{}, Total: r.Traces}
	for i := range list {
		if int64(i) == limit {
			page.NextCursor = cursorText(list[i-1].Key)
			break
		}
		page.Traces = append(page.Traces, traceJSON(&list[i]))
	}
	return writeJSON(c, page)
}

// traceJSON is a trace as it can be sent again, with what storing it added in a
// field of its own, which ingest passes over.
func traceJSON(t *store.StoredTrace) []byte {
	stored, err := json.Marshal(struct {
		PromptTokens   *int   `json:"prompt_tokens"`
		ResponseTokens *int   `json:"response_tokens"`
		HasRequest     bool   `json:"has_request"`
		HasResponse    bool   `json:"has_response"`
		TextRepaired   bool   `json:"text_repaired"`
		ReceivedAt     string `json:"received_at"`
	}{t.PromptLen, t.AnswerLen, t.HasRequest, t.HasAnswer, t.TextRepaired, store.FormatTime(t.ReceivedAt)})
	if err != nil {
		panic(err) // these types always encode
	}
	out := wire.EncodeTraceJSON(nil, &t.Trace)
	out = append(append(out[:len(out)-1], `,"stored":`...), stored...)
	return append(out, '}')
}

func (a *API) trace(c echo.Context) error {
	if err := only(c, "include"); err != nil {
		return err
	}
	id, err := pathID(c, "trace_id")
	if err != nil {
		return err
	}
	include := c.QueryParam("include")
	if include != "" && include != "bodies" {
		return problem.BadParameter("include", "is not bodies")
	}
	t, err := a.s.Trace(c.Request().Context(), id, include == "bodies")
	if err != nil {
		return a.traceFault(c.Request().Context(), id, err)
	}
	return c.Blob(http.StatusOK, echo.MIMEApplicationJSON, append(traceJSON(t), '\n'))
}

func (a *API) harnesses(c echo.Context) error {
	if err := only(c, "policy", "end_of_turn"); err != nil {
		return err
	}
	p, err := policyOf(c)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	if err := a.ensureAll(ctx, p); err != nil {
		return fault(err)
	}
	list, err := a.s.CountsByHarness(ctx, p.String())
	if err != nil {
		return fault(err)
	}
	type row struct {
		Harness       *string          `json:"harness"`
		Rollouts      int64            `json:"rollouts"`
		Traces        int64            `json:"traces"`
		Trajectories  int64            `json:"trajectories"`
		SampledTokens int64            `json:"sampled_tokens"`
		TrainedTokens int64            `json:"trained_tokens"`
		SentTokens    int64            `json:"sent_tokens"`
		KeptTokens    int64            `json:"kept_tokens"`
		Dispositions  map[string]int64 `json:"dispositions"`
		Boundaries    map[string]int64 `json:"boundaries"`
	}
	out := struct {
		Policy    string `json:"policy"`
		Harnesses []row  `json:"harnesses"`
	}{p.String(), []row{}}
	for _, k := range list {
		r := row{nil, k.Rollouts, k.Traces, k.Trajectories, k.SampledTokens, k.TrainedTokens, k.SentTokens, k.KeptTokens,
			k.Dispositions, k.Boundaries}
		if k.Harness != "" {
			r.Harness = &k.Harness
		}
		out.Harnesses = append(out.Harnesses, r)
	}
	return writeJSON(c, out)
}

// rolloutTrajectories answers what a policy makes of one rollout, every trace
// stored before the request included.
func (a *API) rolloutTrajectories(c echo.Context) error {
	if err := only(c, "policy", "end_of_turn"); err != nil {
		return err
	}
	p, err := policyOf(c)
	if err != nil {
		return err
	}
	r, err := a.findRollout(c)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	if err := a.s.WaitDrained(ctx, r.LastBatch); err != nil {
		return fault(err)
	}
	m, err := a.m.Merge(ctx, r.Key, p)
	if err != nil {
		return fault(err)
	}
	logprobs, err := a.s.LoadLogprobs(ctx, []*store.RolloutCalls{m.Calls})
	if err != nil {
		return fault(err)
	}
	out := append([]byte(`{"rollout_id":`), trajectory.Quoted(r.ID)...)
	out = append(out, `,"policy":`...)
	out = append(out, trajectory.Quoted(p.Name)...)
	if p.EndOfTurn != nil {
		out = append(out, `,"end_of_turn":`...)
		out = strconv.AppendInt(out, int64(*p.EndOfTurn), 10)
	}
	out = append(out, `,"trajectories":[`...)
	for i := range m.Result.Trajectories {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(trajectory.New(m, r.ID, i, logprobs).AppendJSON(append(out, '{'), nil), '}')
	}
	out = appendDispositions(append(out, `],"dispositions":{`...), m)
	out = appendBoundaries(append(out, `},"boundaries":[`...), m)
	return c.Blob(http.StatusOK, echo.MIMEApplicationJSON, append(out, "]}\n"...))
}

func traceName(m *pass.Merged, call int) []byte {
	if call == merge.None {
		return []byte("null")
	}
	return trajectory.Quoted(m.Calls.Calls[call].TraceID)
}

func appendDispositions(out []byte, m *pass.Merged) []byte {
	for i, call := range m.Result.Order {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(out, traceName(m, call)...), ':')
		out = append(out, trajectory.Quoted(string(m.Result.Nodes[call].Disposition))...)
	}
	return out
}

func appendBoundaries(out []byte, m *pass.Merged) []byte {
	for i, b := range m.Result.Boundaries {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(out, `{"trace_id":`...), traceName(m, b.Call)...)
		out = append(append(out, `,"kind":`...), trajectory.Quoted(string(b.Kind))...)
		out = append(append(out, `,"nearest":`...), traceName(m, b.Nearest)...)
		out = strconv.AppendInt(append(out, `,"shared":`...), int64(b.Shared), 10)
		out = append(out, '}')
	}
	return out
}
