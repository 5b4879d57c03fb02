package wire

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// maxWindow is the zstd window that RFC 9659 lets a content coding ask of a
// receiver. Larger ones are refused: the window is memory that the sender picks.
const maxWindow = 8 << 20

// Inflate reads all of r and undoes contentEncoding: identity (or ""), gzip,
// x-gzip or zstd. It stops as soon as the result passes maxBytes. Faults of the
// request are an *EnvelopeError (its Status is 400, 413 or 415); an error of r
// itself comes back wrapped.
func Inflate(r io.Reader, contentEncoding string, maxBytes int64) ([]byte, error) {
	return InflateTo(nil, r, contentEncoding, maxBytes, nil)
}

// InflateTo is Inflate into dst, which it overwrites and grows as needed, for
// callers that pool their buffers. grow, when set, is told by how much the
// buffer grew, and its error ends the reading and is returned wrapped.
func InflateTo(dst []byte, r io.Reader, contentEncoding string, maxBytes int64, grow func(bytes int) error) ([]byte, error) {
	source := &sourceReader{r: r}
	var inflated io.Reader
	var err error
	switch coding := strings.ToLower(strings.TrimSpace(contentEncoding)); coding {
	case "", "identity":
		inflated = source
	case "gzip", "x-gzip":
		z := gzips.Get().(*gzip.Reader)
		defer gzips.Put(z)
		inflated, err = z, z.Reset(source)
	case "zstd":
		z := zstds.Get().(*zstd.Decoder)
		defer func() {
			// Let go of the source.
			if z.Reset(nil) == nil {
				zstds.Put(z)
			}
		}()
		inflated, err = z, z.Reset(source)
	default:
		return nil, &EnvelopeError{Code: CodeUnsupportedEncoding, Offset: -1,
			Message: fmt.Sprintf("the content coding %s is not supported: send identity, gzip or zstd, and one only", quoted(coding))}
	}
	if err == nil {
		dst, err = readBounded(dst[:0], inflated, maxBytes, grow)
	}
	var envelope *EnvelopeError
	var refused *growError
	switch {
	case err == nil:
		return dst, nil
	case errors.As(err, &envelope):
		return nil, err
	case errors.As(err, &refused):
		return nil, fmt.Errorf("inflate: %w", refused.err)
	case source.err != nil:
		return nil, fmt.Errorf("read request body: %w", source.err)
	}
	message := "the compressed body is damaged"
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		message = "the compressed body ends too early"
	case errors.Is(err, zstd.ErrWindowSizeExceeded):
		message = "the zstd window is larger than the 8 MiB that RFC 9659 allows"
	}
	return nil, &EnvelopeError{Code: CodeCorruptEncoding, Offset: int64(len(dst)), Message: message, Err: err}
}

// readBounded appends r to dst until its end, or until it passes maxBytes.
func readBounded(dst []byte, r io.Reader, maxBytes int64, grow func(bytes int) error) ([]byte, error) {
	for {
		if len(dst) == cap(dst) {
			before := cap(dst)
			dst = slices.Grow(dst, max(32<<10, len(dst)/2))
			if grow != nil {
				if err := grow(cap(dst) - before); err != nil {
					return dst, &growError{err}
				}
			}
		}
		// One byte more than allowed is enough to know.
		room := min(int64(cap(dst)-len(dst)), maxBytes+1-int64(len(dst)))
		n, err := r.Read(dst[len(dst) : len(dst)+int(room)])
		dst = dst[:len(dst)+n]
		if int64(len(dst)) > maxBytes {
			return dst, &EnvelopeError{Code: CodeRequestTooLarge, Offset: maxBytes,
				Message: fmt.Sprintf("the inflated body is larger than the limit of %d bytes", maxBytes)}
		}
		if err == io.EOF {
			return dst, nil
		}
		if err != nil {
			return dst, err
		}
	}
}

// growError keeps the caller's own refusal apart from faults of the body.
type growError struct{ err error }

func (e *growError) Error() string { return e.err.Error() }

// sourceReader keeps the source's own error apart from the decompressor's.
type sourceReader struct {
	r   io.Reader
	err error
}

func (s *sourceReader) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

var gzips = sync.Pool{New: func() any { return new(gzip.Reader) }}

// A decoder of concurrency 1 works in the caller's goroutine and leaves none.
var zstds = sync.Pool{New: func() any {
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		panic("wire: zstd options: " + err.Error())
	}
	return z
}}
