package apptest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/stretchr/testify/require"
)

func rawText(s string) json.RawMessage { return quote(s) }

// export reads GET /v1/trajectories as Arrow and demands that it is whole:
// headers, metadata, trailer and rows agree.
func (s *server) export(query string, headers ...string) *arrowTable {
	s.t.Helper()
	a := s.get("/v1/trajectories?"+query, headers...).is(200)
	require.Equal(s.t, typeArrow, a.header.Get("Content-Type"))
	require.Equal(s.t, "true", a.trailer.Get("Icecore-Complete"))
	table, err := readArrow(bytes.NewReader(a.body))
	require.NoError(s.t, err)
	table.next = a.header.Get("Icecore-Next-Cursor")
	counted(s.t, a, table.rows)
	meta := table.schema.Metadata()
	for name, header := range map[string]string{"schema_version": "Schema-Version", "merge_policy": "Merge-Policy", "rows": "Rows", "rollouts": "Rollouts",
		"tokens": "Tokens", "trained_tokens": "Trained-Tokens", "next_cursor": "Next-Cursor"} {
		v, _ := meta.GetValue("icecore." + name)
		require.Equal(s.t, a.header.Get("Icecore-"+header), v, name)
	}
	return table
}

// counted compares rows with what the headers promised.
func counted(t require.TestingT, a *answer, rows []exported) {
	tokens, trained, rollouts := 0, 0, map[string]bool{}
	for _, r := range rows {
		rollouts[r.RolloutID] = true
		tokens += len(r.TokenIDs)
		for _, bit := range r.LossMask {
			trained += int(bit)
		}
	}
	for name, want := range map[string]int{"Rows": len(rows), "Rollouts": len(rollouts), "Tokens": tokens, "Trained-Tokens": trained} {
		require.Equal(t, strconv.Itoa(want), a.header.Get("Icecore-"+name), name)
	}
}

// exportLines reads it as NDJSON.
func (s *server) exportLines(query string) (rows []exported, raw []object) {
	s.t.Helper()
	a := s.get("/v1/trajectories?"+query, "Accept", typeNDJSON).is(200)
	require.Equal(s.t, typeNDJSON, a.header.Get("Content-Type"))
	require.Equal(s.t, "true", a.trailer.Get("Icecore-Complete"))
	lines := bufio.NewScanner(bytes.NewReader(a.body))
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var x exported
		require.NoError(s.t, json.Unmarshal(lines.Bytes(), &x))
		var o object
		d := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		d.UseNumber()
		require.NoError(s.t, d.Decode(&o))
		rows, raw = append(rows, x), append(raw, o)
	}
	require.NoError(s.t, lines.Err())
	counted(s.t, a, rows)
	return rows, raw
}
