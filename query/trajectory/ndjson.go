package trajectory

import (
	"fmt"
	"io"
	"strconv"

	"icecore/store"
)

// NDJSON writes one JSON object per row, with the columns of
// trace.TrajectorySchema.
type NDJSON struct {
	w   io.Writer
	buf []byte
}

// NewNDJSON makes the sink.
func NewNDJSON(w io.Writer) *NDJSON { return &NDJSON{w: w} }

// Row implements Sink.
func (s *NDJSON) Row(r *Row, w *Want, k *Rollout) error {
	b := r.AppendJSON(append(s.buf, '{'), appendSampling)
	str := func(name, v string) {
		b = append(append(b, `,"`...), name...)
		b = append(b, `":`...)
		if v == "" {
			b = append(b, "null"...)
		} else {
			b = append(b, Quoted(v)...)
		}
	}
	num := func(name string, v *int64) {
		b = append(append(b, `,"`...), name...)
		b = append(b, `":`...)
		if v == nil {
			b = append(b, "null"...)
		} else {
			b = strconv.AppendInt(b, *v, 10)
		}
	}
	flag := func(name string, v bool) {
		b = append(append(b, `,"`...), name...)
		b = strconv.AppendBool(append(b, `":`...), v)
	}
	count := func(name string, v int) { n := int64(v); num(name, &n) }
	str("rollout_id", k.ID)
	str("group_id", k.GroupID)
	str("task_id", k.TaskID)
	str("split", k.Split)
	str("harness", k.Harness)
	str("model", k.Model)
	str("merge_policy", r.m.Result.Policy.String())
	count("prompt_length", r.PromptLength())
	count("trained_tokens", r.trained)
	lo, hi := r.Versions()
	num("policy_version_min", lo)
	num("policy_version_max", hi)
	b = append(b, `,"reward":`...)
	if k.Reward == nil {
		b = append(b, "null"...)
	} else {
		b = strconv.AppendFloat(b, *k.Reward, 'g', -1, 64)
	}
	num("group_size", k.GroupSize)
	num("sample_index", k.SampleIndex)
	str("rollout_status", k.Status)
	flag("complete", k.Complete())
	count("rollout_trajectories", k.Rows)
	num("rollout_trained_tokens", &k.Trained)
	count("row_in_rollout", w.InRollout)
	flag("is_last", w.InRollout == k.Rows-1)
	flag("logprobs_complete", r.LogprobsComplete())
	flag("truncated", r.Truncated())
	b = append(b, '}', '\n')
	s.buf = b
	if len(s.buf) > 1<<20 {
		return s.Flush()
	}
	return nil
}

// appendSampling writes what the spans of the Arrow schema say beyond place and
// trace.
func appendSampling(out []byte, c *store.Call) []byte {
	opt := func(name string, known bool, put func([]byte) []byte) {
		out = append(append(append(out, `,"`...), name...), `":`...)
		if !known {
			out = append(out, "null"...)
			return
		}
		out = put(out)
	}
	num := func(name string, v *int64) {
		opt(name, v != nil, func(b []byte) []byte { return strconv.AppendInt(b, *v, 10) })
	}
	float := func(name string, v *float64) {
		opt(name, v != nil, func(b []byte) []byte { return strconv.AppendFloat(b, *v, 'g', -1, 64) })
	}
	str := func(name, v string) {
		opt(name, v != "", func(b []byte) []byte { return append(b, Quoted(v)...) })
	}
	how := samplingOf(c.Sampling)
	num("policy_version", c.PolicyVersion)
	opt("policy_version_spans", len(c.Versions) > 0, func(b []byte) []byte {
		b = append(b, '[')
		for i, v := range c.Versions {
			b = strconv.AppendInt(append(separate(b, i), `{"start":`...), v.Start, 10)
			b = append(strconv.AppendInt(append(b, `,"version":`...), v.Version, 10), '}')
		}
		return append(b, ']')
	})
	float("temperature", how.Temperature)
	float("top_p", how.TopP)
	num("top_k", how.TopK)
	str("logprobs_mode", how.LogprobsMode)
	str("status", string(c.Status))
	str("finish_reason", c.FinishReason)
	str("kind", string(c.Kind))
	return out
}

// Flush implements Sink.
func (s *NDJSON) Flush() error {
	if _, err := s.w.Write(s.buf); err != nil {
		return fmt.Errorf("send trajectories: %w", err)
	}
	s.buf = s.buf[:0]
	return nil
}

// End implements Sink.
func (s *NDJSON) End() error { return s.Flush() }

// Poison implements Sink. It leaves half an object: no reader of lines takes it for a whole one.
func (s *NDJSON) Poison() {
	_, _ = io.WriteString(s.w, `{"broken":`) // the connection is broken next, whatever comes of this
}
