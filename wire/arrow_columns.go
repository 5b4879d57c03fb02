package wire

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"icecore/trace"
)

// columnMaker looks at a column's type only, and gives what reads its rows.
type columnMaker func(d *rowDecoder, a arrow.Array) (row, error)

// arrowColumns says how each field of a trace travels as a column. Its names are
// those of traceFields.
var arrowColumns = map[string]columnMaker{
	"trace_id":             textColumn(traceID),
	"rollout_id":           textColumn(rolloutID),
	"seq":                  integerColumn(seq),
	"prompt_token_ids":     idsColumn(func(t *trace.Trace, ids []int32) { t.PromptIDs = trace.TokensOf(ids) }),
	"response_token_ids":   idsColumn(func(t *trace.Trace, ids []int32) { t.ResponseIDs = ids }),
	"response_logprobs":    logprobsColumn,
	"prompt_prefix":        prefixColumn,
	"prompt_hash":          hashColumn,
	"ids_incomplete":       boolColumn(idsIncomplete),
	"policy_version":       integerColumn(policyVersion),
	"policy_version_spans": spansColumn,
	"status":               textColumn(status),
	"finish_reason":        textColumn(finishReason),
	"choice_group":         textColumn(choiceGroup),
	"choice_index":         integerColumn(choiceIndex),
	"kind":                 textColumn(traceKindOf),
	"task_id":              textColumn(taskID),
	"group_id":             textColumn(groupID),
	"sample_index":         integerColumn(sampleIndex),
	"harness":              textColumn(harness),
	"harness_version":      textColumn(harnessVersion),
	"model":                textColumn(model),
	"tokenizer":            textColumn(tokenizer),
	"api":                  textColumn(api),
	"parent_rollout_id":    textColumn(parentRolloutID),
	"chat_template_hash":   textColumn(chatTemplateHash),
	"tools_hash":           textColumn(toolsHash),
	"sampling":             objectColumn(sampling),
	"usage":                objectColumn(usage),
	"metadata":             objectColumn(metadata),
	"started_at":           timeColumn(startedAt),
	"first_token_at":       timeColumn(firstTokenAt),
	"finished_at":          timeColumn(finishedAt),
	"error":                textColumn(errorText),
	"request":              bodyColumn(requestBody),
	"response":             bodyColumn(responseBody),
	"text_repaired":        boolColumn(textRepaired),
}

func wrongColumn(want string, a arrow.Array) error {
	return fmt.Errorf("wanted %s, found %s", want, shown(a.DataType().String()))
}

// texts gives access to strings of any layout, and to binary if wanted. What it
// returns points into the array; ok is false for a null inside a dictionary.
func texts(a arrow.Array, binary bool) func(i int) (text []byte, ok bool) {
	switch a := a.(type) {
	case *array.String:
		return func(i int) ([]byte, bool) { return bytesView(a.Value(i)), true }
	case *array.LargeString:
		return func(i int) ([]byte, bool) { return bytesView(a.Value(i)), true }
	case *array.StringView:
		return func(i int) ([]byte, bool) { return bytesView(a.Value(i)), true }
	case *array.Binary:
		if binary {
			return func(i int) ([]byte, bool) { return a.Value(i), true }
		}
	case *array.LargeBinary:
		if binary {
			return func(i int) ([]byte, bool) { return a.Value(i), true }
		}
	case *array.BinaryView:
		if binary {
			return func(i int) ([]byte, bool) { return a.Value(i), true }
		}
	case *array.Dictionary:
		values := a.Dictionary()
		if _, again := values.(*array.Dictionary); again {
			return nil
		}
		at := texts(values, binary)
		if at == nil {
			return nil
		}
		return func(i int) ([]byte, bool) {
			k := a.GetValueIndex(i)
			if k < 0 || k >= values.Len() {
				panic("a dictionary index is out of range")
			}
			if values.IsNull(k) {
				return nil, false
			}
			return at(k)
		}
	}
	return nil
}

// take counts text that is about to be copied out of an array.
func (d *rowDecoder) take(b []byte) error { return d.spend(int64(len(b))) }

// spend counts what a stream may hold more of than it has bytes.
func (d *rowDecoder) spend(n int64) error {
	if d.textLeft -= n; d.textLeft < 0 {
		return &EnvelopeError{Code: CodeRequestTooLarge, Offset: -1,
			Message: fmt.Sprintf("Arrow stream: its texts and nulls, repeated ones included, exceed the limit of %d bytes", d.s.lim.MaxBytes)}
	}
	return nil
}

func (d *rowDecoder) text(b []byte) (string, error) {
	if err := d.take(b); err != nil {
		return "", err
	}
	v, repaired := repairText(b)
	d.s.repaired = d.s.repaired || repaired
	return v, nil
}

func textColumn[S ~string](at func(*trace.Trace) *S) columnMaker {
	return func(d *rowDecoder, a arrow.Array) (row, error) {
		get := texts(a, false)
		if get == nil {
			return nil, wrongColumn("a string", a)
		}
		return func(i int, t *trace.Trace) error {
			b, ok := get(i)
			if !ok {
				return nil
			}
			v, err := d.text(b)
			*at(t) = S(v)
			return err
		}, nil
	}
}

func boolColumn(at func(*trace.Trace) *bool) columnMaker {
	return func(_ *rowDecoder, a arrow.Array) (row, error) {
		b, ok := a.(*array.Boolean)
		if !ok {
			return nil, wrongColumn("bool", a)
		}
		return func(i int, t *trace.Trace) error {
			*at(t) = b.Value(i)
			return nil
		}, nil
	}
}

func timeColumn(at func(*trace.Trace) **int64) columnMaker {
	return func(d *rowDecoder, a arrow.Array) (row, error) {
		var micros func(i int) (int64, *trace.Error)
		get := texts(a, false)
		if stamps, ok := a.(*array.Timestamp); ok {
			unit := stamps.DataType().(*arrow.TimestampType).Unit.Multiplier()
			micros = func(i int) (int64, *trace.Error) { return microsOf(int64(stamps.Value(i)), unit) }
		} else if get == nil {
			return nil, wrongColumn("a timestamp or a string (RFC 3339)", a)
		}
		return func(i int, t *trace.Trace) error {
			var v int64
			var wrong *trace.Error
			if micros != nil {
				v, wrong = micros(i)
			} else if b, ok := get(i); ok {
				v, wrong = parseTime(b)
			} else {
				return nil
			}
			if wrong != nil {
				return wrong
			}
			*at(t) = &v
			return nil
		}, nil
	}
}

func hashColumn(_ *rowDecoder, a arrow.Array) (row, error) {
	if fixed, ok := a.(*array.FixedSizeBinary); ok && a.DataType().(*arrow.FixedSizeBinaryType).ByteWidth == 32 {
		return func(i int, t *trace.Trace) error {
			t.PromptHash = slices.Clone(fixed.Value(i))
			return nil
		}, nil
	}
	get := texts(a, true)
	if get == nil {
		return nil, wrongColumn("32 bytes or 64 hexadecimal digits", a)
	}
	return func(i int, t *trace.Trace) error {
		b, ok := get(i)
		if !ok {
			return nil
		}
		if len(b) == 32 {
			t.PromptHash = slices.Clone(b)
			return nil
		}
		hash, wrong := parseHash(b)
		if wrong != nil {
			return wrong
		}
		t.PromptHash = hash
		return nil
	}, nil
}

// bodyColumn keeps JSON text as its bytes. White space around it, which no other
// format can carry, is not part of the body.
func bodyColumn(at func(*trace.Trace) *[]byte) columnMaker {
	return func(d *rowDecoder, a arrow.Array) (row, error) {
		get := texts(a, true)
		if get == nil {
			return nil, wrongColumn("JSON as a string or binary", a)
		}
		return func(i int, t *trace.Trace) error {
			b, ok := get(i)
			b = bytes.Trim(b, " \t\r\n")
			if !ok || string(b) == "null" {
				return nil
			}
			if err := d.take(b); err != nil {
				return err
			}
			v, err := d.json(b, (*scanner).value)
			*at(t) = slices.Clone(v)
			return err
		}, nil
	}
}

// json reads b as one JSON value of the trace.
func (d *rowDecoder) json(b []byte, read func(*scanner) ([]byte, error)) ([]byte, error) {
	s := &scanner{buf: b, lim: d.s.lim}
	s.space()
	v, err := read(s)
	if err == nil {
		err = s.end()
	}
	if wrong, ok := err.(*syntaxError); ok {
		err = trace.Invalid("", "is not JSON: "+wrong.Error()+" of it")
	}
	if _, ok := err.(*trace.Error); ok {
		// Better a word about the text than about the type that was wanted.
		probe := scanner{buf: b, lim: d.s.lim}
		if _, broken := probe.skip(false); broken != nil {
			err = trace.Invalid("", "is not JSON: "+broken.Error()+" of it")
		}
	}
	d.s.repaired = d.s.repaired || s.repaired
	return v, err
}
