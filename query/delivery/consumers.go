package delivery

import (
	"context"

	"github.com/labstack/echo/v4"

	"icecore/problem"
	"icecore/store"
)

// consumerJSON is a consumer as it is shown.
type consumerJSON struct {
	Consumer          string           `json:"consumer"`
	CreatedAt         string           `json:"created_at"`
	FromTime          *string          `json:"from_time"`
	FromPolicyVersion *int64           `json:"from_policy_version"`
	Acknowledged      acknowledged     `json:"acknowledged"`
	OpenLeases        []leaseJSON      `json:"open_leases"`
	ExpiredLeases     int64            `json:"expired_leases"`
	ReturnedLeases    int64            `json:"returned_leases"`
	Redelivered       int64            `json:"redelivered_groups"`
	Changed           changed          `json:"changed_after_lease"`
	Skipped           map[string]int64 `json:"skipped"`
	Lag               lag              `json:"lag"`
}

type acknowledged struct {
	Leases        int64 `json:"leases"`
	Groups        int64 `json:"groups"`
	Rollouts      int64 `json:"rollouts"`
	Rows          int64 `json:"rows"`
	Tokens        int64 `json:"tokens"`
	TrainedTokens int64 `json:"trained_tokens"`
}

type changed struct {
	Rollouts int64 `json:"rollouts"`
	Reopened int64 `json:"reopened"`
	Rewarded int64 `json:"rewarded_anew"`
	Late     int64 `json:"late_rollouts"`
}

// lag says what the consumer could be given now by a request that asks for
// nothing special.
type lag struct {
	Ready         int     `json:"ready_groups"`
	OldestReadyAt *string `json:"oldest_ready_at"`
	NotFinished   int     `json:"not_finished"`
	Missing       int     `json:"missing"`
	NotRewarded   int     `json:"not_rewarded"`
	Quiet         int     `json:"quiet"`
	Leased        int     `json:"leased"`
}

func (a *API) consumerJSON(ctx context.Context, s *store.ConsumerState) (*consumerJSON, error) {
	out := &consumerJSON{Consumer: s.Name, CreatedAt: store.FormatTime(s.CreatedAt), FromTime: optTime(s.FromTime),
		FromPolicyVersion: s.FromPolicyVersion, OpenLeases: []leaseJSON{}, ExpiredLeases: s.ExpiredLeases, ReturnedLeases: s.ReturnedLeases,
		Redelivered: s.RedeliveredGroups, Changed: changed{s.Changed.Rollouts, s.Changed.Reopened, s.Changed.RewardedAnew, s.Changed.Late},
		Skipped: map[string]int64{}}
	out.Acknowledged = acknowledged{s.Acknowledged.Leases, s.Acknowledged.Groups, s.Acknowledged.Rollouts, s.Acknowledged.Rows,
		s.Acknowledged.Tokens, s.Acknowledged.Trained}
	for i := range s.OpenLeases {
		out.OpenLeases = append(out.OpenLeases, showable(&s.OpenLeases[i]))
	}
	for _, reason := range skipReasons {
		out.Skipped[reason] = s.Skipped[reason]
	}
	var err error
	out.Lag, err = a.lag(ctx, s.Name)
	return out, err
}

func (a *API) lag(ctx context.Context, name string) (l lag, err error) {
	r := defaults()
	ready, err := a.s.ReadyGroups(ctx, name, a.asked(&r))
	if err != nil {
		return l, err
	}
	w, err := ready.Waiting(ctx)
	if err != nil {
		return l, err
	}
	l = lag{Ready: w.Ready, NotFinished: w.NotFinished, Missing: w.Missing, NotRewarded: w.NotRewarded, Quiet: w.Quiet, Leased: w.Held}
	if w.Ready > 0 {
		l.OldestReadyAt = ptr(store.FormatTime(w.OldestReady))
	}
	return l, nil
}

func optTime(micros *int64) *string {
	if micros == nil {
		return nil
	}
	return ptr(store.FormatTime(*micros))
}

func (a *API) listConsumers(c echo.Context) error {
	if err := problem.Parameters(c, nil, nil); err != nil {
		return err
	}
	ctx := c.Request().Context()
	list, err := a.s.Consumers(ctx)
	if err != nil {
		return fault(err)
	}
	out := []*consumerJSON{}
	for i := range list {
		one, err := a.consumerJSON(ctx, &list[i])
		if err != nil {
			return fault(err)
		}
		out = append(out, one)
	}
	return answer(c, map[string]any{"consumers": out})
}

func (a *API) showConsumer(c echo.Context) error {
	name, err := pathID(c, "name")
	if err != nil {
		return err
	}
	if err := problem.Parameters(c, nil, nil); err != nil {
		return err
	}
	ctx := c.Request().Context()
	s, err := a.s.Consumer(ctx, name)
	if err != nil {
		return fault(err)
	}
	out, err := a.consumerJSON(ctx, s)
	if err != nil {
		return fault(err)
	}
	return answer(c, out)
}

func (a *API) dropConsumer(c echo.Context) error {
	name, err := pathID(c, "name")
	if err != nil {
		return err
	}
	if err := problem.Parameters(c, nil, nil); err != nil {
		return err
	}
	ctx := c.Request().Context()
	if err := a.inTurn(ctx, name, func() error { return a.s.DropConsumer(ctx, name) }); err != nil {
		return fault(err)
	}
	return answer(c, map[string]any{"consumer": name, "dropped": true})
}
