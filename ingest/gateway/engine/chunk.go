package engine

import (
	"bytes"

	"icecore/ingest/gateway/turn"
)

// chunk is one event of a stream, or a whole answer: both have the same members, but
// for delta and message. It is used again for the next event, so nothing in it outlives
// that, except strings.
type chunk struct {
	id      string
	choices []choice
	usage   usage
	// prompt stands at the top in vLLM.
	prompt    []int32
	hasPrompt bool
	// SGLang's extension: the prompt's ids, and those of each choice.
	hasSglext bool
	input     []int32
	hasInput  bool
	output    [][]int32
	// Versions of the weights.
	weight string
	spans  []versionSpan
	fault  *engineFault
	old    engineFault
	hasAny bool

	scan scan
}

type choice struct {
	index                    int
	reasoning, text, refusal string
	calls                    []turn.CallDelta
	finish, why              string
	stop                     string
	stopText                 bool

	ids                  []int32
	hasIDs               bool
	prompt               []int32
	hasPrompt            bool
	logprobs             []position
	hasLogprobs          bool
	rawLogprobs          []byte // of the event itself
	meta                 []position
	hasMeta              bool
	weight               string
	spans                []versionSpan
	promptN, completionN *int64
}

// versionSpan is a version of the weights for the positions [start, end).
type versionSpan struct {
	version    string
	start, end int64
}

type usage struct {
	has   bool
	usage turn.Usage
	raw   []byte
}

// mark is the byte order mark with which some servers begin.
var mark = []byte("\xef\xbb\xbf")

// decode reads one JSON text. What is there and not understood is passed over.
func (c *chunk) decode(data []byte) error {
	c.reset()
	s := &c.scan
	s.b, s.i, s.err = bytes.TrimPrefix(data, mark), 0, nil
	if s.peek() != '{' {
		return errJSON
	}
	s.open('{')
	old, isOld := &c.old, false // an error without a member of that name
	*old = engineFault{}
	for key, ok := s.member(); ok; key, ok = s.member() {
		switch string(key) {
		case "id":
			if c.id == "" {
				c.id = s.str()
			} else {
				s.skip()
			}
		case "choices":
			c.hasAny = true
			c.readChoices()
		case "usage":
			c.usage.read(s)
		case "prompt_token_ids":
			c.prompt, c.hasPrompt = s.ids(c.prompt)
		case "sglext":
			c.readSglext()
		case "input_ids", "output_ids": // framed: the extension is the whole event
			c.sglextMember(string(key))
		case "metadata":
			c.weight, c.spans = readWeights(s, c.weight, c.spans)
		case "error":
			c.fault = readFault(s)
		case "object":
			isOld = string(s.text()) == "error"
		case "message":
			old.message = s.str()
		case "type":
			old.kind = s.str()
		case "code":
			old.code(s)
		default:
			s.skip()
		}
	}
	if s.err == nil && s.peek() != 0 {
		s.fail()
	}
	if c.fault == nil && (isOld || !c.hasAny && !c.hasSglext && old.message != "") {
		c.fault = old
	}
	return s.err
}

func (c *chunk) reset() {
	c.choices = c.choices[:0]
	c.usage.has = false
	c.prompt, c.hasPrompt = c.prompt[:0], false
	c.input, c.hasInput = c.input[:0], false
	c.output, c.hasSglext = c.output[:0], false
	c.weight, c.spans = "", nil
	c.fault, c.hasAny = nil, false
}

// next gives an empty choice, with the room of one that was used before.
func (c *chunk) next() *choice {
	if n := len(c.choices); n < cap(c.choices) {
		c.choices = c.choices[:n+1]
		at := &c.choices[n]
		*at = choice{ids: at.ids[:0], prompt: at.prompt[:0], logprobs: at.logprobs[:0], meta: at.meta[:0]}
		return at
	}
	c.choices = append(c.choices, choice{})
	return &c.choices[len(c.choices)-1]
}

func (c *chunk) readChoices() {
	s := &c.scan
	if !s.open('[') {
		return
	}
	for s.item(']') {
		at := c.next()
		at.index = len(c.choices) - 1
		if s.open('{') {
			at.read(s)
		}
	}
}

func (c *choice) read(s *scan) {
	for key, ok := s.member(); ok; key, ok = s.member() {
		switch string(key) {
		case "index":
			if v, ok := s.integer(); ok {
				c.index = int(v)
			}
		case "delta", "message":
			if s.open('{') {
				c.message(s)
			}
		case "text":
			c.text = s.str()
		case "finish_reason":
			c.finish = finishWord(s.text())
		case "stop_reason", "matched_stop":
			c.readStop(s)
		case "token_ids", "response_token_ids", "output_token_ids", "tokens":
			if ids, ok := s.ids(c.ids[:0]); ok {
				c.ids, c.hasIDs = ids, true
			}
		case "prompt_token_ids":
			c.prompt, c.hasPrompt = s.ids(c.prompt)
		case "logprobs":
			c.readLogprobs(s)
		case "meta_info":
			if s.open('{') {
				c.readMeta(s)
			}
		default:
			s.skip()
		}
	}
}

// readStop reads what the engine stopped at: null, an id, or a text.
func (c *choice) readStop(s *scan) {
	switch s.peek() {
	case '"':
		c.stop, c.stopText = s.str(), true
	case 'n', 't', 'f', '{', '[':
		s.skip()
	default:
		c.stop = string(s.raw())
	}
}
