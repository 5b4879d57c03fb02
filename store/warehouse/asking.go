package warehouse

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	bindings "github.com/duckdb/duckdb-go-bindings"
	"github.com/duckdb/duckdb-go/v2/mapping"

	"icecore/store/sandbox"
)

// Ask runs one statement of a user's. Its result is handed over batch by batch
// as DuckDB makes it, at least one batch, which may be empty; a batch is valid
// during the call only. All of it happens in one read-only transaction. The
// error is a *Fault if the statement is to blame, ctx's error if ctx ended, or
// each's own; any other is the warehouse's.
func (e *Engine) Ask(ctx context.Context, a Ask, each func(arrow.RecordBatch) error) (Reply, error) {
	if err := legible(a.SQL); err != nil {
		return Reply{}, err
	}
	conn, giveBack, err := e.conn(ctx)
	if err != nil {
		return Reply{}, err
	}
	defer giveBack()
	if err := beginOn(ctx, conn, "BEGIN TRANSACTION READ ONLY"); err != nil {
		return Reply{}, e.noted(fmt.Errorf("ask warehouse: %w", err))
	}
	defer rollBack(ctx, conn) //nolint:errcheck // it changed nothing
	if err := e.examine(ctx, conn, a.SQL); err != nil {
		return Reply{}, err
	}
	var reply Reply
	err = conn.Raw(func(dc any) error {
		raw := rawConnection(dc.(driver.Conn))
		defer interrupting(ctx, raw)()
		return run(ctx, raw, a, each, &reply)
	})
	if fatal, ok := errors.AsType[*fatalError](err); ok {
		return reply, e.noted(fmt.Errorf("ask warehouse: %w", fatal))
	}
	return reply, err
}

// legible refuses what the sandbox and DuckDB could read as two different texts:
// C ends a text at its first zero byte.
func legible(text string) error {
	switch {
	case strings.TrimSpace(text) == "":
		return &Fault{Code: FaultSyntax, Message: "there is no statement", Position: -1}
	case len(text) > sandbox.MaxStatementBytes:
		return &Fault{Code: FaultRefused, Position: -1,
			Message: fmt.Sprintf("the statement has %d bytes; at most %d are allowed", len(text), sandbox.MaxStatementBytes)}
	case !utf8.ValidString(text):
		return &Fault{Code: FaultSyntax, Message: "the statement is not UTF-8", Position: -1}
	case strings.ContainsRune(text, 0):
		return &Fault{Code: FaultSyntax, Message: "the statement has a zero byte", Position: strings.IndexByte(text, 0)}
	}
	return nil
}

// rollBack ends a transaction, if there is one. A connection that cannot do even
// that is not used again.
func rollBack(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
	if err == nil || strings.Contains(err.Error(), "no transaction is active") {
		return nil
	}
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	return fmt.Errorf("roll back in warehouse: %w", err)
}

// examine asks the sandbox. Nothing of the statement has been bound or run yet:
// already binding a table function may read files.
func (e *Engine) examine(ctx context.Context, conn *sql.Conn, text string) error {
	face, err := faceOf(ctx, conn)
	if err != nil {
		return e.noted(err)
	}
	var tree string
	if err := conn.QueryRowContext(ctx, sandbox.TreeSQL, text).Scan(&tree); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		// Not noted: what a user writes could pass for a fault of the database.
		return faultOf(text, err.Error(), mapping.ErrorTypeInvalid)
	}
	if bad, ok := errors.AsType[*sandbox.Error](sandbox.Check([]byte(tree), face)); ok {
		code := map[sandbox.Kind]string{sandbox.Syntax: FaultSyntax, sandbox.Unknown: FaultBinding}[bad.Kind]
		if code == "" {
			code = FaultRefused
		}
		return &Fault{Code: code, Message: bad.Message, Position: bad.Position}
	}
	return nil
}

// faceSchemas are where users find tables: main is the newest version.
var faceSchemas = []string{"main", "v1"}

// faceOf reads which tables there are for users: the views of v1, so that no
// list has to keep in step with the migrations.
func faceOf(ctx context.Context, conn *sql.Conn) (sandbox.Face, error) {
	face := sandbox.Face{Schemas: faceSchemas}
	var locked bool
	if err := conn.QueryRowContext(ctx, `SELECT current_setting('lock_configuration')`).Scan(&locked); err != nil {
		return face, fmt.Errorf("look whether the warehouse is locked down: %w", err)
	}
	if !locked {
		return face, errors.New("ask warehouse: it is not locked down")
	}
	rows, err := conn.QueryContext(ctx, `SELECT view_name FROM duckdb_views() WHERE schema_name = 'v1' ORDER BY view_name`)
	if err != nil {
		return face, fmt.Errorf("list views: %w", err)
	}
	defer rows.Close() //nolint:errcheck // Err says it
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return face, fmt.Errorf("list views: %w", err)
		}
		face.Tables = append(face.Tables, name)
	}
	if err := rows.Err(); err != nil {
		return face, fmt.Errorf("list views: %w", err)
	}
	return face, nil
}

// interruptEvery is how often a query is told to stop: DuckDB forgets it when it
// comes between two steps.
const interruptEvery = 20 * time.Millisecond

// interrupting interrupts what runs on conn once ctx has ended, until stop is
// called.
func interrupting(ctx context.Context, conn mapping.Connection) (stop func()) {
	over, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		select {
		case <-over:
			return
		case <-ctx.Done():
		}
		tick := time.NewTicker(interruptEvery)
		defer tick.Stop()
		for {
			mapping.Interrupt(conn)
			select {
			case <-over:
				return
			case <-tick.C:
			}
		}
	}()
	return func() {
		close(over)
		<-gone
	}
}

// run prepares, binds and executes a statement that the sandbox let pass.
func run(ctx context.Context, conn mapping.Connection, a Ask, each func(arrow.RecordBatch) error, reply *Reply) error {
	var stmt mapping.PreparedStatement
	defer mapping.DestroyPrepare(&stmt)
	if mapping.Prepare(conn, a.SQL, &stmt) == mapping.StateError {
		return failed(ctx, a.SQL, mapping.PrepareError(stmt), mapping.ErrorTypeInvalid)
	}
	// The sandbox has seen to that; should it and DuckDB ever read differently,
	// nothing but a SELECT runs.
	if mapping.PreparedStatementType(stmt) != mapping.StatementTypeSelect {
		return &Fault{Code: FaultRefused, Message: "only one SELECT may run", Position: -1}
	}
	if err := bind(stmt, a); err != nil {
		return err
	}
	var pending mapping.PendingResult
	defer mapping.DestroyPending(&pending)
	if bindings.PendingPreparedStreaming(stmt, &pending) == mapping.StateError {
		return failed(ctx, a.SQL, mapping.PendingError(pending), mapping.ErrorTypeInvalid)
	}
	var res mapping.Result
	defer mapping.DestroyResult(&res)
	if mapping.ExecutePending(pending, &res) == mapping.StateError {
		return failed(ctx, a.SQL, mapping.ResultError(&res), mapping.ResultErrorType(&res))
	}
	return stream(ctx, a, &res, each, reply)
}
