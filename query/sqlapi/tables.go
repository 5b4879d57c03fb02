package sqlapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/labstack/echo/v4"

	"icecore/problem"
)

// sqlSchema is the schema whose views are the contract of SQL.
const sqlSchema = "v1"

// tablesTimeout bounds the reading of the catalogue.
const tablesTimeout = 30 * time.Second

// sqlTable is one view that users query.
type sqlTable struct {
	Name    string      `json:"name"`
	Comment *string     `json:"comment"`
	Columns []sqlColumn `json:"columns"`
}

type sqlColumn struct {
	Name    string  `json:"name"`
	Type    string  `json:"type"`
	Comment *string `json:"comment"`
}

// tables serves GET /v1/sql/tables.
func (a *API) tables(c echo.Context) error {
	for name := range c.QueryParams() {
		return problem.BadParameter(name, "is not a parameter of this path")
	}
	client := c.Request().Context()
	ctx, cancel := context.WithTimeout(client, tablesTimeout)
	defer cancel()
	list, err := a.listTables(ctx)
	if err != nil {
		return fault(ctx, client, &statement{timeout: tablesTimeout}, err)
	}
	h := c.Response().Header()
	h.Set(echo.HeaderContentType, echo.MIMEApplicationJSON)
	c.Response().WriteHeader(http.StatusOK)
	e := json.NewEncoder(c.Response())
	e.SetEscapeHTML(false)
	if err := e.Encode(map[string]any{"schema": sqlSchema, "tables": list}); err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	return nil
}

// listTables gives the views in the order of their names, each with its columns
// in its own order.
func (a *API) listTables(ctx context.Context) ([]*sqlTable, error) {
	out := []*sqlTable{}
	each := func(rec arrow.RecordBatch) error {
		text := make([]*array.String, rec.NumCols())
		for i := range text {
			var ok bool
			if text[i], ok = rec.Column(i).(*array.String); !ok {
				return fmt.Errorf("list tables: column %d is %s", i, rec.Column(i).DataType())
			}
		}
		opt := func(column, row int) *string {
			if text[column].IsNull(row) {
				return nil
			}
			s := text[column].Value(row)
			return &s
		}
		for i := range int(rec.NumRows()) {
			if name := text[0].Value(i); len(out) == 0 || out[len(out)-1].Name != name {
				out = append(out, &sqlTable{Name: name, Comment: opt(1, i)})
			}
			t := out[len(out)-1]
			t.Columns = append(t.Columns, sqlColumn{Name: text[2].Value(i), Type: text[3].Value(i), Comment: opt(4, i)})
		}
		return nil
	}
	err := a.w.Query(ctx, each, `
		SELECT v.view_name, v.comment, c.column_name, c.data_type, c.comment
		FROM duckdb_views() v
		JOIN duckdb_columns() c ON c.database_oid = v.database_oid AND c.schema_name = v.schema_name AND c.table_name = v.view_name
		WHERE v.schema_name = '`+sqlSchema+`' AND NOT v.internal
		ORDER BY v.view_name, c.column_index`)
	if err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	return out, nil
}
