package delivery

// Why a ready group is settled without delivery.
const (
	skipStale          = "stale"
	skipVersionUnknown = "version_unknown"
	skipZeroAdvantage  = "zero_advantage"
	skipOversized      = "oversized"
	skipFailed         = "failed"
	skipEmpty          = "empty"
	skipUnscorable     = "unscorable"
)

// skipReasons lists them.
var skipReasons = []string{skipStale, skipVersionUnknown, skipZeroAdvantage, skipOversized, skipFailed, skipEmpty, skipUnscorable}

// skipped counts what was skipped while looking: groups, but for Rollouts and
// Tokens.
type skipped struct {
	Stale          int `json:"stale"`
	VersionUnknown int `json:"version_unknown"`
	ZeroAdvantage  int `json:"zero_advantage"`
	// Of the groups without an advantage: leaving them out changes a learner's
	// denominators.
	ZeroAdvantageRollouts int   `json:"zero_advantage_rollouts"`
	ZeroAdvantageTokens   int64 `json:"zero_advantage_tokens"`
	Oversized             int   `json:"oversized"`
	Failed                int   `json:"failed"`
	Empty                 int   `json:"empty"`
	Unscorable            int   `json:"unscorable"`
	// Emptied is what the empty groups had. It is said where nothing is delivered,
	// so a plan does not keep it.
	Emptied leftOut `json:"-"`
}

func (s *skipped) count(reason string, p *pick) {
	switch reason {
	case skipStale:
		s.Stale++
	case skipVersionUnknown:
		s.VersionUnknown++
	case skipZeroAdvantage:
		s.ZeroAdvantage++
		s.ZeroAdvantageRollouts += p.delivering()
		s.ZeroAdvantageTokens += p.trained
	case skipOversized:
		s.Oversized++
	case skipFailed:
		s.Failed++
	case skipEmpty:
		s.Empty++
		s.Emptied.add(p.left)
	case skipUnscorable:
		s.Unscorable++
	}
}

func (s *skipped) add(o skipped) {
	s.Stale += o.Stale
	s.VersionUnknown += o.VersionUnknown
	s.ZeroAdvantage += o.ZeroAdvantage
	s.ZeroAdvantageRollouts += o.ZeroAdvantageRollouts
	s.ZeroAdvantageTokens += o.ZeroAdvantageTokens
	s.Oversized += o.Oversized
	s.Failed += o.Failed
	s.Empty += o.Empty
	s.Unscorable += o.Unscorable
	s.Emptied.add(o.Emptied)
}

// skip says why a group whose rows are known is not delivered; "": it is.
func (g *gatherer) skip(p *pick) string {
	r := g.r
	least, bounded := g.leastVersion()
	switch {
	case p.rows == 0:
		return skipEmpty
	case bounded && p.oldest != nil && *p.oldest < least:
		return skipStale
	case bounded && p.unknown:
		return skipVersionUnknown
	case r.MaxRowTokens != nil && int64(p.longest) > *r.MaxRowTokens:
		return skipOversized
	case p.unscorable:
		return skipUnscorable
	case r.SkipZeroAdvantage && p.outcome.Zero:
		return skipZeroAdvantage
	}
	return ""
}

// leastVersion is the oldest policy version that a row may have, by max_staleness
// and by the place that the consumer was set to.
func (g *gatherer) leastVersion() (least int64, bounded bool) {
	if g.r.MaxStaleness != nil {
		least, bounded = *g.r.PolicyVersion-*g.r.MaxStaleness, true
	}
	if g.from != nil && (!bounded || *g.from > least) {
		least, bounded = *g.from, true
	}
	return least, bounded
}
