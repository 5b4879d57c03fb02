package verify

import (
	"database/sql"
	"slices"
)

// merged is a published merge with what it refers to at hand.
type merged struct {
	v     *run
	r     *rollout
	g     *generation
	name  string // the policy without its parameter
	end   *int32
	calls map[int64]*call
	of    map[int64]*mergedTrace
	// rowOf says in which row, of those rebuilt, a call's span is trainable.
	rowOf map[int64]int
	// inRow are the calls that stand in any row.
	inRow map[int64]bool
}

func (m *merged) fail(check string, trace int64, format string, args ...any) {
	id := ""
	if t := m.r.byKey[trace]; t != nil {
		id = t.id
	} else if trace != 0 {
		id = "key " + itoa(trace)
	}
	m.v.fail(check, m.r.name(), id, m.g.policy+": "+format, args...)
}

// merge checks one published merge.
func (v *run) merge(r *rollout, g *generation) {
	m := &merged{v: v, r: r, g: g, calls: map[int64]*call{}, of: map[int64]*mergedTrace{}, rowOf: map[int64]int{}, inRow: map[int64]bool{}}
	v.checked(checkMerges, 1)
	var known bool
	if m.name, m.end, known = policyOf(g.policy); !known {
		m.fail(checkMerges, 0, "is no policy")
		return
	}
	for _, t := range r.traces {
		if t.batch <= g.through {
			m.calls[t.key] = t.call()
		}
	}
	m.coverage()
	m.numbers()
	if r.damaged {
		return // ids are missing, which was told; what follows from them would only repeat it
	}
	for i := range g.trajs {
		m.row(&g.trajs[i])
	}
	m.conserved()
	m.law()
}

func (t *traceRow) call() *call {
	c := &call{key: t.key, id: t.id, seq: ptr(t.seq), tape: t.tape, p: t.prompt(), r: t.response(),
		known: t.promptLength.Valid && t.responseLength.Valid, incomplete: t.incomplete, ok: t.status == "ok",
		finish: t.finish.String, group: t.choiceGroup.String, index: ptr(t.choiceIndex)}
	return c
}

// coverage: exactly the traces of the batches merged have a row each.
func (m *merged) coverage() {
	g := m.g
	for i := range g.rows {
		t := &g.rows[i]
		switch {
		case m.of[t.key] != nil:
			m.fail(checkMerges, t.key, "has more than one row in merged_traces")
			continue
		case m.r.byKey[t.key] == nil:
			m.fail(checkMerges, t.key, "is merged, but is no trace of the rollout")
			continue
		case m.calls[t.key] == nil:
			m.fail(checkMerges, t.key, "is merged, though it came after batch %d, through which was merged", g.through)
			continue
		}
		m.of[t.key] = t
		m.references(t)
	}
	for _, key := range sortedKeys(m.calls) {
		if m.of[key] == nil {
			m.fail(checkMerges, key, "is not among the merged traces")
		}
	}
}

func (m *merged) references(t *mergedTrace) {
	for _, ref := range []struct {
		name string
		key  sql.NullInt64
	}{{"previous_key", t.previous}, {"nearest_key", t.nearest}} {
		if ref.key.Valid && m.calls[ref.key.Int64] == nil {
			m.fail(checkMerges, t.key, "%s is %d, which is no merged trace of the rollout", ref.name, ref.key.Int64)
		}
	}
	if t.row.Valid != t.spanStart.Valid {
		m.fail(checkMerges, t.key, "row_index and span_start must be known together")
	}
	if t.row.Valid && (t.row.Int64 < 0 || t.row.Int64 >= int64(len(m.g.trajs))) {
		m.fail(checkMerges, t.key, "is trainable in row %d of %d", t.row.Int64, len(m.g.trajs))
	}
	if t.boundary.Valid != t.shared.Valid {
		m.fail(checkMerges, t.key, "boundary and shared must be known together")
	}
}

// numbers: what the generation counts, and the names of its rows.
func (m *merged) numbers() {
	g := m.g
	if g.traces != len(g.rows) {
		m.fail(checkMerges, 0, "counts %d traces, and has %d", g.traces, len(g.rows))
	}
	if g.trajectories != len(g.trajs) {
		m.fail(checkMerges, 0, "counts %d trajectories, and has %d", g.trajectories, len(g.trajs))
	}
	seen := map[string]bool{}
	for i := range g.trajs {
		t := &g.trajs[i]
		if t.index != i {
			m.fail(checkMerges, 0, "its rows are not numbered from 0 upwards: row %d is the %dth", t.index, i)
			return
		}
		if seen[t.id] {
			m.fail(checkMerges, 0, "trajectory_id %s names two rows", t.id)
		}
		seen[t.id] = true
		if t.rewritten && m.name != "polar_compat" {
			m.fail(checkMerges, 0, "row %d says that its history is rewritten", i)
		}
		namer := m.r.byKey[t.naming]
		if namer == nil {
			m.fail(checkMerges, 0, "row %d is named by trace_key %d, which the rollout does not have", i, t.naming)
		} else if want := trajectoryID(namer.rolloutID, g.policy, namer.id); t.id != want {
			m.fail(checkMerges, t.naming, "row %d, named by this trace, is %s, where its name gives %s", i, t.id, want)
		}
	}
}

// row rebuilds one row from its last call backwards and checks its spans.
func (m *merged) row(t *trajectory) {
	var path []*mergedTrace
	seen := map[int64]bool{}
	for key := t.last; ; {
		p := m.of[key]
		if p == nil || seen[key] {
			m.fail(checkMerges, 0, "row %d cannot be rebuilt: trace_key %d on its way back is missing, or comes twice", t.index, key)
			return
		}
		seen[key] = true
		path = append(path, p)
		if !p.previous.Valid {
			break
		}
		key = p.previous.Int64
	}
	slices.Reverse(path)
	if first, last := path[0].key, t.last; m.name == "polar_compat" && t.naming != first || m.name != "polar_compat" && t.naming != last {
		m.fail(checkMerges, t.naming, "row %d is named by a call that does not name it", t.index)
	}
	w := walker{merged: m, t: t}
	for _, p := range path {
		m.inRow[p.key] = true
		w.step(p)
	}
	m.v.checked(checkMerges, 1)
	if w.length != t.length {
		m.fail(checkMerges, 0, "row %d has length %d, its calls make %d", t.index, t.length, w.length)
	}
	if w.trained != t.trained {
		m.fail(checkConserved, 0, "row %d counts %d trained tokens, its trainable spans have %d", t.index, t.trained, w.trained)
	}
	if w.lo != t.versionMin || w.hi != t.versionMax {
		m.fail(checkMerges, 0, "row %d is of policy versions %s to %s, its spans of %s to %s", t.index,
			number(t.versionMin), number(t.versionMax), number(w.lo), number(w.hi))
	}
}

// number writes a number that may be unknown.
func number(n sql.NullInt64) string {
	if !n.Valid {
		return "unknown"
	}
	return itoa(n.Int64)
}

// walker rebuilds a row from its beginning.
type walker struct {
	*merged
	t       *trajectory
	length  int
	hash    uint64 // of the row so far
	trained int64
	lo, hi  sql.NullInt64
}

// append adds ids of a call to the row.
func (w *walker) append(c *call, from, to int) {
	if to > from {
		w.hash = add(mul(w.hash, power(to-from)), c.tape.hashRange(from, to))
		w.length += to - from
	}
}

func (w *walker) step(p *mergedTrace) {
	c := w.calls[p.key]
	if p.cut < 0 || p.cut > c.p {
		w.merged.fail(checkFaithful, p.key, "row %d: its share begins at %d, where its prompt has %d ids", w.t.index, p.cut, c.p)
		return
	}
	w.append(c, p.cut, c.p)
	if !p.row.Valid {
		if c.r > 0 {
			w.merged.fail(checkFaithful, p.key, "row %d holds its response, but no span", w.t.index)
		}
		w.append(c, c.p, c.length())
		return
	}
	w.v.checked(checkFaithful, 1)
	whole := w.name != "polar_compat" || !w.t.rewritten
	if p.spanStart.Int64 != int64(w.length) {
		w.merged.fail(checkFaithful, p.key, "row %d: its span starts at %d, its response lies at %d", w.t.index, p.spanStart.Int64, w.length)
	} else if whole && (w.length != c.p || w.hash != c.tape.hash(c.p)) {
		w.merged.fail(checkFaithful, p.key, "row %d: what stands before its span at %d is not its prompt of %d ids", w.t.index, w.length, c.p)
	}
	w.append(c, c.p, c.length())
	if int(p.row.Int64) == w.t.index {
		w.trained += int64(c.r)
		w.rowOf[p.key] = w.t.index
	}
	w.versions(w.r.byKey[p.key])
}

func (w *walker) versions(t *traceRow) {
	see := func(version int64) {
		if !w.lo.Valid || version < w.lo.Int64 {
			w.lo = sql.NullInt64{Int64: version, Valid: true}
		}
		if !w.hi.Valid || version > w.hi.Int64 {
			w.hi = sql.NullInt64{Int64: version, Valid: true}
		}
	}
	for _, s := range t.spans {
		see(s.version)
	}
	if len(t.spans) == 0 && t.policyVersion.Valid {
		see(t.policyVersion.Int64)
	}
}

// conserved: each trained trace has one trainable span, no other has one, and
// the generation's sums are theirs.
func (m *merged) conserved() {
	sampled, trained := int64(0), int64(0)
	for _, key := range sortedKeys(m.calls) {
		m.v.checked(checkConserved, 1)
		c, t := m.calls[key], m.of[key]
		sampled += int64(c.r)
		if t == nil {
			continue // told by coverage
		}
		_, has := m.rowOf[key]
		switch {
		case t.disposition == "trained" && !has:
			m.fail(checkConserved, key, "is trained, but trainable in no row")
		case t.disposition != "trained" && t.row.Valid:
			m.fail(checkConserved, key, "is %s, but trainable in row %d", t.disposition, t.row.Int64)
		}
		if t.disposition == "trained" {
			trained += int64(c.r)
		}
	}
	if m.g.sampled != sampled {
		m.fail(checkConserved, 0, "counts %d sampled tokens, its traces have %d", m.g.sampled, sampled)
	}
	if m.g.trained != trained {
		m.fail(checkConserved, 0, "counts %d trained tokens, its trained traces have %d", m.g.trained, trained)
	}
	rows := int64(0)
	for _, t := range m.g.trajs {
		rows += t.trained
	}
	if rows != m.g.trained {
		m.fail(checkConserved, 0, "counts %d trained tokens, its rows %d", m.g.trained, rows)
	}
}
