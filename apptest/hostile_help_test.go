package apptest

import (
	"io"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// endless repeats a text.
type endless struct {
	text string
	at   int
}

func repeated(text string) io.Reader {
	return &endless{text: strings.Repeat(text, 1+(64<<10)/len(text))}
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.text[e.at:])
	e.at = (e.at + n) % len(e.text)
	return n, nil
}

func gzipWriter(w io.Writer) io.WriteCloser {
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		panic(err)
	}
	return z
}

func zstdWriter(w io.Writer) io.WriteCloser {
	z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20))
	if err != nil {
		panic(err)
	}
	return z
}

// compressed is r through a compressor, made while it is read.
func compressed(compressor func(io.Writer) io.WriteCloser, r io.Reader) io.Reader {
	out, in := io.Pipe()
	go func() {
		z := compressor(in)
		_, err := io.Copy(z, r)
		if err == nil {
			err = z.Close()
		}
		_ = in.CloseWithError(err)
	}()
	return out
}
