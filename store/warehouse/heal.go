package warehouse

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// DuckDB gives a database up for good at some faults, a full disk during a
// checkpoint among them: everything fails until it is opened anew. Nothing is
// lost by that, since its log holds what was committed. Heal opens it anew, in
// place, once whoever still uses it has left.

// conn gives a connection, and what gives it back. The database is not opened
// anew in between.
func (e *Engine) conn(ctx context.Context) (*sql.Conn, func(), error) {
	e.use.RLock()
	conn, err := e.db.Conn(ctx)
	if err != nil {
		e.use.RUnlock()
		return nil, nil, e.noted(fmt.Errorf("connect to warehouse: %w", err))
	}
	return conn, func() {
		_ = conn.Close() // gives it back to the pool
		e.use.RUnlock()
	}, nil
}

// noted remembers that err means that the database is given up.
func (e *Engine) noted(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	for _, sign := range []string{"database has been invalidated", "FATAL Error", "INTERNAL Error", "database is closed"} {
		if strings.Contains(text, sign) {
			e.broken.Store(true)
			return fmt.Errorf("%w: %w", ErrOutOfOrder, err)
		}
	}
	return err
}

// Heal opens a database that was given up anew. It reports whether it did.
func (e *Engine) Heal(context.Context) (healed bool, err error) {
	if !e.broken.Load() {
		return false, nil
	}
	e.writes.Lock()
	defer e.writes.Unlock()
	e.use.Lock()
	defer e.use.Unlock()
	// It has failed already; what closing adds to that does not matter.
	_ = e.db.Close()
	fresh, err := open(e.path, e.opts)
	if err != nil {
		return false, fmt.Errorf("open the warehouse anew: %w", err)
	}
	e.db = fresh.db
	e.broken.Store(false)
	return true, nil
}
