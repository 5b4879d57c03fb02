package delivery

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/labstack/echo/v4"

	"icecore/store"
)

// seekRequest is where a consumer is to go on.
type seekRequest struct {
	to   store.Seek
	said string
}

var seekFields = map[string]setter[seekRequest]{
	"time": func(s *seekRequest, raw json.RawMessage) error {
		v, err := text(raw)
		if err != nil {
			return err
		}
		at, err := time.Parse(time.RFC3339, v)
		if err != nil || at.Year() < 1 || at.Year() > 9999 {
			return errors.New("is not a time as 2026-01-31T09:30:00Z")
		}
		s.to.Time = ptr(at.UnixMicro())
		return nil
	},
	"policy_version": optWholeField(func(s *seekRequest) **int64 { return &s.to.PolicyVersion }, 0, 1<<62),
	"to":             choiceField(func(s *seekRequest) *string { return &s.said }, "beginning", "end"),
}

func (a *API) seek(c echo.Context) error {
	name, err := pathID(c, "name")
	if err != nil {
		return err
	}
	body, err := a.jsonBody(c)
	if err != nil {
		return err
	}
	var s seekRequest
	given, err := read(&s, body, seekFields, "a seek", "")
	if err != nil {
		return err
	}
	if len(given) != 1 {
		return invalid("to", "exactly one of time, policy_version and to says where to go")
	}
	s.to.End = s.said == "end"
	ctx := c.Request().Context()
	var cancelled int
	var state *store.ConsumerState
	err = a.inTurn(ctx, name, func() (err error) {
		if cancelled, err = a.s.SeekConsumer(ctx, name, s.to); err != nil {
			return err
		}
		state, err = a.s.Consumer(ctx, name)
		return err
	})
	if err != nil {
		return fault(err)
	}
	return answer(c, map[string]any{"consumer": name, "from_time": optTime(state.FromTime),
		"from_policy_version": state.FromPolicyVersion, "cancelled_leases": cancelled})
}
