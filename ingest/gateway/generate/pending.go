package generate

// pending are the calls of a history, so that responses find theirs. A body may hold
// very many of both.
type pending struct {
	ids      []string
	answered []bool
	byID     map[string]int
	// now and old are calls that may not be answered yet, by name: those of the last
	// turn that called, and those before.
	now, old map[string][]int
}

func newPending() pending {
	return pending{byID: map[string]int{}, now: map[string][]int{}, old: map[string][]int{}}
}

// turn says that calls which come from here on are of another turn.
func (p *pending) turn() {
	for name, places := range p.now {
		p.old[name] = append(p.old[name], places...)
	}
	clear(p.now)
}

// add takes a call. Where an id comes again, the latest counts.
func (p *pending) add(id, name string) {
	at := len(p.ids)
	p.ids, p.answered = append(p.ids, id), append(p.answered, false)
	p.byID[id] = at
	p.now[name] = append(p.now[name], at)
}

// answer finds the call that a response is of and gives its place; one past the last:
// there is none. An older call may never have been answered, so by their names those of
// the last turn come first.
func (p *pending) answer(id, name string) int {
	if at, ok := p.byID[id]; ok && id != "" {
		p.answered[at] = true
		return at
	}
	for _, waiting := range []map[string][]int{p.now, p.old} {
		for places := waiting[name]; len(places) > 0; {
			at := places[0]
			places = places[1:]
			waiting[name] = places
			if !p.answered[at] {
				p.answered[at] = true
				return at
			}
		}
	}
	return len(p.ids)
}
