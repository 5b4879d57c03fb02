package body_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"icecore/ingest/gateway/body"
	"icecore/ingest/gateway/turn"
)

// Some clients of Windows begin their JSON with a byte order mark.
func TestRead_PassesOverAByteOrderMark(t *testing.T) {
	t.Parallel()
	f, err := body.Read([]byte("\ufeff{\"a\":1}"))
	require.NoError(t, err)
	require.True(t, f.Has("a"))
}

func TestRead_RefusesWithPlace(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ raw, field, says string }{
		"empty":                  {"", "", "ends too early at byte 0"},
		"cut":                    {`{"a":[1,`, "a[1]", "ends too early at byte 8"},
		"array":                  {`[]`, "", "must be an object, not an array"},
		"goes on":                {`{} {}`, "", "goes on after its end at byte 3"},
		"twice":                  {`{"a":{"b":1,"b":2}}`, "a.b", "comes twice at byte 12"},
		"twice, escaped":         {`{"ab":1,"a\u0062":2}`, "ab", "comes twice"},
		"twice in an element":    {`{"messages":[{},{"role":1,"role":1}]}`, "messages[1].role", "comes twice"},
		"not UTF-8":              {"{\"a\":\"\xff\"}", "", "not UTF-8 at byte 6"},
		"half a character":       {"{\"a\":\"\xe2\x82\"}", "", "not UTF-8 at byte 6"},
		"too deep":               {strings.Repeat(`{"a":`, 513), "", "more than 512 levels"},
		"too deep, arrays":       {`{"a":` + strings.Repeat(`[`, 512), "", "more than 512 levels"},
		"NaN":                    {`{"a":NaN}`, "a", "not JSON at byte 5"},
		"leading zero":           {`{"a":01}`, "", "a comma or } is missing at byte 6"},
		"no fraction":            {`{"a":1.}`, "a", "not a number"},
		"bare minus":             {`{"a":-}`, "a", "not a number"},
		"no exponent":            {`{"a":1e}`, "a", "not a number"},
		"a comma too many":       {`{"a":1,}`, "", "a member's name must be a string"},
		"an element too many":    {`{"a":[1,]}`, "a[1]", "not JSON"},
		"control character":      {"{\"a\":\"\n\"}", "a", "control character"},
		"escape that is none":    {`{"a":"\x"}`, "a", "an escape that is none"},
		"half a unicode escape":  {`{"a":"\u12G4"}`, "a", "an escape that is none"},
		"string without end":     {`{"a":"b`, "a", "a string without end"},
		"string ends in a slash": {`{"a":"b\`, "a", "an escape that is none"},
		"two byte order marks":   {"\ufeff\ufeff{}", "", "not JSON at byte 0"},
		"a mark inside":          {"{\"a\":\ufeff1}", "a", "not JSON at byte 5"},
		"no colon":               {`{"a" 1}`, "a", "a colon is missing"},
		"comment":                {`{/**/}`, "", "name must be a string"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := body.Read([]byte(c.raw))
			fault := asFault(t, err)
			require.Contains(t, fault.Message, c.says)
			if !strings.Contains(name, "deep") {
				require.Equal(t, c.field, fault.Field)
			}
		})
	}
}

func asFault(t *testing.T, err error) *turn.Fault {
	t.Helper()
	var fault *turn.Fault
	require.ErrorAs(t, err, &fault)
	require.Equal(t, 400, fault.Status)
	require.Equal(t, turn.CodeInvalidRequest, fault.Code)
	return fault
}

func TestRead_TakesWhatIsWithinBounds(t *testing.T) {
	t.Parallel()
	deep := `{"a":` + strings.Repeat(`[`, 511) + strings.Repeat(`]`, 511) + `}`
	f, err := body.Read([]byte(deep))
	require.NoError(t, err)
	require.Equal(t, body.KindArray, f.Get("a").Kind())

	var many strings.Builder
	many.WriteString(`{"n0":0`)
	for i := 1; i < 100; i++ {
		fmt.Fprintf(&many, `,"n%d":%d`, i, i)
	}
	f, err = body.Read([]byte(many.String() + "}"))
	require.NoError(t, err)
	require.Len(t, f.All(), 100)
	_, err = body.Read([]byte(many.String() + `,"n7":7}`))
	require.Equal(t, "n7", asFault(t, err).Field)
}

func TestHintsAreLeftOut(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		`{ "a" :1,"cache_control":{"type":"ephemeral"}, "b\"":null }`: `{"a":1,"b\"":null}`,
		`{"cache_control":null,"a": [ 1]}`:                            `{"a":[ 1]}`,
		`{"cache_control":{}}`:                                        `{}`,
		`{ "a" :1 }`:                                                  `{ "a" :1 }`,
	} {
		f, err := body.Read([]byte(`{"v":` + raw + `}`))
		require.NoError(t, err)
		v := f.Get("v")
		inner, err := v.Fields()
		require.NoError(t, err)
		require.Equal(t, want, string(inner.Unhinted(v)))
		require.NotContains(t, inner.Rest(), "cache_control")
		require.Nil(t, inner.Rest("a"))
	}
}

func TestGetters(t *testing.T) {
	t.Parallel()
	f, err := body.Read([]byte(` { "s" : "a\u00e9\ud800b", "big":9007199254740993 ,"round":8e3,"half":0.5,"huge":1e400,
		"yes":true,"no":null,"list":[ 1 , {"x": [ ] } , "a]b" ],"o":{"p":{"q":-0.0}}, "e":"" } `))
	require.NoError(t, err)

	s, err := f.Get("s").String()
	require.NoError(t, err)
	require.Equal(t, "aé\ufffdb", s, "a lone surrogate is replaced")
	n, err := f.Get("big").Int()
	require.NoError(t, err)
	require.Equal(t, int64(9007199254740993), *n, "no float round trip")
	require.Equal(t, "9007199254740993", string(f.Get("big").Raw()))
	n, err = f.Get("round").Int()
	require.NoError(t, err)
	require.Equal(t, int64(8000), *n)
	x, err := f.Get("half").Float()
	require.NoError(t, err)
	require.InDelta(t, 0.5, *x, 0)
	is, err := f.Get("yes").Bool()
	require.NoError(t, err)
	require.True(t, *is)

	for _, absent := range []body.Value{f.Get("no"), f.Get("nowhere")} {
		require.True(t, absent.Absent())
		n, err := absent.Int()
		require.NoError(t, err)
		require.Nil(t, n)
		b, err := absent.Bool()
		require.NoError(t, err)
		require.Nil(t, b)
		s, err := absent.String()
		require.NoError(t, err)
		require.Empty(t, s)
		list, err := absent.Array()
		require.NoError(t, err)
		require.Nil(t, list)
		_, err = absent.Fields()
		require.Contains(t, err.Error(), "must be an object, not null")
	}
	require.True(t, f.Get("no").Given())
	require.False(t, f.Get("nowhere").Given())
	require.False(t, f.Has("no"))

	list, err := f.Get("list").Array()
	require.NoError(t, err)
	require.Len(t, list, 3)
	require.Equal(t, `{"x":[]}`, string(list[1].Compact()))
	inner, err := list[1].Fields()
	require.NoError(t, err)
	require.Equal(t, "list[1].x", inner.Get("x").Path())
	require.Equal(t, "list[1].y", inner.Get("y").Path())
	require.Equal(t, map[string]json.RawMessage{"x": json.RawMessage("[ ]")}, inner.Rest("z"))

	for _, wrong := range []func() error{
		func() error { _, err := f.Get("half").Int(); return err },
		func() error { _, err := f.Get("huge").Int(); return err },
		func() error { _, err := f.Get("huge").Float(); return err },
		func() error { _, err := f.Get("s").Int(); return err },
		func() error { _, err := f.Get("big").String(); return err },
		func() error { _, err := f.Get("big").Bool(); return err },
		func() error { _, err := f.Get("s").Array(); return err },
		func() error { _, err := f.Get("e").NeedString(); return err },
	} {
		require.NotEmpty(t, asFault(t, wrong()).Field)
	}
}

func TestObject_NamesItsPlace(t *testing.T) {
	t.Parallel()
	f, err := body.Object([]byte(`{"a":[{"b":1}]}`), "messages[2].arguments")
	require.NoError(t, err)
	list, err := f.Get("a").Array()
	require.NoError(t, err)
	require.Equal(t, "messages[2].arguments.a[0]", list[0].Path())
	_, err = body.Object([]byte(`{"a":1,"a":1}`), "x")
	require.Equal(t, "x.a", asFault(t, err).Field)
}

// Whatever JSON is written, splitting gives its parts back.
func TestRead_SplitsWhatJSONWrites(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.MapOf(rapid.String(), rapid.OneOf(
			rapid.Map(rapid.String(), func(s string) any { return s }),
			rapid.Map(rapid.Int64(), func(n int64) any { return n }),
			rapid.Map(rapid.SliceOf(rapid.String()), func(s []string) any { return s }),
			rapid.Map(rapid.MapOf(rapid.String(), rapid.Float64Range(-1e9, 1e9)), func(m map[string]float64) any { return m }),
		)).Draw(t, "values")
		raw, err := json.Marshal(values)
		require.NoError(t, err)
		if rapid.Bool().Draw(t, "indent") {
			raw, err = json.MarshalIndent(values, " ", "\t")
			require.NoError(t, err)
		}
		f, err := body.Read(raw)
		require.NoError(t, err)
		require.Len(t, f.All(), len(values))
		for name, v := range values {
			want, err := json.Marshal(v)
			require.NoError(t, err)
			require.Equal(t, string(want), string(f.Get(name).Compact()))
		}
	})
}

func TestAppendString(t *testing.T) {
	t.Parallel()
	require.Equal(t, `"a\"\\\n\u0001<>&é\u2028\u0085 `+"\ufffd\"", string(body.AppendString(nil, "a\"\\\n\x01<>&é\u2028\u0085 \xff")))
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "s")
		var back string
		require.NoError(t, json.Unmarshal(body.AppendString(nil, s), &back))
		require.Equal(t, s, back)
	})
}

// FuzzRead compares with the standard library: what is taken is JSON, and what is
// refused for its grammar is none.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{`{"a":[1,{"b":"\u00e9"}],"c":-1.5e+3}`, `{"a":1,"a":2}`, "{\"a\":\"\xff\"}", `[[]]`, `{"":null} `, `{"a":tru}`, `{"a":"\ud83d"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		err := body.Check(raw, "")
		if err == nil {
			require.True(t, json.Valid(raw))
			require.True(t, utf8.Valid(raw))
			body.LoneSurrogate(raw)
			walk(t, raw)
			return
		}
		var fault *turn.Fault
		require.True(t, errors.As(err, &fault))
		require.True(t, utf8.ValidString(fault.Message))
		for _, stricter := range []string{"comes twice", "not UTF-8", "512 levels"} {
			if strings.Contains(fault.Message, stricter) {
				return
			}
		}
		require.False(t, json.Valid(raw), fault.Message)
	})
}

func walk(t *testing.T, raw []byte) {
	f, err := body.Read(raw)
	if err != nil {
		return // no object
	}
	for _, m := range f.All() {
		require.True(t, json.Valid(m.Value.Raw()))
		list, err := m.Value.Array()
		if err != nil {
			continue
		}
		for _, one := range list {
			require.True(t, json.Valid(one.Raw()))
		}
	}
}
