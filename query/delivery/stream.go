package delivery

import (
	"bufio"
	"strings"

	"github.com/labstack/echo/v4"

	"icecore/httpbody"
	"icecore/merge"
	"icecore/problem"
	"icecore/query/table"
	"icecore/query/trajectory"
	"icecore/store"
	"icecore/trace"
)

// stream is what of a plan is sent: one shard, or with nil everything.
func (p *plan) stream(shard *int64) (*trajectory.Plan, error) {
	policy, err := merge.ParsePolicy(p.Policy)
	if err != nil {
		return nil, err
	}
	out := &trajectory.Plan{Policy: policy, Rollouts: make(map[int64]*trajectory.Rollout, len(p.Rollouts))}
	for _, k := range p.Kinds {
		out.Kinds = append(out.Kinds, trace.Kind(k))
	}
	for i := range p.Rollouts {
		k := &p.Rollouts[i]
		out.Rollouts[k.Key] = &trajectory.Rollout{Reward: k.Reward, Rollout: store.Rollout{Key: k.Key, ID: k.ID, GroupID: k.GroupID,
			TaskID: k.TaskID, Split: k.Split, Harness: k.Harness, Model: k.Model, GroupSize: k.GroupSize, SampleIndex: k.SampleIndex,
			Status: k.Status, OpenIntents: k.OpenIntents}}
	}
	for i := range p.Rows {
		row := &p.Rows[i]
		k := &p.Rollouts[row.Rollout]
		of := out.Rollouts[k.Key]
		of.Rows++
		of.Trained += int64(row.Trained)
		if shard != nil && int64(row.Shard) != *shard {
			continue
		}
		g := &p.Groups[k.Group]
		out.Wants = append(out.Wants, trajectory.Want{Rollout: k.Key, Through: k.Through, Row: row.Index, Length: row.Length,
			InRollout: of.Rows - 1, Delivered: &trajectory.Delivered{GroupIndex: k.Group, RolloutIndex: row.Rollout, GroupFinished: g.Finished,
				GroupScored: g.Scored, Advantage: k.Advantage, ZeroAdvantage: g.Zero, Weight: row.Weight, Shard: row.Shard, Microbatch: row.Microbatch}})
	}
	return out, nil
}

// send streams a lease, or a shard of it. What goes wrong before the first bytes
// are out is still answered with its problem; after that, the stream is broken.
func (a *API) send(c echo.Context, h *held, shard *int64, codec string) error {
	p, err := h.plan.stream(shard)
	if err != nil {
		return problem.Internal(err)
	}
	facts := h.facts(shard)
	header := c.Response().Header()
	setHeaders(header, facts)
	header.Set("Icecore-Expires-At", store.FormatTime(h.ExpiresAt))
	header.Set(echo.HeaderContentType, table.Arrow)
	header.Set("Trailer", "Icecore-Complete")
	client := httpbody.NewWriter(c.Response(), a.opts.Patience)
	buffer := bufio.NewWriterSize(client, 64<<10)
	out := trajectory.NewArrow(buffer, trace.DeliverySchema, facts, codec)
	if err = trajectory.Send(c.Request().Context(), a.s, p, out); err == nil {
		err = buffer.Flush()
	}
	if err != nil {
		if !c.Response().Committed {
			unsay(c)
			return fault(err)
		}
		out.Poison()
		_ = buffer.Flush() // the connection is broken next, whatever comes of this
		c.Response().Flush()
		return err //nolint:wrapcheck // the error handler breaks the connection, and logs it
	}
	client.Done()
	header.Set("Icecore-Complete", "true")
	a.metrics.sent(p)
	return nil
}

// unsay takes back what was said in headers of a stream that does not come.
func unsay(c echo.Context) {
	header := c.Response().Header()
	for name := range header {
		if strings.HasPrefix(name, "Icecore-") || name == "Trailer" {
			header.Del(name)
		}
	}
}
