package warehouse

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
)

// askCall is an Ask on its way.
type askCall struct {
	Ask
	Params []value          `json:"params,omitempty"`
	Named  map[string]value `json:"named,omitempty"`
}

func writeAsk(a Ask) ([]byte, error) {
	call := askCall{Ask: a, Named: map[string]value{}}
	var err error
	if call.Params, err = valuesOf(a.Params); err != nil {
		return nil, err
	}
	for name, v := range a.Named {
		if call.Named[name], err = valueOf(v); err != nil {
			return nil, err
		}
	}
	body, err := json.Marshal(call)
	if err != nil {
		return nil, fmt.Errorf("ask the warehouse: %w", err)
	}
	return body, nil
}

// serveAsk answers with its first byte as soon as it has taken the ask on: from
// then on the parent can wait for its end.
func (s *server) serveAsk(w http.ResponseWriter, r *http.Request) {
	out := newRowWriter(w)
	var o outcome
	err := func() error {
		id, err := strconv.ParseInt(r.URL.Query().Get("id"), 10, 64)
		if err != nil {
			return fmt.Errorf("ask the warehouse: %w", err)
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return cutShort(err)
		}
		a, err := readAsk(body)
		if err != nil {
			return err
		}
		e := s.opened()
		if e == nil {
			return errNotOpen
		}
		over := make(chan struct{})
		s.mu.Lock()
		s.asks[id] = over
		s.mu.Unlock()
		defer func() {
			s.mu.Lock()
			delete(s.asks, id)
			s.mu.Unlock()
			close(over)
		}()
		w.WriteHeader(http.StatusOK)
		control := http.NewResponseController(w)
		if err := control.Flush(); err != nil {
			return cutShort(err)
		}
		// Rows of a long statement are sent as they come.
		reply, err := s.ask(r.Context(), e, a, func(rec arrow.RecordBatch) error {
			return errors.Join(out.write(rec), out.buf.Flush(), control.Flush())
		})
		o.Reply = &reply
		return err
	}()
	s.answer(out, o, err)
}

func readAsk(body []byte) (Ask, error) {
	var call askCall
	if err := json.Unmarshal(body, &call); err != nil {
		return Ask{}, fmt.Errorf("ask the warehouse: %w", err)
	}
	a := call.Ask
	var err error
	if len(call.Params) > 0 {
		if a.Params, err = anyOf(call.Params); err != nil {
			return Ask{}, err
		}
	}
	if len(call.Named) > 0 {
		a.Named = map[string]any{}
	}
	for name, v := range call.Named {
		if a.Named[name], err = v.any(); err != nil {
			return Ask{}, err
		}
	}
	return a, nil
}

// waitAsk comes back when an ask is over.
func (s *server) waitAsk(ctx context.Context, _ *Engine, body []byte) (o outcome, err error) {
	id, err := strconv.ParseInt(string(body), 10, 64)
	if err != nil {
		return o, fmt.Errorf("ask the warehouse: %w", err)
	}
	s.mu.Lock()
	over := s.asks[id]
	s.mu.Unlock()
	if over == nil {
		return o, nil
	}
	select {
	case <-over:
		return o, nil
	case <-ctx.Done():
		return o, ctx.Err()
	}
}
