package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestSplitStatement(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, statement, rest string }{
		{"SELECT 1;", "SELECT 1", ""},
		{"SELECT 1; SELECT 2;", "SELECT 1", " SELECT 2;"},
		{"SELECT ';''', \"a;\"\"b\";\n", `SELECT ';''', "a;""b"`, "\n"},
		{"SELECT 1 -- one;\n;", "SELECT 1 -- one;\n", ""},
		{"SELECT /* ; */ 1;", "SELECT /* ; */ 1", ""},
		{"SELECT $$;$$, $a$ ; $$ $a$;", "SELECT $$;$$, $a$ ; $$ $a$", ""},
		{"SELECT $1;", "SELECT $1", ""},
		{";", "", ""},
	} {
		statement, rest, ok := splitStatement(c.text)
		require.True(t, ok, c.text)
		require.Equal(t, c.statement, statement)
		require.Equal(t, c.rest, rest)
	}
	for _, text := range []string{"", "SELECT 1", "SELECT ';", `SELECT "a;`, "SELECT 1 -- ;", "SELECT /* ;", "SELECT $$ ;", "SELECT $x$ ; $y$"} {
		_, rest, ok := splitStatement(text)
		require.False(t, ok, text)
		require.Equal(t, text, rest)
	}
}

// TestSplitLoses: nothing of what is typed is lost but the semicolons.
func TestSplitLoses(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`['"$a;\-*/\n ]{0,30}`).Draw(t, "text")
		var parts []string
		rest := text
		for {
			statement, after, ok := splitStatement(rest)
			if !ok {
				break
			}
			parts, rest = append(parts, statement), after
		}
		require.Equal(t, text, strings.Join(append(parts, rest), ";"))
	})
}

func TestReadParams(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		flags []string
		want  string
	}{
		{nil, `null`},
		{[]string{"null", "true", "9223372036854775807", "1.5", "r-1", `"5"`, "007", "a, b", "", "[1]"},
			`[null,true,9223372036854775807,1.5,"r-1","5","007","a, b","","[1]"]`},
		{[]string{"=a=b"}, `["a=b"]`},
		{[]string{"1=b"}, `["1=b"]`},
		{[]string{"x=5", "y=a=b", "z="}, `{"x":5,"y":"a=b","z":""}`},
	} {
		got, err := readParams(c.flags)
		require.NoError(t, err)
		raw, err := json.Marshal(got)
		require.NoError(t, err)
		require.Equal(t, c.want, string(raw))
	}
	_, err := readParams([]string{"a=1", "2"})
	require.ErrorContains(t, err, "some have names")
	_, err = readParams([]string{"a=1", "a=2"})
	require.ErrorContains(t, err, "twice")
}

func TestCellText(t *testing.T) {
	t.Parallel()
	var long []string
	for range 19103 {
		long = append(long, "7")
	}
	many := "[" + strings.Join(long, ",") + "]"
	for _, c := range []struct{ raw, want string }{
		{`null`, `NULL`},
		{`"NULL"`, `"NULL"`},
		{`""`, ``},
		{`"a\nb\u001b[31m\tü\u202e"`, `a\nb\x1b[31m\tü\u202e`},
		{`-1.5`, `-1.5`},
		{`true`, `true`},
		{`[]`, `[]`},
		{`[1,2,3,4,5,6,7,8]`, `[1, 2, 3, 4, 5, 6, 7, 8]`},
		{`[1,2,3,4,5,6,7,8,9]`, `[1, 2, 3, … 9 items]`},
		{many, `[7, 7, 7, … 19,103 items]`},
		{`{"a":` + many + `,"b,\"]":[["x,]"],{}]}`, `{"a": [7, 7, 7, … 19,103 items], "b,\"]": [["x,]"], {}]}`},
	} {
		text, null := cellText(json.RawMessage(c.raw))
		require.Equal(t, c.want, text)
		require.Equal(t, c.raw == "null", null)
	}
}

func readResult(t *testing.T, raw string) *result {
	t.Helper()
	var r result
	require.NoError(t, json.Unmarshal([]byte(raw), &r))
	return &r
}

// textResult is a result of texts, without rows.
func textResult(names ...string) *result {
	r := &result{}
	for _, n := range names {
		r.Columns = append(r.Columns, struct {
			Name string `json:"name"`
			Type string `json:"type"`
		}{n, "VARCHAR"})
	}
	return r
}

func shown(t *testing.T, v view, raw string) string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, v.show(&out, readResult(t, raw)))
	return out.String()
}

const small = `{"columns":[{"name":"name","type":"VARCHAR"},{"name":"n","type":"BIGINT"},{"name":"x","type":"DECIMAL(5,2)"}],
	"rows":[["r-1",5,null],["日本",1234,1.25]],"truncated":false}`

func TestTable(t *testing.T) {
	t.Parallel()
	require.Equal(t, ` name |    n |    x
------+------+------
 r-1  |    5 | NULL
 日本 | 1234 | 1.25
(2 rows)
`, shown(t, view{}, small))
	require.Contains(t, shown(t, view{color: true, width: 80}, small), "\x1b[2mNULL\x1b[0m")
	require.Equal(t, `-[ row 1 ]-
name | r-1
n    | 5
x    | NULL
-[ row 2 ]-
name | 日本
n    | 1234
x    | 1.25
(2 rows)
`, shown(t, view{expanded: true}, small))
	require.Contains(t, shown(t, view{more: moreRows}, `{"columns":[{"name":"a","type":"INTEGER"}],"rows":[[1]],"truncated":true}`),
		"(1 row, truncated: there are more; raise --limit")
	require.Equal(t, " a\n---\n(0 rows)\n", shown(t, view{}, `{"columns":[{"name":"a","type":"INTEGER"}],"rows":[]}`))
}

// TestTableFits: on a terminal no line is wider than it, as long as one column
// can be shown at all.
func TestTableFits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := textResult(rapid.SliceOfN(rapid.StringMatching(`[a-z日]{1,30}`), 1, 12).Draw(t, "names")...)
		for range rapid.IntRange(0, 3).Draw(t, "rows") {
			var row []json.RawMessage
			for range r.Columns {
				row = append(row, json.RawMessage(`"`+rapid.StringMatching(`[a-z日]{0,60}`).Draw(t, "text")+`"`))
			}
			r.Rows = append(r.Rows, row)
		}
		v := view{width: rapid.IntRange(20, 120).Draw(t, "width"), expanded: false}
		var out bytes.Buffer
		require.NoError(t, v.show(&out, r))
		for line := range strings.Lines(out.String()) {
			if !strings.HasPrefix(line, "(") {
				require.LessOrEqual(t, displayWidth(strings.TrimSuffix(line, "\n")), v.width, "%s", out.String())
			}
		}
	})
}

func TestManyColumns(t *testing.T) {
	t.Parallel()
	names := make([]string, 30)
	for i := range names {
		names[i] = "column_with_a_name"
	}
	var out bytes.Buffer
	require.NoError(t, view{width: 80}.show(&out, textResult(names...)))
	require.Contains(t, out.String(), "(7 of 30 columns fit; \\x shows all, or select fewer)")
}

func TestRefusalShowsPlace(t *testing.T) {
	t.Parallel()
	at := 1
	for _, c := range []struct {
		r    sqlRefusal
		want string
	}{
		{sqlRefusal{}, "no such column (sql_binding)"},
		{sqlRefusal{Position: &at, Line: 2, Column: 4, sql: "SELECT 1,\n\t日 nix"}, "no such column (sql_binding)\nLINE 2:  日 nix\n" + "            ^"},
		{sqlRefusal{Position: &at, Line: 1, Column: 500, sql: "SELECT 1"}, "no such column (sql_binding)\nLINE 1: SELECT 1\n                ^"},
		{sqlRefusal{Position: &at, Line: 9, Column: 1, sql: "SELECT 1"}, "no such column (sql_binding)"},
	} {
		c.r.Code, c.r.Detail = "sql_binding", "no such column"
		require.Equal(t, c.want, c.r.Error())
	}
	long := sqlRefusal{Position: &at, Line: 1, Column: 301, sql: strings.Repeat("a", 300) + "X" + strings.Repeat("b", 300)}
	lines := strings.Split(long.Error(), "\n")
	require.Len(t, lines, 3)
	require.Less(t, displayWidth(lines[1]), 90)
	require.Equal(t, "X", string([]rune(lines[1])[displayWidth(lines[2])-1]))
}

func TestComplete(t *testing.T) {
	t.Parallel()
	s := &shell{}
	s.learn(tableList{})
	head, words, tail := s.complete("SELECT x fro t", 12)
	require.Equal(t, "SELECT x ", head)
	require.Equal(t, []string{"FROM"}, words)
	require.Equal(t, " t", tail)
	_, words, _ = s.complete("SELECT ", 7)
	require.Empty(t, words)
}

func TestDescription(t *testing.T) {
	t.Parallel()
	lines := [][3]string{{"id", "BIGINT", ""}, {"a_long_name", "STRUCT(one INTEGER, two VARCHAR)", "what it is, in a few words too many"}, {"x", "DOUBLE", "short"}}
	var out bytes.Buffer
	writeDescription(&out, 70, lines)
	require.Equal(t, `id           BIGINT
a_long_name  STRUCT(one INTEGER, two VARCHAR)
                                         what it is, in a few words
                                         too many
x            DOUBLE                      short
`, out.String())
}
