package delivery

import (
	"net/http"
	"strconv"
	"strings"
)

// facts says of a lease, and of the part of it that a stream carries, what is
// known before the first byte, by name. It stands in the schema's metadata and in
// the headers.
func (h *held) facts(shard *int64) map[string]string {
	p, s := h.plan, h.plan.Settings
	m := map[string]string{
		"lease_id": h.ID, "key": h.Key, "consumer": h.Consumer, "shards": strconv.Itoa(p.Shards), "shard": optional(shard),
		"schema_version": p.Schema, "merge_policy": p.Policy, "estimator": s.Estimator, "sigma": s.Sigma, "epsilon": "",
		"row_weight": s.RowWeight, "policy_version_now": optional(s.PolicyVersionNow), "microbatches": strconv.Itoa(p.Microbatches),
		"cut_by": p.CutBy,
	}
	if s.Epsilon != nil {
		m["epsilon"] = strconv.FormatFloat(*s.Epsilon, 'g', -1, 64)
	}
	sizes := p.sizes(func(row *planRow) bool { return shard == nil || int64(row.Shard) == *shard })
	whole := p.whole()
	zero := p.sizes(func(row *planRow) bool { return p.Groups[p.Rollouts[row.Rollout].Group].Zero })
	for name, n := range map[string]int64{
		"rows": sizes.rows, "groups": sizes.groups, "rollouts": sizes.rollouts, "tokens": sizes.tokens,
		"trained_tokens": sizes.trained, "max_row_tokens": sizes.longest,
		"lease_rows": whole.rows, "lease_groups": whole.groups, "lease_rollouts": whole.rollouts, "lease_tokens": whole.tokens,
		"lease_trained_tokens": whole.trained, "zero_advantage_groups": zero.groups, "zero_advantage_tokens": zero.trained,
		"newer_than_learner": int64(p.Newer), "beyond_declared": int64(p.Left.BeyondDeclared),
		"excluded_failed": int64(p.Left.ExcludedFailed), "excluded_incomplete": int64(p.Left.ExcludedIncomplete),
		"scored_failed": int64(p.Left.ScoredFailed), "unfinished": int64(p.Left.Unfinished), "unscored": int64(p.Left.Unscored),
		"repeated": int64(p.Left.Repeated), "unprompted_rows": int64(p.Left.UnpromptedRows),
	} {
		m[name] = strconv.FormatInt(n, 10)
	}
	for name, n := range p.Skipped.facts() {
		m[name] = n
	}
	return m
}

func (s *skipped) facts() map[string]string {
	m := map[string]string{}
	for name, n := range map[string]int64{
		skipStale: int64(s.Stale), skipVersionUnknown: int64(s.VersionUnknown), skipZeroAdvantage: int64(s.ZeroAdvantage),
		"zero_advantage_rollouts": int64(s.ZeroAdvantageRollouts), "zero_advantage_tokens": s.ZeroAdvantageTokens,
		skipOversized: int64(s.Oversized), skipFailed: int64(s.Failed), skipEmpty: int64(s.Empty), skipUnscorable: int64(s.Unscorable),
	} {
		m["skipped_"+name] = strconv.FormatInt(n, 10)
	}
	return m
}

// emptied says why nothing is left of groups that were skipped because of that.
func (s *skipped) emptied() map[string]string {
	return map[string]string{"excluded_failed": strconv.Itoa(s.Emptied.ExcludedFailed),
		"excluded_incomplete": strconv.Itoa(s.Emptied.ExcludedIncomplete), "unprompted_rows": strconv.Itoa(s.Emptied.UnpromptedRows)}
}

func (w *waiting) facts() map[string]string {
	m := map[string]string{}
	for name, n := range map[string]int{"not_finished": w.NotFinished, "missing": w.Missing, "not_rewarded": w.NotRewarded, "quiet": w.Quiet,
		"leased": w.Leased, "filtered": w.Filtered, "too_few": w.TooFew} {
		m["waiting_"+name] = strconv.Itoa(n)
	}
	return m
}

// size counts rows, what they are of, and their tokens.
type size struct{ rows, groups, rollouts, tokens, trained, longest int64 }

func (p *plan) sizes(of func(*planRow) bool) (s size) {
	rollout, group := -1, -1 // rows stand by group and rollout
	for i := range p.Rows {
		row := &p.Rows[i]
		if !of(row) {
			continue
		}
		s.rows++
		s.tokens += int64(row.Length)
		s.trained += int64(row.Trained)
		s.longest = max(s.longest, int64(row.Length))
		if row.Rollout != rollout {
			rollout = row.Rollout
			s.rollouts++
		}
		if g := p.Rollouts[rollout].Group; g != group {
			group = g
			s.groups++
		}
	}
	return s
}

// whole is the size of everything that is leased.
func (p *plan) whole() size { return p.sizes(func(*planRow) bool { return true }) }

func optional(v *int64) string {
	if v == nil {
		return ""
	}
	return strconv.FormatInt(*v, 10)
}

// setHeaders says facts in headers.
func setHeaders(h http.Header, facts map[string]string) {
	for name, value := range facts {
		h.Set("Icecore-"+strings.ReplaceAll(name, "_", "-"), headerText(value))
	}
}

// headerText makes an id fit for a header: bytes that are not ASCII, percent signs
// and spaces at the ends are percent-encoded.
func headerText(s string) string {
	var out strings.Builder
	for i := range len(s) {
		c := s[i]
		if c >= 0x7f || c == '%' || c == ' ' && (i == 0 || i == len(s)-1) {
			out.WriteString("%" + strings.ToUpper(strconv.FormatInt(int64(c)|0x100, 16)[1:]))
			continue
		}
		out.WriteByte(c)
	}
	return out.String()
}
