package wire

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strconv"
	"testing"
)

func BenchmarkCaptures(b *testing.B) {
	var body []byte
	for _, name := range []string{"plain", "thinking", "long"} {
		body = append(body, capture(b, name)...)
	}
	b.Run("wire", func(b *testing.B) {
		b.SetBytes(int64(len(body)))
		b.ReportAllocs()
		for b.Loop() {
			items, err := TracesNDJSON(body, Limits{})
			if err != nil || items[0].Err != nil {
				b.Fatal(err, items[0].Err)
			}
		}
	})
	b.Run("encoding_json", func(b *testing.B) {
		type line struct {
			TraceID, RolloutID string
			Seq                int64
			PromptTokenIDs     []int32         `json:"prompt_token_ids"`
			ResponseTokenIDs   []int32         `json:"response_token_ids"`
			ResponseLogprobs   []float32       `json:"response_logprobs"`
			Request            json.RawMessage `json:"request"`
			Response           json.RawMessage `json:"response"`
		}
		b.SetBytes(int64(len(body)))
		b.ReportAllocs()
		for b.Loop() {
			for l := range bytes.Lines(body) {
				var v line
				if err := json.Unmarshal(l, &v); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}

func BenchmarkTokenIDs(b *testing.B) {
	text := []byte{'['}
	for i := range 50_000 {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, int64(rand.IntN(151_936)), 10)
	}
	text = append(text, ']')
	lim := Limits{}.WithDefaults()
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		s := scanner{buf: text, lim: lim}
		if _, err := s.tokenIDs(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLogprobs(b *testing.B) {
	for _, digits := range []int{8, 17} {
		b.Run(strconv.Itoa(digits)+"_digits", func(b *testing.B) {
			text := []byte{'['}
			for i := range 20_000 {
				if i > 0 {
					text = append(text, ',')
				}
				text = strconv.AppendFloat(text, -rand.ExpFloat64(), 'g', digits, 64)
			}
			text = append(text, ']')
			lim := Limits{}.WithDefaults()
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				s := scanner{buf: text, lim: lim}
				if _, err := s.logprobs(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkBody(b *testing.B) {
	text := with(`"request":{"messages":[{"role":"user","content":"` + string(bytes.Repeat([]byte(`some text, and a line break\n`), 10_000)) + `"}]}`)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if items, err := TracesJSON([]byte(text), Limits{}); err != nil || items[0].Err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	items, err := TracesNDJSON(capture(b, "long"), Limits{})
	if err != nil {
		b.Fatal(err)
	}
	var dst []byte
	n := 0
	for _, item := range items {
		n += len(EncodeTraceJSON(nil, item.Value))
	}
	b.SetBytes(int64(n))
	for b.Loop() {
		for _, item := range items {
			dst = EncodeTraceJSON(dst[:0], item.Value)
		}
	}
}
