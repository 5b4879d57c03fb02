package enginetest

import (
	"math/rand/v2"
	"slices"
	"strings"
	"unicode/utf8"
)

// Ids of the special tokens. Ids 0–255 are bytes, ids from FirstMerge on merges.
const (
	EndOfText int32 = 256 + iota // a second id that ends an answer
	ImStart
	ImEnd // ends every turn of the template
	ThinkStart
	ThinkEnd
	CallStart
	CallEnd
	ResponseStart
	ResponseEnd
	VisionStart
	VisionEnd
	ImagePad
)

// FirstMerge is the id of the first merge.
const FirstMerge int32 = 512

var specials = []string{"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>",
	"<tool_response>", "</tool_response>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>"}

// merges are tokens of several bytes. Some hold others, so that most texts have many
// tokenisations; one ends inside a rune, as those of real vocabularies do.
var merges = []string{"th", "in", `":`, "the", " the", "er", "on", "an", "re", "ing", " in", "and", " and", "st", "en", "or",
	"to", " to", "is", " is", "\n\n", "  ", "    ", `{"`, `"}`, `", "`, `": "`, `": {"`, "name", `{"name": "`, "arguments",
	`", "arguments": `, "command", "user", "assistant", "system", "tool", "ou", "es", " a", " s", "é", " \xe2\x80", "//", "12"}

// VocabSize is one more than the largest id.
var VocabSize = int(FirstMerge) + len(merges)

// byFirst lists the merges that begin with a byte, longest first.
var byFirst = func() (out [256][]int32) {
	for i, m := range merges {
		out[m[0]] = append(out[m[0]], FirstMerge+int32(i))
	}
	for _, ids := range out {
		slices.SortFunc(ids, func(a, b int32) int { return len(merges[b-FirstMerge]) - len(merges[a-FirstMerge]) })
	}
	return out
}()

// Encode gives the canonical tokenisation: at each place the special that stands
// there, else the longest merge, else a byte. Decode gives valid UTF-8 back.
func Encode(text string) []int32 {
	return encode(make([]int32, 0, len(text)), text, nil)
}

// EncodeDrifting gives another tokenisation of the same text, as a model that
// samples at a temperature does: where a merge stands, a shorter one or a byte may be
// taken. Specials are kept. The same seed gives the same ids.
func EncodeDrifting(text string, seed uint64) []int32 {
	return encode(make([]int32, 0, len(text)), text, rand.New(rand.NewPCG(seed, 0x1ce)))
}

// EncodePlain is Encode for a text whose marks are no special tokens: a model may
// spell <tool_call> byte by byte.
func EncodePlain(text string) []int32 {
	out := make([]int32, 0, len(text))
	for len(text) > 0 {
		id := next(text, nil)
		out = append(out, id)
		text = text[len(Token(id)):]
	}
	return out
}

func encode(out []int32, text string, drift *rand.Rand) []int32 {
	for len(text) > 0 {
		id, special := specialAt(text)
		if !special {
			id = next(text, drift)
		}
		out = append(out, id)
		text = text[len(Token(id)):]
	}
	return out
}

func specialAt(text string) (int32, bool) {
	if text[0] != '<' {
		return 0, false
	}
	for i, s := range specials {
		if strings.HasPrefix(text, s) {
			return EndOfText + int32(i), true
		}
	}
	return 0, false
}

// next takes the longest merge at the beginning of text; with drift, in four of ten
// cases, passes over it to a shorter one.
func next(text string, drift *rand.Rand) int32 {
	for _, id := range byFirst[text[0]] {
		if strings.HasPrefix(text, merges[id-FirstMerge]) && (drift == nil || drift.IntN(10) >= 4) {
			return id
		}
	}
	return int32(text[0])
}

// byteTokens are the 256 one-byte strings.
var byteTokens = func() (out [256]string) {
	for i := range out {
		out[i] = string([]byte{byte(i)})
	}
	return out
}()

// Token gives the bytes of one id, which need not be valid UTF-8; empty: no such id.
func Token(id int32) string {
	switch {
	case id < 0:
		return ""
	case id < 256:
		return byteTokens[id]
	case id < EndOfText+int32(len(specials)):
		return specials[id-EndOfText]
	case id >= FirstMerge && int(id) < VocabSize:
		return merges[id-FirstMerge]
	}
	return ""
}

// Decode gives the text of ids, specials included. What is no UTF-8 becomes U+FFFD,
// as in real detokenizers: then encoding the text gives other ids.
func Decode(ids []int32) string {
	raw := make([]byte, 0, 2*len(ids))
	for _, id := range ids {
		raw = append(raw, Token(id)...)
	}
	return lossy(raw)
}

// lossy replaces each longest piece that could have begun a rune, and each byte that
// could not, by U+FFFD.
func lossy(raw []byte) string {
	if utf8.Valid(raw) {
		return string(raw)
	}
	out := make([]byte, 0, len(raw)+8)
	for len(raw) > 0 {
		if r, n := utf8.DecodeRune(raw); r != utf8.RuneError || n > 1 {
			out = append(out, raw[:n]...)
			raw = raw[n:]
			continue
		}
		n := 1
		for k := 1; k <= min(3, len(raw)) && !utf8.FullRune(raw[:k]); k++ {
			n = k
		}
		out = append(out, "\uFFFD"...)
		raw = raw[n:]
	}
	return string(out)
}

// detokenizer decodes an answer as it grows: an unfinished rune waits for its rest.
type detokenizer struct{ held []byte }

func (d *detokenizer) push(raw string) string {
	d.held = append(d.held, raw...)
	whole := len(d.held)
	for k := 1; k <= min(3, len(d.held)); k++ { // an unfinished rune at the end
		if at := len(d.held) - k; utf8.RuneStart(d.held[at]) {
			if !utf8.FullRune(d.held[at:]) {
				whole = at
			}
			break
		}
	}
	text := lossy(d.held[:whole])
	d.held = append(d.held[:0], d.held[whole:]...)
	return text
}

func (d *detokenizer) end() string {
	text := lossy(d.held)
	d.held = nil
	return text
}

// hidden says that an id is not shown in an answer's text. The marks of thinking and
// of tool calls are: parsers read them.
func hidden(id int32) bool {
	return id >= EndOfText && id <= ImEnd || id >= VisionStart && id <= ImagePad
}
