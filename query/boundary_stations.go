package query

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"slices"

	"icecore/query/enginebody"
	"icecore/store"
)

// tape puts the trace's ids together from the rows of tapes and chunks, by
// itself: what reading and delivery use is another station.
func (i *inspection) tape(ctx context.Context) (err error) {
	s := &i.answer.Stations.Tape
	if i.place, err = i.a.s.Place(ctx, i.answer.TraceID); err != nil {
		return err
	}
	p := i.place
	i.answer.RolloutID = p.RolloutID
	s.Present, s.TapeKey, s.Pieces = true, p.TapeKey, []tapePiece{}
	prompt, response := 0, 0
	if p.PromptLength != nil {
		prompt = *p.PromptLength
	}
	if p.ResponseLength != nil {
		response = *p.ResponseLength
	}
	ids, pieces, err := assemble(p, prompt+response)
	if err != nil {
		return err
	}
	if s.Pieces = append(s.Pieces, pieces...); p.PromptLength == nil && p.ResponseLength == nil {
		s.Note = "the trace came without token ids"
	}
	var known [2][]int32
	if p.PromptLength != nil {
		known[0] = ids[:prompt:prompt]
	}
	if p.ResponseLength != nil {
		known[1] = ids[prompt:]
	}
	s.hold(known[0], known[1], nil)
	return nil
}

// assemble gives the first n ids of a place's tape, and on which tapes they lie.
func assemble(p *store.TracePlace, n int) (ids []int32, pieces []tapePiece, err error) {
	ids = make([]int32, n)
	end := n
	for key, seen := p.TapeKey, map[int64]bool{}; end > 0; {
		t := p.Tapes[key]
		if t == nil || seen[key] {
			return nil, nil, fmt.Errorf("assemble tape %d: tape %d, which holds the ids before position %d, is missing", p.TapeKey, key, end)
		}
		seen[key] = true
		if t.Fork < end {
			if err := ownIDs(ids[:end], t, key); err != nil {
				return nil, nil, err
			}
			pieces = append(pieces, tapePiece{key, t.Fork, end})
			end = t.Fork
		}
		key = t.Parent
	}
	slices.Reverse(pieces)
	return ids, pieces, nil
}

// ownIDs fills into[t.Fork:] from the chunks of a tape, which must follow each
// other without gap and overlap.
func ownIDs(into []int32, t *store.TapeRow, key int64) error {
	at := t.Fork
	for _, c := range t.Chunks {
		if at >= len(into) {
			break
		}
		if c.Start != at {
			return fmt.Errorf("assemble tape %d: a chunk begins at position %d where the one before ends at %d", key, c.Start, at)
		}
		at += copy(into[at:], c.IDs)
	}
	if at < len(into) {
		return fmt.Errorf("assemble tape %d: its chunks end at position %d, but the trace needs %d", key, at, len(into))
	}
	return nil
}

// stored is the trace as GET /v1/traces/{trace_id} gives it.
func (i *inspection) stored(ctx context.Context) (err error) {
	s := &i.answer.Stations.Trace
	if i.trace, err = i.a.s.Trace(ctx, i.answer.TraceID, false); err != nil {
		return err
	}
	t := i.trace
	i.answer.Attributes = &boundaryAttribute{Seq: t.Seq, Harness: t.Attributes.Harness, Model: t.Attributes.Model, API: t.API,
		Kind: string(t.Kind), Status: string(t.Status), FinishReason: t.FinishReason, PolicyVersion: t.PolicyVersion,
		IDsIncomplete: t.IDsIncomplete, ChoiceIndex: t.ChoiceIndex}
	s.Present = true
	s.hold(t.PromptIDs.Flat(), t.ResponseIDs, t.ResponseLogprobs)
	s.PromptHash = nil
	if t.PromptHash != nil {
		hash := hex.EncodeToString(t.PromptHash)
		s.PromptHash = &hash
	}
	if i.place != nil {
		s.ContentHash = hex.EncodeToString(i.place.Acknowledged)
	}
	if t.PromptIDs == nil && t.ResponseIDs == nil {
		s.Note = "the trace came without token ids"
	}
	return nil
}

// body is what the engine answered, as it was kept.
func (i *inspection) body(ctx context.Context) error {
	s := &i.answer.Stations.Body
	s.Places = []bodyPlace{}
	if i.trace == nil {
		s.Note = "the trace cannot be read"
		return nil
	}
	if !i.trace.HasRequest && !i.trace.HasAnswer {
		s.Note = "no body was kept"
		return nil
	}
	t, err := i.a.s.Trace(ctx, i.answer.TraceID, true)
	if err != nil {
		return err
	}
	i.trace.RequestBody, i.trace.ResponseBody = t.RequestBody, t.ResponseBody
	s.Present = true
	b := enginebody.ParseResponse(t.ResponseBody, t.ChoiceIndex)
	request := enginebody.ParseRequest(t.RequestBody)
	s.Streamed, s.Events = b.Streamed, b.Events
	if b.Usage.Source != "" {
		s.Usage = &bodyUsage{b.Usage.Source, b.Usage.Prompt, b.Usage.Response}
	}
	i.finish, s.FinishReason = b.Finish, b.Finish.Reason
	i.compared = append(placed("prompt", "request.", request.Prompt), placed("prompt", "response.", b.Prompt)...)
	i.compared = append(i.compared, placed("response", "response.", b.Response)...)
	for _, r := range i.compared {
		s.Places = append(s.Places, r.place())
	}
	if t.ResponseBody != nil && len(b.Response) == 0 {
		s.Note = "the response body carries no ids of sampled tokens and no log-probs"
	} else if t.ResponseBody == nil {
		s.Note = "no response body was kept"
	}
	return nil
}

// placedRun is a run of a body with the body's side.
type placedRun struct {
	enginebody.Run
	sequence, source string
}

func placed(sequence, side string, runs []enginebody.Run) (out []placedRun) {
	for _, r := range runs {
		out = append(out, placedRun{r, sequence, side + r.Source})
	}
	return out
}

func (r *placedRun) place() bodyPlace {
	p := bodyPlace{Sequence: r.sequence, Source: r.source, IDs: lengthOf(r.IDs)}
	if r.Logprobs != nil {
		n := r.Logprobs.Len()
		p.Logprobs = &n
	}
	return p
}

// compareContent hashes the trace's content again: the hash was acknowledged.
func (i *inspection) compareContent() {
	if i.trace == nil || i.place == nil || i.trace.HasRequest && i.trace.RequestBody == nil || i.trace.HasAnswer && i.trace.ResponseBody == nil {
		return
	}
	// With the stored hash of the prompt, so that a prompt that changed is the
	// finding of one check alone.
	is := store.ContentHash(&i.trace.Trace, i.place.PromptHash)
	want := hex.EncodeToString(i.place.Acknowledged)
	ok := bytes.Equal(is, i.place.Acknowledged) && bytes.Equal(i.place.ContentHash, i.place.Acknowledged)
	detail := "response, log-probs, attributes and bodies hash to what was acknowledged"
	if !ok {
		detail = "response, log-probs, attributes or bodies are not those that were acknowledged: their hash differs"
	}
	i.agree("trace.content_hash", hashDiffers, ok, want, hex.EncodeToString(is), detail)
}
