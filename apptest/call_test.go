package apptest

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// call is a trace in the making: the wire's field names, and values of the types
// that encodeValue knows.
type call map[string]any

// with is the call with some fields changed, given in pairs; nil removes one.
func (c call) with(fields ...any) call {
	out := maps.Clone(c)
	for i := 0; i < len(fields); i += 2 {
		if fields[i+1] == nil {
			delete(out, fields[i].(string))
		} else {
			out[fields[i].(string)] = fields[i+1]
		}
	}
	return out
}

func (c call) text(name string) string { v, _ := c[name].(string); return v }

func (c call) ids(name string) []int32 { v, _ := c[name].([]int32); return v }

// whole is prompt and response.
func (c call) whole() []int32 {
	return slices.Concat(c.ids("prompt_token_ids"), c.ids("response_token_ids"))
}

// json writes the call; texts that are JSON already stay as their bytes.
func (c call) json() []byte {
	var out bytes.Buffer
	out.WriteByte('{')
	for i, name := range slices.Sorted(maps.Keys(c)) {
		if i > 0 {
			out.WriteByte(',')
		}
		out.Write(quote(name))
		out.WriteByte(':')
		out.Write(encodeValue(c[name]))
	}
	out.WriteByte('}')
	return out.Bytes()
}

func encodeValue(v any) []byte {
	switch v := v.(type) {
	case json.RawMessage:
		return v
	case string:
		return quote(v)
	case []int32:
		if v == nil {
			return []byte("null")
		}
	}
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}

// quote writes a string with as few escapes as JSON allows.
func quote(s string) []byte {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		panic(err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

// logprobs are float32, or nil where not known.
type logprobs []*float32

func lps(values ...float64) logprobs {
	out := make(logprobs, len(values))
	for i, v := range values {
		out[i] = ptr(float32(v))
	}
	return out
}

// MarshalJSON writes what JSON has no numbers for as strings.
func (l logprobs) MarshalJSON() ([]byte, error) {
	parts := make([]string, len(l))
	for i, v := range l {
		switch {
		case v == nil:
			parts[i] = "null"
		case math.IsNaN(float64(*v)):
			parts[i] = `"NaN"`
		case math.IsInf(float64(*v), 0):
			parts[i] = map[bool]string{true: `"Infinity"`, false: `"-Infinity"`}[*v > 0]
		default:
			parts[i] = strconv.FormatFloat(float64(*v), 'g', -1, 32)
		}
	}
	return []byte("[" + strings.Join(parts, ",") + "]"), nil
}

// UnmarshalJSON reads that back. It is by hand because the tests read millions.
func (l *logprobs) UnmarshalJSON(raw []byte) error {
	*l = logprobs{}
	raw = bytes.TrimSpace(raw)
	if len(raw) < 2 || raw[0] != '[' || raw[len(raw)-1] != ']' {
		return fmt.Errorf("%.50s is no list", raw)
	}
	if raw = bytes.TrimSpace(raw[1 : len(raw)-1]); len(raw) == 0 {
		return nil
	}
	*l = make(logprobs, 0, bytes.Count(raw, []byte(","))+1)
	for part := range bytes.SplitSeq(raw, []byte(",")) {
		if part = bytes.TrimSpace(part); string(part) == "null" {
			*l = append(*l, nil)
			continue
		}
		text := string(part)
		if unquoted := strings.Trim(text, `"`); len(unquoted) < len(text) {
			if !slices.Contains([]string{"NaN", "Infinity", "-Infinity"}, unquoted) {
				return fmt.Errorf("%s is no log-probability", text)
			}
			text = unquoted
		}
		f, err := strconv.ParseFloat(text, 32)
		if err != nil {
			return err
		}
		*l = append(*l, ptr(float32(f)))
	}
	return nil
}

// unknownBits stand for a log-prob that is not known; no float32 has them.
const unknownBits = -1

// bits are comparable: all NaN are alike, zeros are not.
func (l logprobs) bits() []int64 {
	out := make([]int64, len(l))
	for i, v := range l {
		switch {
		case v == nil:
			out[i] = unknownBits
		case *v != *v:
			out[i] = int64(math.Float32bits(float32(math.NaN())))
		default:
			out[i] = int64(math.Float32bits(*v))
		}
	}
	return out
}

func bytesOf(ids []int32) []byte {
	var raw []byte
	for _, id := range ids {
		raw = binary.LittleEndian.AppendUint32(raw, uint32(id))
	}
	return raw
}

// hash is what prompt_hash is.
func hash(ids []int32) string {
	sum := sha256.Sum256(bytesOf(ids))
	return hex.EncodeToString(sum[:])
}

// prefixed sends c's prompt relative to base, as far as they agree.
func (c call) prefixed(base call, most int) call {
	p, s := c.ids("prompt_token_ids"), base.whole()
	n := 0
	for n < min(len(p), len(s), most) && p[n] == s[n] {
		n++
	}
	return c.with("prompt_prefix", object{"trace_id": base.text("trace_id"), "length": n},
		"prompt_token_ids", p[n:], "prompt_hash", hash(p))
}

func jsonArray(calls []call) []byte {
	var parts [][]byte
	for _, c := range calls {
		parts = append(parts, c.json())
	}
	return append(append([]byte("["), bytes.Join(parts, []byte(","))...), ']')
}

func ndjson(calls []call) []byte {
	var out []byte
	for _, c := range calls {
		out = append(append(out, c.json()...), '\n')
	}
	return out
}

func gzipped(b []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, _ = z.Write(b) // a buffer
	_ = z.Close()
	return out.Bytes()
}

func zstded(b []byte) []byte {
	z, err := zstd.NewWriter(nil)
	if err != nil {
		panic(err)
	}
	defer z.Close() //nolint:errcheck // EncodeAll leaves nothing open
	return z.EncodeAll(b, nil)
}

// traces sends calls as a JSON array.
func (s *server) traces(calls ...call) *answer {
	s.t.Helper()
	return s.post("/v1/traces", jsonArray(calls))
}

// plain is a small trace that is well in every way. Nil ids are absent.
func plain(rollout, trace string, seq int64, prompt, response []int32) call {
	l := make(logprobs, len(response))
	for i := range l {
		l[i] = ptr(-float32(i+1) / 8)
	}
	c := call{"trace_id": trace, "rollout_id": rollout, "seq": seq}
	if prompt != nil {
		c["prompt_token_ids"] = prompt
	}
	if response != nil {
		c["response_token_ids"], c["response_logprobs"] = response, l
	}
	return c
}

// ids are never nil: no ids are an empty list.
func ids(v ...int32) []int32 { return append([]int32{}, v...) }
