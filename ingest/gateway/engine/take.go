package engine

import (
	"net/http"
	"slices"
	"time"

	"icecore/ingest/gateway/parser"
	"icecore/ingest/gateway/turn"
)

const (
	finishAbort = "abort"
	finishError = "error"
)

// heard is what came of one choice.
type heard struct {
	ids      []int32 // token_ids
	hasIDs   bool
	output   []int32 // of sglext; nil: none
	logprobs []position
	hasLogs  bool
	meta     []position
	hasMeta  bool

	said bool // text, thinking, or a call
	// named: the calls that were heard, by index, and whether they have a name.
	named  map[int]bool
	finish string
	odd    string // the engine's own word, where it is none of ours
	why    string
	stop   string
	// stopText: stop is a text that the harness or the model's options gave.
	stopText bool
	weight   string
	spans    []versionSpan

	promptN, completionN *int64
	parser               *parser.Parser
}

// choice gives the state of choice i; nil: none was asked for.
func (s *Stream) choice(i int) *heard {
	if i < 0 || i >= s.asked {
		s.flag(flagChoiceUnknown)
		return nil
	}
	for len(s.choices) <= i {
		s.choices = append(s.choices, &heard{})
	}
	return s.choices[i]
}

// take takes over what the chunk holds.
func (s *Stream) take() Piece {
	var piece Piece
	c := &s.chunk
	if c.hasPrompt {
		s.setPrompt(&c.prompt)
	}
	if c.hasInput {
		s.setPrompt(&c.input)
	}
	for i := range c.choices {
		if h := s.choice(c.choices[i].index); h != nil {
			s.takeChoice(h, &c.choices[i], &piece)
		}
	}
	for i, ids := range c.output {
		if h := s.choice(i); h != nil && ids != nil {
			h.output = ids
		}
	}
	if c.weight != "" || c.spans != nil {
		s.weights(c.weight, c.spans)
	}
	if c.usage.has {
		s.usage.has = true
		s.usage.raw = append(s.usage.raw[:0], c.usage.raw...)
		s.usage.parse()
		s.usage.usage.Raw = s.engine.redact(s.usage.usage.Raw, minSecret)
	}
	if !s.toldCount {
		piece.PromptTokens = s.promptTokens()
		s.toldCount = piece.PromptTokens != nil
	}
	return piece
}

func (s *Stream) promptTokens() *int64 {
	if s.hasPrompt {
		n := int64(len(s.prompt))
		return &n
	}
	return s.usage.usage.Prompt
}

// setPrompt takes the prompt's ids, and the chunk keeps none: they are long, and a stream
// may stay open for long. They come once for each choice, and are the same.
func (s *Stream) setPrompt(of *[]int32) {
	ids := *of
	*of = nil
	if s.hasPrompt {
		if !slices.Equal(s.prompt, ids) {
			s.flag(flagPromptsDisagree)
		}
		return
	}
	if ids == nil {
		ids = []int32{} // told, and there are none
	}
	s.prompt, s.hasPrompt = ids, true
}

func (s *Stream) takeChoice(h *heard, c *choice, piece *Piece) {
	if c.hasPrompt {
		s.setPrompt(&c.prompt)
	}
	if c.hasIDs {
		h.ids, h.hasIDs = append(h.ids, c.ids...), true
	}
	if c.hasLogprobs {
		h.logprobs, h.hasLogs = append(h.logprobs, c.logprobs...), true
	}
	if c.hasMeta {
		h.meta, h.hasMeta = append(h.meta[:0], c.meta...), true
	}
	if c.weight != "" {
		h.weight = c.weight
	}
	if c.spans != nil {
		h.spans = c.spans
	}
	if c.promptN != nil {
		h.promptN = c.promptN
	}
	if c.completionN != nil {
		h.completionN = c.completionN
	}
	if c.stop != "" {
		h.stop, h.stopText = c.stop, c.stopText
	}
	if c.why != "" {
		h.why = c.why
	}
	s.say(h, c, piece)
	if s.first.IsZero() && (len(c.ids) > 0 || h.said) {
		s.first = time.Now()
	}
	if c.finish != "" && h.finish == "" {
		s.finish(h, c, piece)
	}
}

// say makes deltas.
func (s *Stream) say(h *heard, c *choice, piece *Piece) {
	if s.plan.tokenIn {
		if c.text != "" {
			h.said = true
			piece.Deltas = append(piece.Deltas, h.heed(s.parser(h, c.index).Add(c.text))...)
		}
		return
	}
	d := turn.Delta{Choice: c.index, Reasoning: c.reasoning, Text: c.text, Refusal: c.refusal, Calls: c.calls}
	if s.call.Request.Logprobs && c.hasLogprobs && len(c.logprobs) > 0 {
		d.Logprobs = repair(c.rawLogprobs)
	}
	if d.Empty() {
		return
	}
	h.said = true
	h.heedCalls(d.Calls)
	piece.Deltas = append(piece.Deltas, d)
}

// heed notes the calls that are told.
func (h *heard) heed(deltas []turn.Delta) []turn.Delta {
	for i := range deltas {
		h.heedCalls(deltas[i].Calls)
	}
	return deltas
}

func (h *heard) heedCalls(calls []turn.CallDelta) {
	for i := range calls {
		if call := &calls[i]; call.ID != "" || call.Name != "" || call.Arguments != "" {
			if h.named == nil {
				h.named = map[int]bool{}
			}
			h.named[call.Index] = h.named[call.Index] || call.Name != ""
		}
	}
}

// finish takes a choice's reason to end.
func (s *Stream) finish(h *heard, c *choice, piece *Piece) {
	h.finish = c.finish
	if h.finish[0] == '"' { // a word of the engine's own
		h.odd, h.finish = h.finish[1:len(h.finish)-1], turn.FinishStop
	}
	end := turn.End{Choice: c.index, Finish: h.finish}
	if s.plan.tokenIn {
		deltas, finish := s.parser(h, c.index).End(h.finish)
		piece.Deltas = append(piece.Deltas, h.heed(deltas)...)
		h.finish, end.Finish = finish, finish
	}
	if h.finish == turn.FinishToolCalls && h.named == nil {
		// There is none to run: a harness that was told so would wait for itself.
		end.Finish = turn.FinishStop
	}
	if h.finish == finishAbort || h.finish == finishError {
		return
	}
	if c.stopText {
		end.StopSequence = c.stop
	}
	piece.Ends = append(piece.Ends, end)
}

// parser gives the choice's parser, whose names were checked by TokenIn.
func (s *Stream) parser(h *heard, index int) *parser.Parser {
	if h.parser == nil {
		tools := s.call.ToolParser
		if len(s.call.Request.Tools) == 0 || s.call.Request.Choice.Mode == "none" {
			tools = parser.None
		}
		seed := s.id()
		if index < len(s.call.TraceIDs) {
			seed = s.call.TraceIDs[index]
		}
		o := parser.Options{Reasoning: s.call.ReasoningParser, Inside: s.inside, Tools: tools,
			Defs: s.call.Request.Tools, Seed: seed, Choice: index}
		p, err := parser.New(o)
		if err != nil {
			s.flag(flagParserUnknown)
			p, _ = parser.New(parser.Options{Seed: seed, Choice: index})
		}
		h.parser = p
	}
	return h.parser
}

// checkParsers makes a fault of names that no parser has.
func checkParsers(c *Call) error {
	if err := parser.Check(c.ReasoningParser, c.ToolParser); err != nil {
		return &turn.Fault{Status: http.StatusInternalServerError, Code: turn.CodeEngineError,
			Message: "the model's parsers are configured wrongly: " + err.Error(), Cause: err}
	}
	return nil
}
