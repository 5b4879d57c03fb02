package sse_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"icecore/ingest/gateway/sse"
)

const most = 1 << 16

type event struct{ name, data string }

// all reads to the end. The readers are asked for the bytes one by one as well, so that
// nothing hangs on how they arrive.
func all(t require.TestingT, stream string) ([]event, error) {
	events, err := from(strings.NewReader(stream))
	slow, slowErr := from(iotest.OneByteReader(strings.NewReader(stream)))
	require.Equal(t, events, slow)
	require.Equal(t, err, slowErr)
	return events, err
}

func from(r io.Reader) ([]event, error) {
	reader := sse.NewReader(r, most)
	var events []event
	for {
		e, err := reader.Next()
		if err != nil {
			return events, err
		}
		events = append(events, event{e.Name, string(e.Data)})
	}
}

func TestReader(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stream string
		want   []event
	}{
		"LF":                      {"data: a\n\ndata: b\n\n", []event{{"", "a"}, {"", "b"}}},
		"CRLF":                    {"event: x\r\ndata: a\r\n\r\ndata: b\r\n\r\n", []event{{"x", "a"}, {"", "b"}}},
		"CR":                      {"data: a\r\rdata: b\r\r", []event{{"", "a"}, {"", "b"}}},
		"mixed":                   {"data: a\r\n\ndata: b\n\r\n", []event{{"", "a"}, {"", "b"}}},
		"byte order mark":         {"\ufeffdata: a\n\n", []event{{"", "a"}}},
		"lines":                   {"data: a\ndata: b\ndata\ndata:\n\n", []event{{"", "a\nb\n\n"}}},
		"one space is cut":        {"data:a\n\ndata:  b\n\n", []event{{"", "a"}, {"", " b"}}},
		"comments":                {": hi\n\n:\n: more\ndata: a\n: within\n\n", []event{{"", "a"}}},
		"name without data":       {"event: x\n\ndata: a\n\n", []event{{"", "a"}}},
		"other fields":            {"id: 7\nretry: 10\nwhat: ever\ndata: a\n\n", []event{{"", "a"}}},
		"nothing":                 {"", nil},
		"only empty lines":        {"\n\r\n\r\n", nil},
		"U+2028 ends no line":     {"data: a\u2028b\n\n", []event{{"", "a\u2028b"}}},
		"longer than one reading": {"data: " + strings.Repeat("x", 40000) + "\n\ndata: b\n\n", []event{{"", strings.Repeat("x", 40000)}, {"", "b"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			events, err := all(t, c.stream)
			require.Equal(t, io.EOF, err)
			require.Equal(t, c.want, events)
		})
	}
}

func TestReader_TellsTheLastID(t *testing.T) {
	t.Parallel()
	r := sse.NewReader(strings.NewReader("id: 7\ndata: a\n\ndata: b\n\nid: x\x00\ndata: c\n\n"), most)
	for range 3 {
		e, err := r.Next()
		require.NoError(t, err)
		require.Equal(t, "7", e.ID)
	}
}

// An event is given when its empty line is there, without waiting for what follows.
func TestReader_WaitsForNothing(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"\n\n", "\r\n\r\n", "\r\r"} {
		in, out := io.Pipe()
		r := sse.NewReader(in, most)
		go func() { _, _ = out.Write([]byte("data: a" + end)) }()
		e, err := r.Next()
		require.NoError(t, err)
		require.Equal(t, "a", string(e.Data))
		require.NoError(t, out.Close())
		_, err = r.Next()
		require.Equal(t, io.EOF, err)
	}
}

// A stream cut at any byte gives whole events only, and says that it was cut.
func TestReader_CutAtEveryByte(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"\n", "\r\n", "\r"} {
		var stream []byte
		var want []event
		ends := map[int]int{0: 0} // how many events are whole at a place between two
		for _, e := range []event{{"x", `{"a":1}`}, {"", "two\nlines"}, {"y", ""}} {
			stream = append(stream, strings.ReplaceAll(string(sse.Event(nil, e.name, []byte(e.data))), "\n", end)...)
			want = append(want, e)
			ends[len(stream)] = len(want)
		}
		whole := 0
		for cut := range len(stream) + 1 {
			events, err := all(t, string(stream[:cut]))
			if n, between := ends[cut]; between {
				whole = n
				require.Equal(t, io.EOF, err, "cut at %d", cut)
			} else if end != "\r\n" || ends[cut+1] == 0 {
				require.Equal(t, io.ErrUnexpectedEOF, err, "cut at %d of %q", cut, end)
			} else {
				whole = ends[cut+1] // its CR ends a line: only a line feed is missing
				require.Equal(t, io.EOF, err)
			}
			require.Equal(t, want[:whole], append([]event{}, events...), "cut at %d of %q", cut, end)
		}
	}
}

func TestReader_Bounds(t *testing.T) {
	t.Parallel()
	for name, stream := range map[string]string{
		"a line":            "data: " + strings.Repeat("x", most+1) + "\n\n",
		"a line, no end":    "data: " + strings.Repeat("x", most*4),
		"many lines":        strings.Repeat("data: "+strings.Repeat("x", 1000)+"\n", 100) + "\n",
		"a comment, no end": ":" + strings.Repeat("x", most*4),
	} {
		_, err := from(strings.NewReader("data: a\n\n" + stream))
		require.ErrorIs(t, err, sse.ErrTooLarge, name)
	}
	r := sse.NewReader(strings.NewReader("data: "+strings.Repeat("x", most*2)), most)
	_, err := r.Next()
	require.ErrorIs(t, err, sse.ErrTooLarge)
	_, err = r.Next()
	require.ErrorIs(t, err, sse.ErrTooLarge, "it stays so")
}

func TestReader_HandsOnItsSourcesError(t *testing.T) {
	t.Parallel()
	broke := errors.New("reset")
	r := sse.NewReader(io.MultiReader(strings.NewReader("data: a\n\ndata: b"), iotest.ErrReader(broke)), most)
	_, err := r.Next()
	require.NoError(t, err)
	_, err = r.Next()
	require.ErrorIs(t, err, broke)
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		data := rapid.String().Draw(t, "data")
		stream := sse.Comment(nil, rapid.String().Draw(t, "comment"))
		stream = sse.Event(stream, "name", []byte(data))
		events, err := all(t, string(stream))
		require.Equal(t, io.EOF, err)
		want := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(data)
		require.Equal(t, []event{{"name", want}}, events)
	})
}

func FuzzReader(f *testing.F) {
	f.Add([]byte("event: x\r\ndata: a\r\n\r\ndata: b\n\n"))
	f.Add([]byte("\ufeff:c\rdata\r\rdata:z"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		events, err := from(bytes.NewReader(stream))
		slow, slowErr := from(iotest.OneByteReader(bytes.NewReader(stream)))
		require.Equal(t, events, slow)
		require.Equal(t, err, slowErr)
		// Less of a stream gives no event that the whole does not give.
		if len(stream) > 0 {
			cut, _ := from(bytes.NewReader(stream[:len(stream)/2]))
			require.LessOrEqual(t, len(cut), len(events))
			for i := range cut {
				require.Equal(t, events[i], cut[i])
			}
		}
	})
}
