package delivery

import (
	"encoding/json"
	"errors"

	"github.com/labstack/echo/v4"

	"icecore/problem"
	"icecore/store"
)

// settleRequest is what is said of a lease.
type settleRequest struct {
	shard   *int64
	metrics []byte
	delay   float64
	reason  string
	seconds int64
}

// Bounds of what is kept with a lease, in bytes.
const (
	maxMetrics = 64 << 10
	maxReason  = 1 << 10
)

var ackFields = map[string]setter[settleRequest]{
	"shard": optWholeField(func(s *settleRequest) **int64 { return &s.shard }, 0, maxShards-1),
	"metrics": func(s *settleRequest, raw json.RawMessage) error {
		if raw[0] != '{' || len(raw) > maxMetrics {
			return errors.New("is not an object of at most 64 KiB")
		}
		s.metrics = raw
		return nil
	},
}

var nackFields = map[string]setter[settleRequest]{
	"delay_seconds": floatField(func(s *settleRequest) *float64 { return &s.delay }, 0, maxLeaseSeconds),
	"reason": func(s *settleRequest, raw json.RawMessage) (err error) {
		if s.reason, err = text(raw); err == nil && len(s.reason) > maxReason {
			err = errors.New("has more than 1,024 bytes")
		}
		return err
	},
}

var extendFields = map[string]setter[settleRequest]{
	"lease_seconds": wholeField(func(s *settleRequest) *int64 { return &s.seconds }, 1, maxLeaseSeconds),
}

// settle reads what is said of a lease, and who it is.
func (a *API) settle(c echo.Context, fields map[string]setter[settleRequest], what string) (id string, s settleRequest, err error) {
	if id, err = pathID(c, "lease_id"); err != nil {
		return "", s, err
	}
	body, err := a.jsonBody(c)
	if err == nil {
		_, err = read(&s, body, fields, what, "")
	}
	return id, s, err
}

func (a *API) ack(c echo.Context) error {
	id, s, err := a.settle(c, ackFields, "an acknowledgement")
	if err != nil {
		return err
	}
	var shards []int // nil: all
	if s.shard != nil {
		shards = []int{int(*s.shard)}
	}
	l, err := a.s.AckLease(c.Request().Context(), id, shards, s.metrics)
	if errors.Is(err, store.ErrNoShard) {
		return invalid("shard", "the lease has no such shard")
	}
	return answerLease(c, l, err)
}

func (a *API) nack(c echo.Context) error {
	id, s, err := a.settle(c, nackFields, "a return")
	if err != nil {
		return err
	}
	l, err := a.s.ReturnLease(c.Request().Context(), id, seconds(s.delay), s.reason)
	return answerLease(c, l, err)
}

func (a *API) extend(c echo.Context) error {
	id, s, err := a.settle(c, extendFields, "an extension")
	if err != nil {
		return err
	}
	l, err := a.s.ExtendLease(c.Request().Context(), id, int(s.seconds))
	return answerLease(c, l, err)
}

func (a *API) showLease(c echo.Context) error {
	id, err := pathID(c, "lease_id")
	if err != nil {
		return err
	}
	if err := problem.Parameters(c, nil, nil); err != nil {
		return err
	}
	l, err := a.s.Lease(c.Request().Context(), id)
	return answerLease(c, l, err)
}

// leaseJSON is a lease as it is shown.
type leaseJSON struct {
	LeaseID       string `json:"lease_id"`
	Consumer      string `json:"consumer"`
	Key           string `json:"key"`
	State         string `json:"state"`
	Shards        int    `json:"shards"`
	Acknowledged  []int  `json:"acknowledged_shards"`
	ExpiresAt     string `json:"expires_at"`
	Groups        int    `json:"groups"`
	Rollouts      int    `json:"rollouts"`
	Rows          int    `json:"rows"`
	Tokens        int64  `json:"tokens"`
	TrainedTokens int64  `json:"trained_tokens"`
	CreatedAt     string `json:"created_at"`
}

func showable(l *store.Lease) leaseJSON {
	return leaseJSON{LeaseID: l.ID, Consumer: l.Consumer, Key: l.Key, State: l.State, Shards: l.Shards, Acknowledged: append([]int{}, l.Acked...),
		ExpiresAt: store.FormatTime(l.ExpiresAt), Groups: l.Groups, Rollouts: l.Rollouts, Rows: l.Rows, Tokens: l.Tokens, TrainedTokens: l.Trained,
		CreatedAt: store.FormatTime(l.CreatedAt)}
}

func answerLease(c echo.Context, l *store.Lease, err error) error {
	if err != nil {
		return fault(err)
	}
	return answer(c, showable(l))
}
