package merge

// choice is a call's part in n > 1 sampling, as far as it counts; the zero
// choice is none.
type choice struct {
	group   string
	indexed bool
	index   int64
}

// group is a choice group at one prompt: the same name at another prompt is
// another group.
type group struct {
	promptEnd int32
	name      string
}

// claims is what the calls of a group have named so far.
type claims struct {
	indexed, plain bool  // whether there is a call with, and one without, an index
	index          int64 // of the first call with one
	end            int32 // of the first call without
	real           bool  // two that differ were seen
}

// choices gives the choice of each call. A harness that stamps every call with a
// group of its own has declared nothing; its retries must be seen as retries.
func (t *Tree) choices() []choice {
	seen := map[group]*claims{}
	for i := range t.calls {
		e := &t.calls[i]
		if e.end == nowhere || e.ChoiceGroup == "" {
			continue
		}
		key := group{e.promptEnd, e.ChoiceGroup}
		if seen[key] == nil {
			seen[key] = &claims{}
		}
		seen[key].note(e)
	}
	out := make([]choice, len(t.calls))
	if len(seen) == 0 {
		return out
	}
	for i := range t.calls {
		e := &t.calls[i]
		if c := seen[group{e.promptEnd, e.ChoiceGroup}]; c == nil || !c.real {
			continue
		}
		out[i].group = e.ChoiceGroup
		if e.ChoiceIndex != nil {
			out[i].indexed, out[i].index = true, *e.ChoiceIndex
		}
	}
	return out
}

func (c *claims) note(e *entry) {
	if e.ChoiceIndex != nil {
		if !c.indexed {
			c.indexed, c.index = true, *e.ChoiceIndex
		}
		c.real = c.real || *e.ChoiceIndex != c.index
		return
	}
	if !c.plain {
		c.plain, c.end = true, e.end
	}
	c.real = c.real || e.end != c.end
}
