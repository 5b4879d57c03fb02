package verify

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
)

type jsonTrace struct {
	TraceID      string  `json:"trace_id"`
	RolloutID    string  `json:"rollout_id"`
	Seq          *int64  `json:"seq"`
	Prompt       []int32 `json:"prompt_token_ids"`
	Response     []int32 `json:"response_token_ids"`
	Incomplete   bool    `json:"ids_incomplete"`
	Status       string  `json:"status"`
	FinishReason string  `json:"finish_reason"`
	ChoiceGroup  string  `json:"choice_group"`
	ChoiceIndex  *int64  `json:"choice_index"`
}

func (w *jsonTrace) call() *call {
	t := &tape{own: append(slices.Clone(w.Prompt), w.Response...)}
	t.seal()
	return &call{id: w.TraceID, seq: w.Seq, tape: t, p: len(w.Prompt), r: len(w.Response), known: w.Prompt != nil && w.Response != nil,
		incomplete: w.Incomplete, ok: w.Status == "" || w.Status == "ok", finish: w.FinishReason, group: w.ChoiceGroup, index: w.ChoiceIndex}
}

type jsonSpan struct {
	TraceID   string `json:"trace_id"`
	Start     int    `json:"start"`
	End       int    `json:"end"`
	Trainable bool   `json:"trainable"`
}

type jsonRow struct {
	TokenIDs  []int32    `json:"token_ids"`
	Length    int        `json:"length"`
	SHA256    string     `json:"sha256"`
	Spans     []jsonSpan `json:"spans"`
	Rewritten bool       `json:"history_rewritten"`
}

type jsonBoundary struct {
	TraceID string  `json:"trace_id"`
	Kind    string  `json:"kind"`
	Nearest *string `json:"nearest"`
	Shared  int     `json:"shared"`
}

// rowsOf writes a judgement's rows out.
func (j *judgement) rowsOf() []jsonRow {
	out := []jsonRow{}
	for i, r := range j.rows {
		var ids []int32
		spans := []jsonSpan{}
		var path []*call
		for c := r.last; c != nil; c = j.of[c].previous {
			path = append(path, c)
		}
		slices.Reverse(path)
		for _, c := range path {
			v := j.of[c]
			ids = append(ids, c.tape.ids(v.cut, c.length())...)
			if v.spanStart >= 0 {
				spans = append(spans, jsonSpan{c.id, len(ids) - c.r, len(ids), v.row == i})
			}
		}
		out = append(out, jsonRow{TokenIDs: ids, Spans: spans, Rewritten: r.rewritten})
	}
	return out
}

func (j *judgement) dispositionsOf() map[string]string {
	out := map[string]string{}
	for c, v := range j.of {
		out[c.id] = v.disposition
	}
	return out
}

func (j *judgement) requireBoundaries(t *testing.T, want []jsonBoundary) {
	got := map[string]jsonBoundary{}
	for c, v := range j.of {
		if v.boundary == "" {
			continue
		}
		b := jsonBoundary{TraceID: c.id, Kind: v.boundary, Shared: v.shared}
		if v.nearest != nil {
			b.Nearest = &v.nearest.id
		}
		got[c.id] = b
	}
	require.Len(t, got, len(want))
	for _, w := range want {
		require.Equal(t, w, got[w.TraceID])
	}
}

func shuffled(calls []*call) []*call {
	out := slices.Clone(calls)
	rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

func TestConformance(t *testing.T) {
	raw, err := os.ReadFile("../testdata/conformance/merge.json")
	require.NoError(t, err)
	var file struct {
		Cases []struct {
			Name   string      `json:"name"`
			Traces []jsonTrace `json:"traces"`
			Expect struct {
				StrictTree []jsonRow `json:"strict_tree"`
				PerRequest []jsonRow `json:"per_request"`
				Polar      struct {
					EndOfTurn    int32             `json:"end_of_turn"`
					Trajectories []jsonRow         `json:"trajectories"`
					Dispositions map[string]string `json:"dispositions"`
				} `json:"polar_compat"`
				Dispositions map[string]string `json:"dispositions"`
				Boundaries   []jsonBoundary    `json:"boundaries"`
			} `json:"expect"`
		} `json:"cases"`
	}
	require.NoError(t, json.Unmarshal(raw, &file))
	require.NotEmpty(t, file.Cases)
	for _, c := range file.Cases {
		t.Run(c.Name, func(t *testing.T) {
			var calls []*call
			for i := range c.Traces {
				calls = append(calls, c.Traces[i].call())
			}
			for _, p := range []struct {
				name         string
				end          *int32
				rows         []jsonRow
				dispositions map[string]string
			}{
				{"strict_tree", nil, c.Expect.StrictTree, c.Expect.Dispositions},
				{"per_request", nil, c.Expect.PerRequest, c.Expect.Dispositions},
				{"polar_compat", &c.Expect.Polar.EndOfTurn, c.Expect.Polar.Trajectories, c.Expect.Polar.Dispositions},
			} {
				j := judge(shuffled(calls), p.name, p.end)
				require.Equal(t, p.dispositions, j.dispositionsOf(), p.name)
				require.Equal(t, p.rows, j.rowsOf(), p.name)
				j.requireBoundaries(t, c.Expect.Boundaries)
			}
		})
	}
}

// captured reads the captures' traces by rollout.
func captured(t testing.TB, names ...string) map[string][]*call {
	out := map[string][]*call{}
	for _, name := range names {
		f, err := os.Open("../testdata/captures/" + name + ".ndjson.zst")
		require.NoError(t, err)
		z, err := zstd.NewReader(f)
		require.NoError(t, err)
		lines := bufio.NewScanner(z)
		lines.Buffer(nil, 64<<20)
		for lines.Scan() {
			var w jsonTrace
			require.NoError(t, json.Unmarshal(lines.Bytes(), &w))
			out[w.RolloutID] = append(out[w.RolloutID], w.call())
		}
		require.NoError(t, lines.Err())
		z.Close()
		require.NoError(t, f.Close())
	}
	return out
}

func TestCaptures(t *testing.T) {
	raw, err := os.ReadFile("../testdata/captures/expected.json")
	require.NoError(t, err)
	type polarAnswer struct {
		Trajectories []jsonRow         `json:"trajectories"`
		Dispositions map[string]string `json:"dispositions"`
	}
	var expected map[string]struct {
		StrictTree   []jsonRow         `json:"strict_tree"`
		PerRequest   int               `json:"per_request"`
		Polar        polarAnswer       `json:"polar_compat"`
		Dispositions map[string]string `json:"dispositions"`
		Boundaries   []jsonBoundary    `json:"boundaries"`
	}
	require.NoError(t, json.Unmarshal(raw, &expected))
	calls := captured(t, "plain", "thinking", "long")
	require.Len(t, calls, len(expected))
	end := int32(151645)
	for id, want := range expected {
		j := judge(shuffled(calls[id]), "strict_tree", nil)
		require.Equal(t, want.Dispositions, j.dispositionsOf(), id)
		j.requireBoundaries(t, want.Boundaries)
		requireRows(t, want.StrictTree, j.rowsOf())
		require.Len(t, judge(calls[id], "per_request", nil).rows, want.PerRequest)
		j = judge(shuffled(calls[id]), "polar_compat", &end)
		require.Equal(t, want.Polar.Dispositions, j.dispositionsOf(), id)
		requireRows(t, want.Polar.Trajectories, j.rowsOf())
	}
}

func requireRows(t *testing.T, want, got []jsonRow) {
	require.Len(t, got, len(want))
	for i, w := range want {
		h := sha256.New()
		require.NoError(t, binary.Write(h, binary.LittleEndian, got[i].TokenIDs))
		require.Equal(t, w.SHA256, hex.EncodeToString(h.Sum(nil)))
		require.Equal(t, w.Spans, got[i].Spans)
		require.Equal(t, w.Rewritten, got[i].Rewritten)
	}
}

// One long rollout of many different calls must stay cheap.
func BenchmarkJudgeLongRollout(b *testing.B) {
	for id, calls := range captured(b, "long") {
		b.Run(fmt.Sprintf("%s-%d", id, len(calls)), func(b *testing.B) {
			for b.Loop() {
				judge(calls, "strict_tree", nil)
			}
		})
	}
}
