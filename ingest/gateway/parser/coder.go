package parser

import (
	"bytes"
	"strings"

	"icecore/ingest/gateway/turn"
)

const (
	functionOpen   = "<function="
	functionClose  = "</function>"
	parameterOpen  = "<parameter="
	parameterClose = "</parameter>"
)

// coder reads
//
//	<tool_call>
//	<function=name>
//	<parameter=x>
//	value
//	</parameter>
//	</function>
//	</tool_call>
//
// and makes JSON arguments of it: values by the types of the tool's schema, one line
// break at each end of a value cut off. A value ends at the first closing mark that is
// followed by what may follow a value, so that it can speak of these marks.
type coder struct {
	schemas map[string]map[string]kind

	at     int
	phase  func(*coder, []byte, bool) verdict
	name   string
	params []param
	// value is where the value of the last parameter begins.
	value int
	// look is from where its end is looked for.
	look int
}

type param struct{ name, value string }

func (c *coder) reset() {
	*c = coder{schemas: c.schemas, at: len(callOpen), phase: (*coder).head}
}

func (c *coder) scan(b []byte, final bool) (verdict, found) {
	for c.phase != nil {
		switch v := c.phase(c, b, final); {
		case v == no, v == maybe && final:
			return no, found{}
		case v == maybe:
			return maybe, found{}
		}
	}
	return yes, found{length: c.at, name: c.name, arguments: c.arguments()}
}

// expect goes over white space and the mark.
func (c *coder) expect(b []byte, mark string) verdict {
	at := c.at + blank(b[c.at:])
	v := begins(b[at:], mark)
	if v == yes {
		c.at = at + len(mark)
	}
	return v
}

// label reads a name up to >.
func (c *coder) label(b []byte) (string, verdict) {
	end := bytes.IndexAny(b[c.at:], "<>\n")
	switch {
	case end < 0:
		return "", maybe
	case end == 0 || b[c.at+end] != '>':
		return "", no
	}
	name := string(b[c.at : c.at+end])
	c.at += end + 1
	return name, yes
}

func (c *coder) head(b []byte, _ bool) verdict {
	v := c.expect(b, functionOpen)
	if v == yes {
		c.phase = (*coder).function
	}
	return v
}

func (c *coder) function(b []byte, _ bool) verdict {
	name, v := c.label(b)
	if v == yes {
		c.name, c.phase = name, (*coder).between
	}
	return v
}

func (c *coder) between(b []byte, _ bool) verdict {
	open := c.expect(b, parameterOpen)
	if open == yes {
		c.phase = (*coder).parameter
		return yes
	}
	end := c.expect(b, functionClose)
	if end == yes {
		c.phase = (*coder).tail
	}
	return max(open, end)
}

func (c *coder) parameter(b []byte, _ bool) verdict {
	name, v := c.label(b)
	if v == yes {
		c.params = append(c.params, param{name: name})
		c.value, c.look, c.phase = c.at, c.at, (*coder).text
	}
	return v
}

// text looks for the end of a value.
func (c *coder) text(b []byte, final bool) verdict {
	for {
		i := bytes.Index(b[c.look:], []byte("</"))
		if i < 0 {
			c.look = max(c.look, len(b)-1) // the last byte may be the <
			return maybe
		}
		c.look += i
		v, end := valueEnd(b[c.look:])
		if v == maybe && !final {
			return maybe
		}
		if v == yes {
			last := &c.params[len(c.params)-1]
			last.value = strings.TrimSuffix(strings.TrimPrefix(string(b[c.value:c.look]), "\n"), "\n")
			c.at, c.phase = c.look+end, (*coder).between
			return yes
		}
		c.look += len("</")
	}
}

// valueEnd says whether b begins with what ends a value, and how much of it belongs
// to the value: its own closing mark before another parameter or the function's end,
// or, where the model forgot that mark, the end of the function and the call.
func valueEnd(b []byte) (v verdict, length int) {
	v = begins(b, parameterClose)
	if v == yes {
		rest := b[len(parameterClose):]
		rest = rest[blank(rest):]
		return max(begins(rest, parameterOpen), begins(rest, functionClose)), len(parameterClose)
	}
	end := begins(b, functionClose)
	if end == yes {
		rest := b[len(functionClose):]
		return begins(rest[blank(rest):], callClose), 0
	}
	return max(v, end), 0
}

func (c *coder) tail(b []byte, final bool) verdict {
	v := c.expect(b, callClose)
	if v == maybe && final {
		c.at, v = len(b), yes // nothing but the closing mark is missing
	}
	if v == yes {
		c.phase = nil
	}
	return v
}

// arguments writes the parameters as engines do: with a space after : and comma.
func (c *coder) arguments() string {
	types := c.schemas[c.name]
	at := map[string]int{}
	var params []param
	for _, p := range c.params {
		if i, again := at[p.name]; again {
			params[i].value = p.value
			continue
		}
		at[p.name] = len(params)
		params = append(params, p)
	}
	out := []byte{'{'}
	for i, p := range params {
		if i > 0 {
			out = append(out, ", "...)
		}
		out = appendText(out, p.name)
		out = append(out, ": "...)
		out = types[p.name].append(out, p.value)
	}
	return string(append(out, '}'))
}

// appendText writes a JSON string. Bytes that are not UTF-8 become U+FFFD.
func appendText(dst []byte, text string) []byte {
	out, err := turn.AppendJSON(dst, text)
	if err != nil { // a string can always be written
		panic(err)
	}
	return out
}
