package engine

// readMeta reads SGLang's meta_info, which is about one choice.
func (c *choice) readMeta(s *scan) {
	for key, ok := s.member(); ok; key, ok = s.member() {
		switch string(key) {
		case "output_token_logprobs":
			if !s.open('[') {
				continue
			}
			c.hasMeta = true
			for s.item(']') {
				c.meta = append(c.meta, readTriple(s))
			}
		case "prompt_tokens":
			c.promptN = readCount(s)
		case "completion_tokens":
			c.completionN = readCount(s)
		case "weight_version":
			c.weight = readVersion(s)
		case "weight_versions":
			c.spans = readSpans(s)
		case "finish_reason":
			c.readMetaFinish(s)
		default:
			s.skip()
		}
	}
}

// readTriple reads [logprob, id, text].
func readTriple(s *scan) position {
	p := position{id: -1}
	if !s.open('[') {
		return p
	}
	for n := 0; s.item(']'); n++ {
		switch n {
		case 0:
			p.value, p.known = s.number()
		case 1:
			if v, ok := s.id(); ok {
				p.id = v
			}
		default:
			s.skip()
		}
	}
	return p
}

func (c *choice) readMetaFinish(s *scan) {
	if s.peek() == '"' {
		if f := finishWord(s.text()); c.finish == "" {
			c.finish = f
		}
		return
	}
	if !s.open('{') {
		return
	}
	for key, ok := s.member(); ok; key, ok = s.member() {
		switch string(key) {
		case "type":
			// meta_info does not know of tool calls, so the choice's own word wins.
			if f := finishWord(s.text()); c.finish == "" {
				c.finish = f
			}
		case "matched":
			c.readStop(s)
		case "message":
			c.why = s.str()
		default:
			s.skip()
		}
	}
}

func (c *chunk) readSglext() {
	s := &c.scan
	if !s.open('{') {
		return
	}
	for key, ok := s.member(); ok; key, ok = s.member() {
		c.sglextMember(string(key))
	}
}

func (c *chunk) sglextMember(key string) {
	s := &c.scan
	switch key {
	case "input_ids":
		if c.input, c.hasInput = s.ids(c.input[:0]); c.hasInput {
			c.hasSglext = true
		}
	case "output_ids":
		if !s.open('[') {
			return
		}
		c.hasSglext = true
		for s.item(']') {
			ids, ok := s.ids([]int32{})
			if !ok {
				ids = nil
			}
			c.output = append(c.output, ids)
		}
	default:
		s.skip()
	}
}

// readVersion reads a version: a text, or a number as its digits.
func readVersion(s *scan) string {
	switch s.peek() {
	case '"':
		return clip(s.str(), maxWord)
	case 'n', '{', '[', 't', 'f':
		s.skip()
		return ""
	}
	return clip(string(s.raw()), maxWord)
}

func readWeights(s *scan, version string, spans []versionSpan) (string, []versionSpan) {
	if !s.open('{') {
		return version, spans
	}
	for key, ok := s.member(); ok; key, ok = s.member() {
		switch string(key) {
		case "weight_version":
			version = readVersion(s)
		case "weight_versions":
			spans = readSpans(s)
		default:
			s.skip()
		}
	}
	return version, spans
}

func readSpans(s *scan) []versionSpan {
	if !s.open('[') {
		return nil
	}
	spans := []versionSpan{}
	for s.item(']') {
		var at versionSpan
		if !s.open('{') {
			continue
		}
		for key, ok := s.member(); ok; key, ok = s.member() {
			switch string(key) {
			case "version", "weight_version":
				at.version = readVersion(s)
			case "start":
				at.start, _ = s.integer()
			case "end":
				at.end, _ = s.integer()
			default:
				s.skip()
			}
		}
		spans = append(spans, at)
	}
	return spans
}
