package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// input is one file to import.
type input struct {
	name   string
	path   string // empty: standard input
	format string
	coding string
	size   int64
	// found: it was not named, but found in a directory.
	found bool
}

var formats = map[string]string{".ndjson": "ndjson", ".jsonl": "ndjson", ".json": "json", ".arrow": "arrow", ".arrows": "arrow",
	".ipc": "arrow", ".feather": "arrow", ".parquet": "parquet"}

func findInputs(paths []string, stdin string) ([]input, error) {
	var out []input
	for _, p := range paths {
		if p == "-" {
			out = append(out, input{name: "standard input", format: stdin})
			continue
		}
		info, err := os.Stat(p)
		if err != nil {
			return nil, fmt.Errorf("import: %w", err)
		}
		if !info.IsDir() {
			in, ok := inputOf(p, info.Size())
			if !ok {
				return nil, fmt.Errorf("import %s: its ending names no format; known are .ndjson, .jsonl, .json, .arrow, .arrows, "+
					".ipc, .feather, .parquet, each also with .gz or .zst", p)
			}
			out = append(out, in)
			continue
		}
		found := len(out)
		err = filepath.WalkDir(p, func(path string, d fs.DirEntry, err error) error {
			in, ok := inputOf(path, 0)
			if err != nil || d.IsDir() || !ok {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return fmt.Errorf("look at %s: %w", path, err)
			}
			in.size, in.found = info.Size(), true
			out = append(out, in)
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("import: %w", err)
		}
		if len(out) == found {
			return nil, fmt.Errorf("import %s: the directory holds no file of a known format", p)
		}
		slices.SortFunc(out[found:], func(a, b input) int { return strings.Compare(a.path, b.path) })
	}
	return out, nil
}

func inputOf(path string, size int64) (input, bool) {
	base, coding := path, ""
	for _, c := range []string{".gz", ".zst"} {
		if b, ok := strings.CutSuffix(base, c); ok {
			base, coding = b, c
			break
		}
	}
	format, ok := formats[filepath.Ext(base)]
	return input{name: path, path: path, format: format, coding: coding, size: size}, ok
}

// counted reports how many bytes of the file itself were read.
type counted struct {
	r     io.Reader
	count func(int)
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.count(n)
	return n, err
}

// read cuts the input into batches.
func (in input) read(emit func(*batch) error, line func(control), count func(int)) (err error) {
	var src io.ReadCloser = os.Stdin
	if in.path != "" {
		if src, err = os.Open(in.path); err != nil {
			return fmt.Errorf("open: %w", err)
		}
		defer src.Close() //nolint:errcheck // it was only read
	}
	var r io.Reader = counted{src, count}
	switch in.coding {
	case ".gz":
		z, err := gzip.NewReader(r)
		if err != nil {
			return fmt.Errorf("undo gzip: %w", err)
		}
		defer z.Close() //nolint:errcheck // it was only read
		r = z
	case ".zst":
		z, err := zstd.NewReader(r)
		if err != nil {
			return fmt.Errorf("undo zstd: %w", err)
		}
		defer z.Close()
		r = z
	}
	switch in.format {
	case "ndjson":
		return readLines(in.name, r, emit, line)
	case "json":
		return readArray(in.name, r, emit, line)
	case "arrow":
		return readArrow(in.name, r, emit)
	default:
		return readParquet(in.name, r, emit)
	}
}

// Bounds of one request of an import.
const (
	importBytes = 8 << 20
	importItems = 1000
	// smallLine is the longest line that is looked at for not being a trace.
	smallLine = 64 << 10
)

// controlLine says whether a line is one of attributes, finish and reward.
func controlLine(line []byte, where string) (control, bool) {
	if len(line) > smallLine || bytes.Contains(line, []byte(`_token_ids"`)) {
		return control{}, false
	}
	var probe struct {
		TraceID json.RawMessage `json:"trace_id"`
		control
	}
	if json.Unmarshal(line, &probe) != nil || probe.TraceID != nil {
		return control{}, false
	}
	l := probe.control
	l.where = where
	return l, l.Rollout != nil || l.Finish != nil || l.Reward != nil
}

// texts gathers JSON texts into batches: lines, or elements of an array.
type texts struct {
	contentType       string
	open, close, join string
	parts             [][]byte
	items             []string
	size              int
	emit              func(*batch) error
}

func (t *texts) add(part []byte, where string) error {
	if len(t.parts) > 0 && (t.size+len(part) > importBytes || len(t.parts) == importItems) {
		if err := t.flush(); err != nil {
			return err
		}
	}
	t.parts = append(t.parts, part)
	t.items = append(t.items, where)
	t.size += len(part) + 1
	return nil
}

func (t *texts) flush() error {
	if len(t.parts) == 0 {
		return nil
	}
	b := t.batch(t.parts, t.items)
	t.parts, t.items, t.size = nil, nil, 0
	return t.emit(b)
}

func (t *texts) batch(parts [][]byte, items []string) *batch {
	body := append([]byte(t.open), bytes.Join(parts, []byte(t.join))...)
	body = append(body, t.close...)
	return &batch{contentType: t.contentType, body: body, items: items, split: func() (*batch, *batch) {
		h := len(parts) / 2
		return t.batch(parts[:h], items[:h]), t.batch(parts[h:], items[h:])
	}}
}

func readLines(name string, r io.Reader, emit func(*batch) error, line func(control)) error {
	t := &texts{contentType: "application/x-ndjson", join: "\n", emit: emit}
	buf := bufio.NewReaderSize(r, 1<<20)
	for n := 1; ; n++ {
		text, err := buf.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("line %d: %w", n, err)
		}
		text = bytes.TrimRight(text, "\r\n")
		where := fmt.Sprintf("%s:%d", name, n)
		if len(bytes.TrimSpace(text)) > 0 {
			if l, ok := controlLine(text, where); ok {
				line(l)
			} else if err := t.add(text, where); err != nil {
				return err
			}
		}
		if err != nil {
			return t.flush()
		}
	}
}

// errNoTraces says that a JSON file is something else altogether.
var errNoTraces = errors.New("it holds no traces")

func holdsItem(raw json.RawMessage) bool {
	var keys map[string]json.RawMessage
	if json.Unmarshal(raw, &keys) != nil {
		return false
	}
	for _, k := range []string{"trace_id", "rollout_id", "rollout", "finish", "reward"} {
		if keys[k] != nil {
			return true
		}
	}
	return false
}

// readArray reads a JSON file: an array, {"traces": [...]}, or one object.
func readArray(name string, r io.Reader, emit func(*batch) error, line func(control)) error {
	t := &texts{contentType: "application/json", open: "[", close: "]", join: ",", emit: emit}
	add := func(raw json.RawMessage, n int) error {
		where := fmt.Sprintf("%s#%d", name, n)
		if l, ok := controlLine(raw, where); ok {
			line(l)
			return nil
		}
		return t.add(raw, where)
	}
	d := json.NewDecoder(r)
	for {
		var raw json.RawMessage
		if err := d.Decode(&raw); errors.Is(err, io.EOF) {
			return t.flush()
		} else if err != nil {
			return fmt.Errorf("read JSON: %w", err)
		}
		list := []json.RawMessage{raw}
		var wrapped struct {
			Traces []json.RawMessage `json:"traces"`
		}
		switch {
		case raw[0] == '[':
			if err := json.Unmarshal(raw, &list); err != nil {
				return fmt.Errorf("read JSON: %w", err)
			}
		case json.Unmarshal(raw, &wrapped) == nil && wrapped.Traces != nil:
			list = wrapped.Traces
		case !holdsItem(raw):
			return errNoTraces
		}
		for i, item := range list {
			if err := add(item, i); err != nil {
				return err
			}
		}
	}
}
