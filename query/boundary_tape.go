package query

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"icecore/store"
	"icecore/trace"
)

// compareTape compares the ids as assembled here with those that reading gives,
// and the prompt with its hash.
func (i *inspection) compareTape(ctx context.Context) {
	tape, t := &i.answer.Stations.Tape, &i.answer.Stations.Trace
	if !tape.Present {
		return
	}
	if t.Present {
		for _, side := range []struct {
			name, sequence string
			want, have     []int32
		}{{"tape.prompt_ids", "prompt", t.prompt, tape.prompt}, {"tape.ids", "response", t.response, tape.response}} {
			if side.want != nil || side.have != nil {
				i.note(idPair(side.sequence, "the trace", "the tape", side.want, side.have).compare(side.name, i.around))
			}
		}
	}
	if tape.prompt == nil {
		return
	}
	is := sha256.Sum256(trace.Bytes(tape.prompt))
	c := check{Name: "tape.prompt_hash", OK: bytes.Equal(is[:], i.place.PromptHash), Sequence: "prompt",
		Detail: "the prompt hashes to what was stored with it"}
	if !c.OK {
		c.Kind, c.Expected, c.Got = hashDiffers, hex.EncodeToString(i.place.PromptHash), hex.EncodeToString(is[:])
		c.Detail = "the prompt is not the one that was stored: its hash differs"
		i.locate(ctx, &c)
	}
	i.note(c)
}

// locate narrows down where a prompt differs from the one that was hashed. The
// other prompts of the rollout were hashed, too: the longest whose hash the same
// ids still give ends before the difference.
func (i *inspection) locate(ctx context.Context, c *check) {
	ids := i.answer.Stations.Tape.prompt
	prompts, err := i.a.s.HashedPrompts(ctx, i.place.RolloutKey)
	if err != nil {
		return // what is known without it was said
	}
	from := intact(ids, prompts)
	to := len(ids)
	calls, err := i.a.s.LoadCalls(ctx, []int64{i.place.RolloutKey}, i.place.Batch)
	if err == nil {
		for n := range calls[0].Calls {
			p := calls[0].Calls[n].Prompt.Flat()
			if from < len(p) && len(p) < to && slices.Equal(p, ids[:len(p)]) {
				to = len(p) // the same ids, of which no hash held
			}
		}
	}
	c.Position = &from
	c.Detail += fmt.Sprintf("; the first id that differs is in [%d, %d), as the hashes of other prompts tell", from, to)
}

// intact is the length of the longest prompt whose stored hash the ids give.
func intact(ids []int32, prompts []store.HashedPrompt) (n int) {
	h := sha256.New()
	at := 0
	for _, p := range prompts { // by length
		if p.Length > len(ids) {
			break
		}
		h.Write(trace.Bytes(ids[at:p.Length]))
		at = p.Length
		if bytes.Equal(h.Sum(nil), p.Hash) {
			n = p.Length
		}
	}
	return n
}
