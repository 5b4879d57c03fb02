package engine

import "icecore/ingest/gateway/turn"

func (c *choice) message(s *scan) {
	var legacy *turn.CallDelta
	for key, ok := s.member(); ok; key, ok = s.member() {
		switch string(key) {
		case "reasoning", "reasoning_content":
			// Some versions send both, with the same text.
			if t := s.text(); c.reasoning == "" {
				c.reasoning = string(t)
			}
		case "content":
			c.text = readContent(s)
		case "refusal":
			c.refusal = s.str()
		case "tool_calls":
			c.readCalls(s)
		case "function_call": // of before there were several
			if s.open('{') {
				legacy = &turn.CallDelta{}
				readFunction(s, legacy)
			}
		case "token_ids": // its place is the choice, but some put it here
			if ids, ok := s.ids(c.ids[:0]); ok {
				c.ids, c.hasIDs = ids, true
			}
		default:
			s.skip()
		}
	}
	// Empty it is none, and beside tool_calls it says the same once more.
	if legacy != nil && (legacy.Name != "" || legacy.Arguments != "") && len(c.calls) == 0 {
		c.calls = append(c.calls, *legacy)
	}
}

// readContent reads a text, or the text of an array of parts.
func readContent(s *scan) string {
	if s.peek() != '[' {
		return s.str()
	}
	out := ""
	s.open('[')
	for s.item(']') {
		if !s.open('{') {
			continue
		}
		for key, ok := s.member(); ok; key, ok = s.member() {
			if string(key) == "text" {
				out += s.str()
			} else {
				s.skip()
			}
		}
	}
	return out
}

func (c *choice) readCalls(s *scan) {
	if !s.open('[') {
		return
	}
	for s.item(']') {
		call := turn.CallDelta{Index: len(c.calls)}
		if !s.open('{') {
			continue
		}
		for key, ok := s.member(); ok; key, ok = s.member() {
			switch string(key) {
			case "index":
				if v, ok := s.integer(); ok {
					call.Index = int(v)
				}
			case "id":
				call.ID = s.str()
			case "function":
				if s.open('{') {
					readFunction(s, &call)
				}
			default:
				s.skip()
			}
		}
		c.calls = append(c.calls, call)
	}
}

func readFunction(s *scan, call *turn.CallDelta) {
	for key, ok := s.member(); ok; key, ok = s.member() {
		switch string(key) {
		case "name":
			call.Name = s.str()
		case "arguments":
			switch s.peek() {
			case '{', '[': // an object, where others write its text
				call.Arguments = string(s.raw())
			default:
				call.Arguments = s.str()
			}
		default:
			s.skip()
		}
	}
}
