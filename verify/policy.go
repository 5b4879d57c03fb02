package verify

// law compares a published merge with what the law makes of the same traces.
func (m *merged) law() {
	calls := make([]*call, 0, len(m.calls))
	for _, key := range sortedKeys(m.calls) {
		calls = append(calls, m.calls[key])
	}
	j := judge(calls, m.name, m.end)
	for _, c := range calls {
		if t := m.of[c.key]; t != nil {
			m.v.checked(checkPolicy, 1)
			m.compareTrace(t, j.of[c])
		}
	}
	if len(j.rows) != len(m.g.trajs) {
		m.fail(checkPolicy, 0, "has %d rows, the law makes %d", len(m.g.trajs), len(j.rows))
		return
	}
	for i, want := range j.rows {
		m.v.checked(checkPolicy, 1)
		t := &m.g.trajs[i]
		if t.naming != want.namer.key || t.last != want.last.key || t.length != want.length || t.rewritten != want.rewritten {
			m.fail(checkPolicy, want.last.key, "row %d is (named by %d, last %d, length %d, rewritten %v), the law makes (%d, %d, %d, %v)",
				i, t.naming, t.last, t.length, t.rewritten, want.namer.key, want.last.key, want.length, want.rewritten)
		}
	}
}

func (m *merged) compareTrace(t *mergedTrace, want *verdict) {
	key := func(c *call) int64 {
		if c == nil {
			return 0
		}
		return c.key
	}
	differs := func(what string, has, is any) {
		m.fail(checkPolicy, t.key, "%s is %v, by the law %v", what, has, is)
	}
	if t.disposition != want.disposition {
		differs("disposition", t.disposition, want.disposition)
	}
	if t.boundary.String != want.boundary {
		differs("boundary", t.boundary.String, want.boundary)
	} else if t.nearest.Int64 != key(want.nearest) || t.shared.Int64 != int64(want.shared) {
		differs("the nearest call, and what is shared with it,", [2]int64{t.nearest.Int64, t.shared.Int64},
			[2]int64{key(want.nearest), int64(want.shared)})
	}
	row, start := int64(-1), int64(-1)
	if t.row.Valid {
		row = t.row.Int64
	}
	if t.spanStart.Valid {
		start = t.spanStart.Int64
	}
	if row != int64(want.row) || start != int64(want.spanStart) {
		differs("the row of its span, and where it starts there,", [2]int64{row, start}, [2]int64{int64(want.row), int64(want.spanStart)})
	}
	if m.inRow[t.key] != want.inRow {
		differs("that it stands in a row", m.inRow[t.key], want.inRow)
	} else if want.inRow && (t.previous.Int64 != key(want.previous) || t.cut != want.cut) {
		differs("the call before it, and where its share begins,", [2]int64{t.previous.Int64, int64(t.cut)},
			[2]int64{key(want.previous), int64(want.cut)})
	}
}
