package template

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/nikolalohinski/gonja/v2/exec"
)

// dumper writes JSON as Python's json.dumps(ensure_ascii=False) does, to the byte.
type dumper struct {
	b      []byte
	indent string // empty: on one line
}

func (d *dumper) value(v any, depth int) error {
	switch t := v.(type) {
	case nil:
		d.b = append(d.b, "null"...)
	case *exec.Value:
		return d.value(t.Interface(), depth)
	case exec.Dict:
		return d.object(&t, depth)
	case *exec.Dict:
		return d.object(t, depth)
	case string:
		d.text(t)
	case bool:
		d.b = strconv.AppendBool(d.b, t)
	case int:
		d.b = strconv.AppendInt(d.b, int64(t), 10)
	case float64:
		d.b = append(d.b, pythonFloat(t)...)
	default:
		list := reflect.ValueOf(v)
		if list.Kind() != reflect.Slice && list.Kind() != reflect.Array {
			return fmt.Errorf("tojson cannot write a %T", v)
		}
		return d.list(list, depth)
	}
	return nil
}

func (d *dumper) list(list reflect.Value, depth int) error {
	d.b = append(d.b, '[')
	for i := range list.Len() {
		d.separate(i, depth+1)
		if err := d.value(list.Index(i).Interface(), depth+1); err != nil {
			return err
		}
	}
	d.closing(list.Len(), depth)
	d.b = append(d.b, ']')
	return nil
}

func (d *dumper) object(o *exec.Dict, depth int) error {
	d.b = append(d.b, '{')
	for i, p := range o.Pairs {
		d.separate(i, depth+1)
		d.text(p.Key.String())
		d.b = append(d.b, ": "...)
		if err := d.value(p.Value, depth+1); err != nil {
			return err
		}
	}
	d.closing(len(o.Pairs), depth)
	d.b = append(d.b, '}')
	return nil
}

func (d *dumper) separate(i, depth int) {
	switch {
	case d.indent != "":
		if i > 0 {
			d.b = append(d.b, ',')
		}
		d.line(depth)
	case i > 0:
		d.b = append(d.b, ", "...)
	}
}

func (d *dumper) closing(n, depth int) {
	if n > 0 && d.indent != "" {
		d.line(depth)
	}
}

func (d *dumper) line(depth int) {
	d.b = append(d.b, '\n')
	d.b = append(d.b, strings.Repeat(d.indent, depth)...)
}

func (d *dumper) text(s string) {
	d.b = append(d.b, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			d.b = append(d.b, '\\', byte(r))
		case r == '\n':
			d.b = append(d.b, `\n`...)
		case r == '\r':
			d.b = append(d.b, `\r`...)
		case r == '\t':
			d.b = append(d.b, `\t`...)
		case r == '\f':
			d.b = append(d.b, `\f`...)
		case r == '\b':
			d.b = append(d.b, `\b`...)
		case r < ' ':
			d.b = fmt.Appendf(d.b, `\u%04x`, r)
		default:
			d.b = utf8.AppendRune(d.b, r)
		}
	}
	d.b = append(d.b, '"')
}

// pythonFloat is Python's repr: the shortest digits, an exponent from 1e16 and below
// 1e-4, and else a point.
func pythonFloat(f float64) string {
	if size := math.Abs(f); size != 0 && (size >= 1e16 || size < 1e-4) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	text := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}
