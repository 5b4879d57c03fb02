package wire

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var documents = []string{`{"a":[1,-2.5e+10,true,false,null,"x\u00e9\n\"\\\/"],"b":{"c":{}},"d":[]}`,
	`[]`, `""`, `-0`, `0.0e-0`, ` { } `, `[[[[["deep"]]]],{"k":[{"l":1}]}]`, "\"\x7f\xff\"", `1`, `nul`, `"\ud800"`, `[1,2`, `{"a"}`,
	`{"a":1,}`, `+1`, `.5`, `1.`, `1e`, `01`, `-`, `[1 2]`, `"\u12g4"`, "\"\t\"", `{1:2}`, `tru`, `truee`, `{"a":1 "b":2}`, "\x00", ``,
	`"` + strings.Repeat("long text ", 20) + `"`}

// TestValidity compares the skipper with encoding/json over mutated documents.
func TestValidity(t *testing.T) {
	same := func(t require.TestingT, doc []byte) {
		require.Equal(t, json.Valid(doc), validJSON(doc), "%q", doc)
	}
	for _, d := range documents {
		same(t, []byte(d))
	}
	rapid.Check(t, func(t *rapid.T) {
		doc := []byte(rapid.SampledFrom(documents).Draw(t, "doc"))
		for range rapid.IntRange(0, 4).Draw(t, "edits") {
			at := rapid.IntRange(0, len(doc)).Draw(t, "at")
			piece := rapid.SampledFrom([]string{"{", "}", "[", "]", ",", ":", `"`, `\`, "0", "9", "-", ".", "e", "E+", " ", "\n",
				"\x00", "\x1f", "\xc3", `\u`, `\ud83d`, "null", "true", "NaN", "a", `"k":`, "[]", "{}"}).Draw(t, "piece")
			cut := rapid.IntRange(at, min(len(doc), at+3)).Draw(t, "cut")
			doc = append(append(append([]byte{}, doc[:at]...), piece...), doc[cut:]...)
		}
		same(t, doc)
	})
}

// TestCanonicalMeaning: the canonical text means the same, and is its own
// canonical text.
func TestCanonicalMeaning(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := anyJSON(t, 3)
		doc, err := json.MarshalIndent(v, " ", "\t")
		require.NoError(t, err)
		s := scanner{buf: doc, lim: Limits{}.WithDefaults()}
		out, err := s.canonical()
		require.NoError(t, err)
		require.NoError(t, s.end())
		var back any
		require.NoError(t, json.Unmarshal(out, &back))
		require.Equal(t, v, back)
		s = scanner{buf: out, lim: Limits{}.WithDefaults()}
		again, err := s.canonical()
		require.NoError(t, err)
		require.Equal(t, string(out), string(again))
	})
}

func anyJSON(t *rapid.T, depth int) any {
	kinds := 6
	if depth == 0 {
		kinds = 4
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return rapid.String().Draw(t, "string")
	case 1:
		return rapid.Float64().Draw(t, "number")
	case 2:
		return rapid.Bool().Draw(t, "bool")
	case 3:
		return nil
	case 4:
		out := []any{}
		for range rapid.IntRange(0, 4).Draw(t, "len") {
			out = append(out, anyJSON(t, depth-1))
		}
		return out
	}
	out := map[string]any{}
	for range rapid.IntRange(0, 5).Draw(t, "len") {
		out[rapid.String().Draw(t, "key")] = anyJSON(t, depth-1)
	}
	return out
}

func TestSkipNeedsNoStack(t *testing.T) {
	defer debug.SetMaxStack(debug.SetMaxStack(1 << 20))
	const depth = 2 << 20
	doc := strings.Repeat(`[{"a":`, depth) + "1" + strings.Repeat("}]", depth)
	items, err := TracesJSON([]byte("["+with(`"request":`+doc)+","+with("")+"]"), Limits{})
	require.NoError(t, err)
	require.EqualValues(t, "json_too_deep", items[0].Err.Code)
	require.Nil(t, items[1].Err)
}

// TestFloat32 compares with strconv, which rounds the decimal once.
func TestFloat32(t *testing.T) {
	check := func(text string) {
		t.Helper()
		want, err := strconv.ParseFloat(text, 32)
		got, end, ok := float32At([]byte(text), 0)
		require.Equal(t, err == nil, ok, text)
		require.Equal(t, len(text), end, text)
		if ok {
			require.Equal(t, math.Float32bits(float32(want)), math.Float32bits(got), text)
		}
	}
	for _, text := range []string{"0", "-0", "-0.0", "0e999999999999", "1e-400", "1e400", "-1e39", "3.4028235e38", "3.4028236e38", "3.40282357e38",
		"1.00000005960464477539062500000000000001", "16777217", "16777219", "33554434.9999999999", "1e22", "1e-22", "1e23", "1.17549435e-38",
		"1e-45", "7e-46", "9007199254740993", "18446744073709551615", "18446744073709551616", "9999999999999999999", "0.000000000000000000000000000001",
		"123456789012345678901234567890", "1E5", "1e+5"} {
		check(text)
	}
	for range 60_000 {
		f := math.Float32frombits(rand.Uint32())
		switch rand.IntN(4) {
		case 0:
			f = -float32(rand.ExpFloat64())
		case 1:
			f = float32(rand.ExpFloat64()) * 1e6
		}
		if f != f || math.IsInf(float64(f), 0) {
			continue
		}
		check(strconv.FormatFloat(float64(f), "gef"[rand.IntN(3)], -1, 32))
		check(strconv.FormatFloat(float64(f), 'g', 1+rand.IntN(25), 64))
		// The middle between two neighbours, exactly and a little beside it.
		half := (float64(f) + float64(math.Nextafter32(f, float32(math.Inf(1))))) / 2
		if math.IsInf(half, 0) {
			continue
		}
		check(strconv.FormatFloat(half, 'f', -1, 64))
		check(strconv.FormatFloat(half, 'e', -1, 64))
		for digits := 15; digits < 22; digits++ {
			check(strconv.FormatFloat(half, 'e', digits, 64))
		}
		check(strconv.FormatFloat(math.Nextafter(half, 0), 'e', -1, 64))
		check(strconv.FormatFloat(math.Nextafter(half, math.Inf(1)), 'e', -1, 64))
	}
}

func TestTokenIDs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOf(rapid.OneOf(rapid.Int32Range(0, 9), rapid.Int32Range(0, 200_000), rapid.Int32Min(0))).Draw(t, "ids")
		text, comma := "[", rapid.SampledFrom([]string{",", ", ", " ,\n"}).Draw(t, "comma")
		for i, id := range ids {
			if i > 0 {
				text += comma
			}
			text += strconv.Itoa(int(id))
		}
		s := scanner{buf: []byte(text + "]"), lim: Limits{}.WithDefaults()}
		got, err := s.tokenIDs()
		require.NoError(t, err)
		require.NotNil(t, got)
		require.Equal(t, len(s.buf), s.pos)
		require.Equal(t, len(ids), len(got))
		for i := range ids {
			require.Equal(t, ids[i], got[i])
		}
	})
}

// TestTokenIDsAgainstJSON: what one accepts, both accept.
func TestTokenIDsAgainstJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := "[" + strings.Join(rapid.SliceOf(rapid.SampledFrom([]string{"0", "1", "12345678", "2147483647", "2147483648", ",", ",", ",",
			" ", "-", "-0", "e", ".", "00", "]", "[", "/", ":", "\"", "\x80", "\xff"})).Draw(t, "parts"), "") + "]"
		var want []int32
		valid := json.Unmarshal([]byte(text), &want) == nil && !strings.Contains(text, "-")
		s := scanner{buf: []byte(text), lim: Limits{}.WithDefaults()}
		got, err := s.tokenIDs()
		ok := err == nil && s.end() == nil
		require.Equal(t, valid, ok, text)
		if ok {
			require.Equal(t, want, got)
		}
	})
}
