package enginetest

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// texts draws valid UTF-8 that is rich in merges and marks.
func texts() *rapid.Generator[string] {
	piece := rapid.OneOf(rapid.SampledFrom(append(append([]string{}, specials...), "the name", `{"name": "x", "arguments": {}}`, " — ", "é", "<", "<|im", "雪", "\n\n")),
		rapid.String())
	return rapid.Custom(func(t *rapid.T) string {
		return strings.ToValidUTF8(strings.Join(rapid.SliceOfN(piece, 0, 12).Draw(t, "pieces"), ""), "?")
	})
}

func TestTokenisationsDecodeToTheirText(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := texts().Draw(t, "text")
		seed := rapid.Uint64().Draw(t, "seed")
		require.Equal(t, text, Decode(Encode(text)))
		require.Equal(t, text, Decode(EncodePlain(text)))
		drifted := EncodeDrifting(text, seed)
		require.Equal(t, text, Decode(drifted))
		require.Equal(t, drifted, EncodeDrifting(text, seed), "the same seed")
		require.Equal(t, marks(Encode(text)), marks(drifted), "specials are kept")
		require.Empty(t, marks(EncodePlain(text)))
	})
}

func marks(ids []int32) (out []int32) {
	for _, id := range ids {
		if id >= EndOfText && id < FirstMerge {
			out = append(out, id)
		}
	}
	return out
}

func TestDriftIsAnotherTokenisation(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("the thing in the other end ", 5)
	require.NotEqual(t, Encode(text), EncodeDrifting(text, 1))
	require.NotEqual(t, EncodeDrifting(text, 2), EncodeDrifting(text, 1))
	require.Less(t, len(Encode(text)), len(EncodeDrifting(text, 1)))
}

func TestMarksBecomeSpecials(t *testing.T) {
	t.Parallel()
	require.Equal(t, []int32{ImStart, 'h', 'i', ImEnd}, Encode("<|im_start|>hi<|im_end|>"))
	require.Equal(t, []int32{CallStart, CallEnd, ThinkStart, ThinkEnd}, Encode("<tool_call></tool_call><think></think>"))
	require.NotContains(t, EncodePlain("<tool_call>"), CallStart)
}

func TestInvalidBytesBecomeReplacements(t *testing.T) {
	t.Parallel()
	for text, raw := range map[string]string{
		"a\uFFFD":             "a\xe9\x9b",          // an unfinished rune is one
		"\uFFFDb":             "\xe9\x9bb",          // cut off by a byte that cannot follow
		"\uFFFD\uFFFD":        "\xff\xff",           // each impossible byte is one
		"\uFFFDx\uFFFD\u96ea": "\xf0\x9f\x98x\x80雪", // a lone continuation
	} {
		ids := make([]int32, 0, len(raw))
		for _, b := range []byte(raw) {
			ids = append(ids, int32(b))
		}
		require.Equal(t, text, Decode(ids))
	}
}

func TestDetokenizerEqualsDecode(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.SliceOf(rapid.OneOf(rapid.Byte(), rapid.SampledFrom([]byte("\xe9\x9b\xaa\xf0\x9f\x98\x80a")))).Draw(t, "bytes")
		var d detokenizer
		var out strings.Builder
		for _, b := range raw {
			piece := d.push(string([]byte{b}))
			require.True(t, utf8.ValidString(piece))
			out.WriteString(piece)
		}
		out.WriteString(d.end())
		require.Equal(t, lossy(raw), out.String())
	})
}

func TestLogprobHangsOnEverythingBefore(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfN(rapid.Int32Range(0, int32(VocabSize)-1), 2, 60)
		prompt, response := ids.Draw(t, "prompt"), ids.Draw(t, "response")
		all := Logprobs(prompt, response)
		i := rapid.IntRange(0, len(response)-1).Draw(t, "i")
		require.Equal(t, all[i], Logprob(prompt, response, i))
		require.LessOrEqual(t, all[i], float32(0))
		require.Greater(t, all[i], float32(-8))
		other := append([]int32{}, prompt...)
		other[0] ^= 1
		require.NotEqual(t, all, Logprobs(other, response))
		require.NotEqual(t, all, Logprobs(prompt[1:], response))
	})
}
