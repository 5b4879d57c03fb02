package turn

import (
	"bytes"
	"encoding/json"
	"strings"
)

// FlagInvalidArguments marks an answer with a call whose arguments are no JSON object.
const FlagInvalidArguments = "invalid_arguments"

// Input gives the call's arguments as a JSON object without space between its parts,
// for APIs that carry objects. Arguments of nothing but space are an empty object; so
// are arguments that are no object, with false.
func (c *Call) Input() (json.RawMessage, bool) {
	text := strings.Trim(c.Arguments, " \t\r\n")
	if text == "" {
		return json.RawMessage("{}"), true
	}
	var b bytes.Buffer
	if text[0] != '{' || json.Compact(&b, []byte(strings.ToValidUTF8(text, "\ufffd"))) != nil {
		return json.RawMessage("{}"), false
	}
	return b.Bytes(), true
}
