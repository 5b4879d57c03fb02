package openai

import (
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// FlagInvalidInput marks an answer whose call of a free-text tool is not the JSON that
// it should be.
const FlagInvalidInput = "custom_input_invalid"

// Input reads the free text out of {"input":"…"}, which comes in pieces cut anywhere,
// and gives each piece of text as soon as it is certain.
//
// A model that writes something else is not corrected: what does not begin as such an
// object is the text itself, and in a string that has begun, whatever is no JSON stays
// as it was written. What was given once is never taken back, so the pieces together
// are the text. Invalid says that this happened.
type Input struct {
	head    []byte // until the string begins
	at      int    // how much of its beginning was found
	state   inputState
	escape  []byte // an escape that has begun
	high    rune   // the first half of a surrogate pair
	rune    []byte // a character that has begun
	invalid bool
}

type inputState int

const (
	inputHead inputState = iota
	inputText
	inputTail // behind the string
	inputDone // behind the object
	inputRaw
)

// Add takes the next piece of arguments and gives what it makes certain.
func (in *Input) Add(piece string) string {
	var out strings.Builder
	for i := 0; i < len(piece); i++ {
		switch b := piece[i]; in.state {
		case inputHead:
			in.begin(&out, b)
		case inputText:
			in.text(&out, b)
		case inputTail:
			switch {
			case b == '}':
				in.state = inputDone
			case !isSpace(b):
				in.invalid = true
			}
		case inputDone:
			in.invalid = in.invalid || !isSpace(b)
		case inputRaw:
			in.put(&out, b)
		}
	}
	return out.String()
}

// End gives what is left when the call is over.
func (in *Input) End() string {
	var out strings.Builder
	switch in.state {
	case inputHead:
		out.Write(in.head) // never became a string: what came is the text
		in.invalid = true
	case inputText:
		in.lone(&out)
		out.Write(in.escape)
		in.invalid = true
	case inputTail:
		in.invalid = true
	case inputDone, inputRaw:
	}
	out.Write(in.rune)
	in.head, in.escape, in.rune = nil, nil, nil
	return out.String()
}

// Invalid says, after End, that the arguments were not what they should be.
func (in *Input) Invalid() bool { return in.invalid }

// begin looks for {"input":" and turns to raw text where it cannot come any more.
func (in *Input) begin(out *strings.Builder, b byte) {
	in.head = append(in.head, b)
	const want = `{"input":"`
	switch {
	case b == want[in.at]:
		if in.at++; in.at == len(want) {
			in.head, in.state = nil, inputText
		}
	case isSpace(b) && (in.at <= 1 || want[in.at] == ':' || want[in.at-1] == ':'):
	default:
		in.state, in.invalid = inputRaw, true
		for _, c := range in.head {
			in.put(out, c)
		}
		in.head = nil
	}
}

func (in *Input) text(out *strings.Builder, b byte) {
	if len(in.escape) > 0 {
		in.escaped(out, b)
		return
	}
	if b == '\\' {
		in.escape = append(in.escape, b)
		return
	}
	in.lone(out)
	switch {
	case b == '"':
		in.state = inputTail
		return
	case b < 0x20:
		in.invalid = true // a model may write a line's end as it is
	}
	in.put(out, b)
}

func (in *Input) escaped(out *strings.Builder, b byte) {
	in.escape = append(in.escape, b)
	if len(in.escape) == 2 && b == 'u' {
		return
	}
	if in.escape[1] != 'u' {
		in.lone(out)
		in.simple(out, b)
		in.escape = in.escape[:0]
		return
	}
	if !isHex(b) {
		in.literal(out)
		return
	}
	if len(in.escape) < 6 {
		return
	}
	var r rune
	for _, c := range in.escape[2:] {
		r = r<<4 | unhex(c)
	}
	in.escape = in.escape[:0]
	if in.high != 0 {
		if pair := utf16.DecodeRune(in.high, r); pair != utf8.RuneError {
			in.high = 0
			out.WriteRune(pair)
			return
		}
		in.lone(out)
	}
	if 0xd800 <= r && r < 0xdc00 {
		in.high = r
		return
	}
	out.WriteRune(r) // of a lone second half strings make U+FFFD
}

func (in *Input) simple(out *strings.Builder, b byte) {
	if at := strings.IndexByte(`"\/bfnrt`, b); at >= 0 {
		out.WriteByte("\"\\/\b\f\n\r\t"[at])
		return
	}
	in.literal(out)
}

// literal gives an escape that is none as it was written. Its last byte may begin
// something else.
func (in *Input) literal(out *strings.Builder) {
	in.lone(out)
	in.invalid = true
	last := in.escape[len(in.escape)-1]
	out.Write(in.escape[:len(in.escape)-1])
	in.escape = in.escape[:0]
	in.text(out, last)
}

// lone gives U+FFFD for the first half of a pair whose second did not come.
func (in *Input) lone(out *strings.Builder) {
	if in.high != 0 {
		in.high = 0
		out.WriteRune(utf8.RuneError)
	}
}

// put gives whole characters only.
func (in *Input) put(out *strings.Builder, b byte) {
	if in.rune = append(in.rune, b); utf8.FullRune(in.rune) {
		out.Write(in.rune)
		in.rune = in.rune[:0]
	}
}

func isSpace(b byte) bool { return b == ' ' || b == '\n' || b == '\r' || b == '\t' }

func isHex(b byte) bool {
	return '0' <= b && b <= '9' || 'a' <= b|0x20 && b|0x20 <= 'f'
}

func unhex(b byte) rune {
	if b <= '9' {
		return rune(b - '0')
	}
	return rune(b|0x20-'a') + 10
}
