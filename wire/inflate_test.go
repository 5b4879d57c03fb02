package wire

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
)

func gzipped(parts ...string) []byte {
	var out bytes.Buffer
	for _, p := range parts {
		w := gzip.NewWriter(&out)
		_, _ = w.Write([]byte(p))
		_ = w.Close()
	}
	return out.Bytes()
}

func zstded(opts []zstd.EOption, parts ...string) []byte {
	w, err := zstd.NewWriter(nil, opts...)
	if err != nil {
		panic(err)
	}
	var out []byte
	for _, p := range parts {
		out = w.EncodeAll([]byte(p), out)
	}
	return out
}

func TestInflate(t *testing.T) {
	for _, c := range []struct {
		coding string
		body   []byte
		want   string
	}{
		{"", []byte("plain"), "plain"},
		{"identity", []byte("plain"), "plain"},
		{" GZIP ", gzipped("one"), "one"},
		{"x-gzip", gzipped("one", "", "two"), "onetwo"},
		{"zstd", zstded(nil, "one", "two"), "onetwo"},
		{"zstd", zstded(nil, "one")[:0], ""},
	} {
		for _, r := range []io.Reader{bytes.NewReader(c.body), iotest.OneByteReader(bytes.NewReader(c.body)), iotest.DataErrReader(bytes.NewReader(c.body))} {
			got, err := Inflate(r, c.coding, 100)
			require.NoError(t, err, c.coding)
			require.Equal(t, c.want, string(got))
		}
		if c.want != "" {
			_, err := Inflate(bytes.NewReader(c.body), c.coding, int64(len(c.want)))
			require.NoError(t, err)
			_, err = Inflate(bytes.NewReader(c.body), c.coding, int64(len(c.want))-1)
			requireEnvelope(t, err, CodeRequestTooLarge, 413)
		}
	}
}

func TestInflateRefuses(t *testing.T) {
	for _, coding := range []string{"br", "deflate", "gzip, zstd", "gzip,gzip", "gzip;q=1", "snappy"} {
		_, err := Inflate(bytes.NewReader(gzipped("x")), coding, 100)
		requireEnvelope(t, err, CodeUnsupportedEncoding, 415)
	}
	text := string(bytes.Repeat([]byte("some text "), 1000))
	flip := func(b []byte, at int) []byte { b = bytes.Clone(b); b[at] ^= 0x40; return b }
	g, z := gzipped(text), zstded(nil, text)
	for name, c := range map[string]struct {
		coding string
		body   []byte
	}{
		"empty gzip":      {"gzip", nil},
		"no gzip":         {"gzip", []byte(text)},
		"cut gzip":        {"gzip", g[:len(g)-9]},
		"gzip checksum":   {"gzip", flip(g, len(g)-8)},
		"gzip then junk":  {"gzip", append(bytes.Clone(g), "junk"...)},
		"no zstd":         {"zstd", []byte(text)},
		"cut zstd":        {"zstd", z[:len(z)-3]},
		"cut zstd header": {"zstd", z[:3]},
		"zstd checksum":   {"zstd", flip(z, len(z)-1)},
		"zstd then junk":  {"zstd", append(bytes.Clone(z), "junk"...)},
		"zstd is gzip":    {"gzip", z},
		"wide window":     {"zstd", wideWindow()},
	} {
		_, err := Inflate(bytes.NewReader(c.body), c.coding, 1<<20)
		require.Error(t, err, name)
		requireEnvelope(t, err, CodeCorruptEncoding, 400)
	}
	// A client that goes away is no fault of the body.
	gone := errors.New("gone")
	for coding, body := range map[string][]byte{"": g, "gzip": g, "zstd": z} {
		_, err := Inflate(io.MultiReader(bytes.NewReader(body[:4]), iotest.ErrReader(gone)), coding, 100)
		require.ErrorIs(t, err, gone)
		var e *EnvelopeError
		require.False(t, errors.As(err, &e))
	}
	// The pools are still good after all this.
	got, err := Inflate(bytes.NewReader(z), "zstd", 1<<20)
	require.NoError(t, err)
	require.Equal(t, text, string(got))
}

// wideWindow is a frame that asks for 64 MiB of window.
func wideWindow() []byte {
	var out bytes.Buffer
	w, _ := zstd.NewWriter(&out, zstd.WithWindowSize(64<<20))
	_, _ = w.Write(make([]byte, 1<<16))
	_ = w.Flush()
	_, _ = w.Write(make([]byte, 1<<16))
	_ = w.Close()
	return out.Bytes()
}

func TestBombs(t *testing.T) {
	zeros := string(make([]byte, 64<<20))
	for coding, body := range map[string][]byte{"gzip": gzipped(zeros, zeros), "zstd": zstded(nil, zeros, zeros)} {
		require.Less(t, len(body), 1<<20)
		allocated := bytesAllocated(func() {
			_, err := Inflate(bytes.NewReader(body), coding, 1<<20)
			requireEnvelope(t, err, CodeRequestTooLarge, 413)
		})
		// The body up to its limit, grown by halves, and a window of 8 MiB.
		require.Less(t, allocated, uint64(24<<20), coding)
	}
}

func bytesAllocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestInflateLeavesNoGoroutines(t *testing.T) {
	before := runtime.NumGoroutine()
	noise := make([]byte, 1<<20)
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	body := zstded(nil, string(noise))
	for range 20 {
		_, _ = Inflate(bytes.NewReader(body), "zstd", 1<<19)
		_, _ = Inflate(bytes.NewReader(body[:1<<19]), "zstd", 1<<21)
	}
	require.LessOrEqual(t, runtime.NumGoroutine(), before)
}

// TestInflateGrow: the caller hears of every growth and may end it.
func TestInflateGrow(t *testing.T) {
	text := string(bytes.Repeat([]byte("x"), 1<<20))
	told := 0
	got, err := InflateTo(nil, bytes.NewReader(gzipped(text)), "gzip", 1<<20, func(n int) error { told += n; return nil })
	require.NoError(t, err)
	require.Equal(t, cap(got), told)
	enough := errors.New("enough")
	_, err = InflateTo(nil, bytes.NewReader(gzipped(text)), "gzip", 1<<20, func(int) error { return enough })
	require.ErrorIs(t, err, enough)
	var e *EnvelopeError
	require.False(t, errors.As(err, &e))
}
