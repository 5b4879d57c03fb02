package apptest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Where a stream can end too early, in the words of docs/api.md.
const (
	cutNothing      = "nothing came at all"
	cutSchema       = "ends behind the schema"
	cutDictionaries = "ends between dictionaries"
	cutBatches      = "ends between two batches"
	cutMarker       = "ends behind the last batch: only the end marker is missing"
	cutHead         = "ends in the first 8 bytes of a message"
	cutInside       = "ends further inside a message"
	cutPoisoned     = "ends as a server breaks it, anywhere between two messages"
)

// What a reader does there.
const (
	readsNone = "no rows"
	readsSome = "the rows before it"
	readsAll  = "all rows"
)

// readersDo says what each of pyarrow, arrow-go and apache-arrow for JavaScript
// does. What is not "raises" is what the count of rows is for.
var readersDo = []struct {
	where string
	what  [3]string
}{
	{cutNothing, [3]string{"raises", "raises", readsNone}},
	{cutSchema, [3]string{readsNone, "raises", readsNone}},
	{cutDictionaries, [3]string{"raises", "raises", readsNone}},
	{cutBatches, [3]string{readsSome, readsSome, readsSome}},
	{cutMarker, [3]string{readsAll, readsAll, readsAll}},
	{cutHead, [3]string{"raises", "raises", readsSome}},
	{cutInside, [3]string{"raises", "raises", "raises"}},
	{cutPoisoned, [3]string{"raises", "raises", "raises"}},
}

// place is a cut and what kind it is of.
type place struct {
	cut
	where string
	// before counts the rows of the batches that are whole.
	before int
}

// places lists cuts at every boundary and inside every message of a stream.
func placesIn(t *testing.T, stream []byte) (out []place) {
	t.Helper()
	ends := boundaries(t, stream)
	rows := make([]int, len(ends)) // before each boundary
	first := 0                     // the boundary before the first batch
	for i, at := range ends {
		var n int
		if verdict := goVerdict(bytes.NewReader(stream[:at])); verdict != raised {
			_, err := fmt.Sscan(verdict, &n)
			require.NoError(t, err)
			if first == 0 {
				first = i
			}
		}
		rows[i] = n
	}
	marker := len(ends) - 2
	require.Greater(t, first, 2, "there are dictionaries")
	require.Equal(t, marker, first+3, "there are three batches")
	for i, at := range ends[:marker+1] {
		where := cutBatches
		switch {
		case i == 0:
			where = cutNothing
		case i == 1:
			where = cutSchema
		case i < first:
			where = cutDictionaries
		case i == marker:
			where = cutMarker
		}
		out = append(out, place{cut{at, nil}, where, rows[i]}, place{cut{at, poison}, cutPoisoned, rows[i]})
	}
	for _, at := range cutsIn(ends) {
		i, _ := slices.BinarySearch(ends, at)
		where := cutInside
		if at-ends[i-1] <= 8 {
			where = cutHead
		}
		if i-1 == marker {
			where = "inside the end marker"
		}
		out = append(out, place{cut{at, nil}, where, rows[i-1]})
	}
	return out
}

// Wherever a stream is cut, and though the connection seems to have ended well,
// each reader raises, or gives fewer rows than were promised, and no row that is
// not true. Poison makes all of them raise.
func TestReadersOfCutStreams(t *testing.T) {
	t.Parallel()
	s := start(t, leaseHTTP...)
	manyRows(s)
	lease := func(codec string) *answer {
		return s.send("POST", "/v1/consumers/c/lease", encode(object{"key": "k", "max_trajectories": 10000}), "Accept", typeArrow+codec).is(200)
	}
	const zstd = `; codecs="zstd"`
	for name, a := range map[string]*answer{"lease": lease(""), "lease, zstd": lease(zstd), "export": s.get("/v1/trajectories").is(200),
		"export, zstd": s.get("/v1/trajectories", "Accept", typeArrow+zstd).is(200)} {
		promised, err := strconv.Atoi(a.header.Get("Icecore-Rows"))
		require.NoError(t, err)
		whole := truths(t, a.body)
		require.Len(t, whole, promised+1)
		list := placesIn(t, a.body)
		for _, r := range readers {
			if strings.HasSuffix(name, "zstd") && !r.packed {
				continue
			}
			cuts := []cut{{length: len(a.body)}}
			for _, p := range list {
				cuts = append(cuts, p.cut)
			}
			verdicts := r.read(t, a.body, cuts)
			require.Len(t, verdicts, len(cuts))
			require.Equal(t, whole[promised], verdicts[0], "%s: %s takes the whole for the whole", name, r.name)
			for i, p := range list {
				r.judge(t, p, verdicts[i+1], whole)
			}
		}
	}
}

// judge compares a verdict with the table, and with what is true.
func (r *reader) judge(t *testing.T, p place, verdict string, whole []string) {
	t.Helper()
	for _, row := range readersDo {
		if row.where != p.where {
			continue
		}
		want := map[string]string{"raises": raised, readsNone: whole[0], readsSome: whole[p.before], readsAll: whole[len(whole)-1]}[row.what[r.column]]
		require.Equal(t, want, verdict, "%s, a stream that %s (byte %d)", r.name, p.where, p.length)
		if row.what[r.column] != readsAll {
			require.NotEqual(t, whole[len(whole)-1], verdict, "counting tells")
		}
		return
	}
	// Inside the end marker nothing is missing; whoever does not raise has it all.
	require.Contains(t, []string{raised, whole[len(whole)-1]}, verdict, "%s, byte %d", r.name, p.length)
}

// The table of the document is the one that is tested.
func TestReadersTable(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(root + "/docs/api.md")
	require.NoError(t, err)
	for _, row := range readersDo {
		line := "| " + row.where + " | " + strings.Join(row.what[:], " | ") + " |\n"
		require.True(t, strings.Contains(string(page), line), "docs/api.md lacks %s", line)
	}
}

// When the warehouse lacks what was promised, a stream that has begun breaks: the
// connection, and for those behind a proxy that closes it well, the bytes.
func TestReadersOfBrokenStreams(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	s := launch(t, dir, nil, leaseHTTP...)
	t.Cleanup(s.kill)
	var list []episode
	for g := range 3 {
		list = append(list, group(fmt.Sprint("g", g), make([]float64, 22)...)...)
	}
	for i := range list { // 66 rollouts are two loads, 1,320 rows two batches
		for n := range 20 {
			list[i].calls = append(list[i].calls, plain(list[i].id, fmt.Sprintf("%s/%02d", list[i].id, n), int64(n), ids(int32(i), int32(n), 5), ids(9)))
		}
	}
	s.perform(list...)
	lease := object{"key": "k", "max_trajectories": 10000}
	require.Equal(t, 1320, s.lease("c", lease).count("rows"))
	s.stop()
	verified(t, dir)
	damage(t, dir, `DELETE FROM ice.tape_chunks WHERE rowid = (SELECT max(rowid) FROM ice.tape_chunks
		WHERE rollout_key = (SELECT DISTINCT rollout_key FROM ice.traces WHERE rollout_id = 'g2/21'))`)
	s = launch(t, dir, nil, leaseHTTP...) // neither its log nor its data is without fault now
	t.Cleanup(s.kill)

	for path, body := range map[string]string{"/v1/trajectories": "", "/v1/consumers/c/lease": string(encode(lease))} {
		method, args := http.MethodGet, []string{s.url + path, "fetch"}
		if body != "" {
			method, args = http.MethodPost, append(args, body)
		}
		a, err := s.try(method, path, strings.NewReader(body), "Content-Type", typeJSON)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "the connection is broken")
		require.Equal(t, "1320", a.header.Get("Icecore-Rows"))
		require.Empty(t, a.trailer.Get("Icecore-Complete"))
		require.True(t, bytes.HasSuffix(a.body, poison))
		for _, r := range readers {
			require.Equal(t, []string{raised}, r.read(t, a.body, []cut{{length: len(a.body)}}), r.name)
			require.Equal(t, []string{"1024"}, firstFields(r.read(t, a.body, []cut{{length: len(a.body) - len(poison)}})), "without poison %s sees nothing amiss", r.name)
		}
		require.Equal(t, raised+"\n", py(t, readInPython, nil, args...))
		// apache-arrow swallows the error of a body that breaks while it is read, and
		// fetch may drop what came just before it, so here only counting helps.
		require.Contains(t, []string{raised, "1024"}, strings.Fields(js(t, nil, args...))[0])
		args[1] = "fetch-whole"
		require.Equal(t, raised+"\n", js(t, nil, args...))
		resp, err := s.http.Do(must(http.NewRequest(method, s.url+path, strings.NewReader(body)))) //nolint:noctx // the client has a timeout
		require.NoError(t, err)
		require.Equal(t, raised, goVerdict(resp.Body))
		require.NoError(t, errors.Join(resp.Body.Close()))
	}
}

func firstFields(verdicts []string) (out []string) {
	for _, v := range verdicts {
		out = append(out, strings.Fields(v)[0])
	}
	return out
}
