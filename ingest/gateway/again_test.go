package gateway

import (
	"context"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"icecore/ingest/gateway/engine"
	"icecore/ingest/gateway/settings"
	"icecore/ingest/gateway/turn"
	"icecore/trace"
)

// lettered is an engine whose tokens are bytes: it renders, takes ids in, and does with
// each call what play says.
type lettered struct {
	fakeEngine
	play func(c *engine.Call, a *letters)
}

// letters is its answer to one call.
type letters struct {
	told engine.Sampled
	text string
	// fault comes in place of the text.
	fault error
	done  bool
}

func ids(text string) (out []int32) {
	for _, b := range []byte(text) {
		out = append(out, int32(b))
	}
	return out
}

func (l *lettered) Pick(_, _ string, _ ...string) (sampler, error) { return l, nil }
func (l *lettered) TokenIn(*engine.Call) bool                      { return true }
func (l *lettered) Tokenize(_ context.Context, _, text string) ([]int32, error) {
	return ids(text), nil
}

func (l *lettered) Detokenize(_ context.Context, _ string, of []int32) (string, error) {
	out := make([]byte, len(of))
	for i, id := range of {
		out[i] = byte(id)
	}
	return string(out), nil
}

func (l *lettered) Render(_ context.Context, c *engine.Call) ([]int32, error) {
	text := ""
	for i := range c.Request.Messages {
		text += c.Request.Messages[i].Role + ":" + c.Request.Messages[i].Text() + "\n"
	}
	return ids(text + "assistant:"), nil
}

func (l *lettered) Do(ctx context.Context, c *engine.Call) (answer, error) {
	a := &letters{text: "yes"}
	a.told.PromptIDs, _ = l.Render(ctx, c)
	if c.PromptIDs != nil {
		a.told.PromptIDs = c.PromptIDs
	}
	a.told.IDs = ids(a.text + "\n")
	l.calls = append(l.calls, c)
	l.play(c, a)
	return a, nil
}

func (a *letters) Next(context.Context) (engine.Piece, error) {
	if a.fault != nil {
		return engine.Piece{}, a.fault
	}
	if a.done {
		return engine.Piece{}, io.EOF
	}
	a.done, a.told.Finish = true, turn.FinishStop
	return engine.Piece{Deltas: []turn.Delta{{Text: a.text}}, Ends: []turn.End{{Finish: turn.FinishStop}}}, nil
}

func (a *letters) Sampled(int) *engine.Sampled { return &a.told }
func (a *letters) Usage() turn.Usage           { return turn.Usage{} }
func (a *letters) Raw() (_, _ []byte)          { return nil, nil }
func (a *letters) FirstToken() time.Time       { return time.Time{} }
func (a *letters) Close() error                { return nil }

func exactly(o *Options, _ *fixed, _ *memory) {
	m := settings.DefaultModel("policy")
	m.Continuity = settings.ContinuityExactText
	o.Settings.Models = []*settings.Model{m}
}

// A spliced call that the engine refuses is asked again without a splice: under another
// id, since the first may still be aborted by its own, and all of the trace is of the
// second.
func TestAskedAgainUnderAnotherID(t *testing.T) {
	t.Parallel()
	refusing := false
	l := &lettered{play: func(c *engine.Call, a *letters) {
		if refusing && c.PromptIDs != nil {
			a.fault = &turn.Fault{Status: 400, Code: turn.CodeInvalidRequest, Message: "no ids here"}
			a.told = engine.Sampled{PromptIDs: ids("of the first"), IDs: ids("of the first"), Incomplete: true, StopReason: "of the first",
				Flags: []string{"usage_missing"}}
		}
	}}
	r := newFakeRig(t, l, exactly)
	converse(t, r, 4)
	_, spliced := labels(t, r, 4)
	require.Positive(t, spliced, "what is refused below would be spliced")
	refusing = true
	converse(t, r, 4)
	got := r.store.wait(t, 8)[7]
	n := len(l.calls)
	first, again := l.calls[n-2], l.calls[n-1]
	require.NotNil(t, first.PromptIDs)
	require.Nil(t, again.PromptIDs)
	require.Equal(t, []string{got.TraceID}, first.TraceIDs)
	require.Equal(t, []string{got.TraceID + "-again"}, again.TraceIDs)

	prompt, err := l.Render(t.Context(), again)
	require.NoError(t, err)
	require.Equal(t, prompt, got.PromptIDs.Flat())
	require.Equal(t, ids("yes\n"), got.ResponseIDs)
	require.False(t, got.IDsIncomplete)
	require.NotContains(t, string(got.Metadata), "of the first")
	require.Nil(t, meta(t, got)["flags"])
	require.Len(t, meta(t, got)["engine_attempts"], 2)
	c, _ := meta(t, got)["continuity"].(map[string]any)
	require.Equal(t, "refused", c["why"])
	require.Equal(t, false, c["spliced"])
	require.False(t, slices.ContainsFunc(r.store.all(), func(one *trace.Trace) bool { return one.TraceID == got.TraceID+"-again" }))
}

// Ids that lack some are no history: the thread's next call goes on from nothing, and
// lacks nothing itself.
func TestIncompleteIsNotRemembered(t *testing.T) {
	t.Parallel()
	for lacking := range 3 {
		n := 0
		l := &lettered{play: func(_ *engine.Call, a *letters) {
			a.told.Incomplete = n == lacking
			n++
		}}
		r := newFakeRig(t, l, exactly)
		converse(t, r, 4)
		for i, got := range r.store.wait(t, 4) {
			require.Equal(t, i == lacking, got.IDsIncomplete, "call %d", i)
			c, _ := meta(t, got)["continuity"].(map[string]any)
			from := i - 1
			if from == lacking {
				from-- // as if that call had not been
			}
			want := any(nil)
			if from >= 0 {
				want = r.store.all()[from].TraceID
			}
			require.Equal(t, want, c["from"], "call %d of those of which %d lacks ids: %v", i, lacking, c)
		}
	}
}
