package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"icecore/trace"
	"icecore/wire"
)

const requestBytes = 4 << 20

// send posts bodies over some connections and gives the time it took.
func (s *server) send(path, contentType string, bodies [][]byte, connections int, each func(time.Duration)) (time.Duration, error) {
	queue := make(chan []byte)
	errs := make(chan error, connections)
	var wg sync.WaitGroup
	started := time.Now()
	for range connections {
		wg.Go(func() {
			for body := range queue {
				at := time.Now()
				if err := s.post(path, contentType, body); err != nil {
					select {
					case errs <- err:
					default:
					}
					continue
				}
				if each != nil {
					each(time.Since(at))
				}
			}
		})
	}
	for _, body := range bodies {
		queue <- body
	}
	close(queue)
	wg.Wait()
	took := time.Since(started)
	select {
	case err := <-errs:
		return took, err
	default:
		return took, nil
	}
}

func (b *bench) ingestJSON() error {
	var rounds [][][]byte
	for i := range b.rounds {
		rounds = append(rounds, requests(b.fresh(i)))
	}
	size := total(rounds[0])
	decode := time.Duration(1 << 62)
	for _, bodies := range rounds {
		started := time.Now()
		for _, body := range bodies {
			if _, err := wire.TracesNDJSON(body, wire.Limits{}); err != nil {
				return err
			}
		}
		decode = min(decode, time.Since(started))
	}
	fmt.Printf("decode in process, one core        %7.0f MB/s\n", rate(size, decode))
	for _, connections := range []int{1, 4} {
		s, err := b.start()
		if err != nil {
			return err
		}
		var whole time.Duration
		best := time.Duration(1 << 62)
		for _, bodies := range rounds {
			took, err := s.send("/v1/traces", "application/x-ndjson", bodies, connections, nil)
			if err != nil {
				return err
			}
			whole += took
			best = min(best, took)
		}
		fmt.Printf("durable ingest, %d connection(s)     %7.0f MB/s mean, %.0f best   ratio to decode %.2f mean, %.2f best\n", connections,
			rate(size*len(rounds), whole), rate(size, best), decode.Seconds()*float64(len(rounds))/whole.Seconds(), decode.Seconds()/best.Seconds())
		if err := s.stop(); err != nil {
			return err
		}
	}
	return nil
}

// arrowBodies encodes the captures as Arrow requests.
func (b *bench) arrowBodies(round int) ([][]byte, error) {
	var bodies [][]byte
	for _, body := range requests(b.fresh(round)) {
		items, err := wire.TracesNDJSON(body, wire.Limits{})
		if err != nil {
			return nil, err
		}
		rb := array.NewRecordBuilder(memory.DefaultAllocator, trace.TraceSchema)
		for _, item := range items {
			appendTrace(rb, item.Value)
		}
		rec := rb.NewRecordBatch()
		var buf bytes.Buffer
		w := ipc.NewWriter(&buf, ipc.WithSchema(rec.Schema()))
		if err := w.Write(rec); err != nil {
			return nil, fmt.Errorf("encode Arrow: %w", err)
		}
		if err := w.Close(); err != nil {
			return nil, fmt.Errorf("encode Arrow: %w", err)
		}
		bodies = append(bodies, buf.Bytes())
	}
	return bodies, nil
}

// appendTrace writes the fields that the captures have.
func appendTrace(rb *array.RecordBuilder, t *trace.Trace) {
	for i, f := range trace.TraceSchema.Fields() {
		col := rb.Field(i)
		text := func(v string) {
			if v == "" {
				col.AppendNull()
				return
			}
			col.(*array.StringBuilder).Append(v)
		}
		num := func(v *int64) {
			if v == nil {
				col.AppendNull()
				return
			}
			col.(*array.Int64Builder).Append(*v)
		}
		switch f.Name {
		case "trace_id":
			text(t.TraceID)
		case "rollout_id":
			text(t.RolloutID)
		case "seq":
			num(t.Seq)
		case "prompt_token_ids":
			l := col.(*array.ListBuilder)
			l.Append(true)
			l.ValueBuilder().(*array.Int32Builder).AppendValues(t.PromptIDs.Flat(), nil)
		case "response_token_ids":
			l := col.(*array.ListBuilder)
			l.Append(true)
			l.ValueBuilder().(*array.Int32Builder).AppendValues(t.ResponseIDs, nil)
		case "response_logprobs":
			l := col.(*array.ListBuilder)
			l.Append(true)
			l.ValueBuilder().(*array.Float32Builder).AppendValues(t.ResponseLogprobs.Values, t.ResponseLogprobs.Known)
		case "policy_version":
			num(t.PolicyVersion)
		case "status":
			text(string(t.Status))
		case "finish_reason":
			text(t.FinishReason)
		case "kind":
			text(string(t.Kind))
		case "task_id":
			text(t.Attributes.TaskID)
		case "group_id":
			text(t.Attributes.GroupID)
		case "sample_index":
			num(t.Attributes.SampleIndex)
		case "harness":
			text(t.Attributes.Harness)
		case "model":
			text(t.Attributes.Model)
		case "started_at":
			col.(*array.TimestampBuilder).Append(arrow.Timestamp(*t.StartedAt))
		default:
			col.AppendNull()
		}
	}
}

func (b *bench) ingestArrow() error {
	s, err := b.start()
	if err != nil {
		return err
	}
	var whole, disk time.Duration
	size := 0
	for i := range b.rounds {
		bodies, err := b.arrowBodies(i)
		if err != nil {
			return err
		}
		took, err := s.send("/v1/traces", "application/vnd.apache.arrow.stream", bodies, 4, nil)
		if err != nil {
			return err
		}
		whole += took
		size += total(bodies)
		d, err := writeSynced(s.dir, bodies)
		if err != nil {
			return err
		}
		disk += d
	}
	fmt.Printf("write + fsync of the same bytes    %7.0f MB/s\n", rate(size, disk))
	fmt.Printf("durable ingest, 4 connections      %7.0f MB/s   ratio %.2f\n", rate(size, whole), disk.Seconds()/whole.Seconds())
	return s.stop()
}

// writeSynced writes each body to a file and syncs it, as plainly as can be.
func writeSynced(dir string, bodies [][]byte) (time.Duration, error) {
	f, err := os.Create(filepath.Join(dir, "plain"))
	if err != nil {
		return 0, fmt.Errorf("write plainly: %w", err)
	}
	defer os.Remove(f.Name()) //nolint:errcheck // the directory goes as a whole
	defer f.Close()           //nolint:errcheck // it was synced
	started := time.Now()
	for _, body := range bodies {
		if _, err := f.Write(body); err != nil {
			return 0, fmt.Errorf("write plainly: %w", err)
		}
		if err := f.Sync(); err != nil {
			return 0, fmt.Errorf("write plainly: %w", err)
		}
	}
	return time.Since(started), nil
}

// acknowledge measures single calls of an agent while drains and checkpoints
// run.
func (b *bench) acknowledge() error {
	for _, connections := range []int{1, 16, 256} {
		s, err := b.start("--checkpoint-every=1s", "--max-open=512")
		if err != nil {
			return err
		}
		lines := b.fresh(0)
		for i := 1; len(lines) < 12*connections+600; i++ {
			lines = append(lines, b.fresh(i)...)
		}
		var mu sync.Mutex
		var took []time.Duration
		_, err = s.send("/v1/traces", "application/json", lines, connections, func(d time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			took = append(took, d)
		})
		if err != nil {
			return err
		}
		slices.Sort(took)
		at := func(q float64) float64 { return took[int(q*float64(len(took)-1))].Seconds() * 1000 }
		requests, err := s.metric("icecore_commit_requests_sum")
		if err != nil {
			return err
		}
		commits, err := s.metric("icecore_commit_requests_count")
		if err != nil {
			return err
		}
		fmt.Printf("%4d connections: p50 %7.2f ms, p99 %8.2f ms, max %8.2f ms, %.1f requests per commit\n",
			connections, at(.5), at(.99), at(1), requests/commits)
		if err := s.stop(); err != nil {
			return err
		}
	}
	return nil
}
