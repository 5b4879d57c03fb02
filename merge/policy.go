package merge

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// Names of the policies.
const (
	StrictTree  = "strict_tree"
	PerRequest  = "per_request"
	PolarCompat = "polar_compat"
)

// PolicyNames lists them, the default first.
var PolicyNames = []string{StrictTree, PerRequest, PolarCompat}

// Policy names a rule from traces to trajectories, with its parameter. The zero
// Policy is strict_tree.
type Policy struct {
	Name string
	// EndOfTurn is the id that ends a turn. Only polar_compat has it; nil lets
	// each chain take it from its first response.
	EndOfTurn *int32
}

// ParsePolicy reads the canonical form of a policy: a name, and for
// polar_compat optionally its parameter, as in
// "polar_compat(end_of_turn=151645)".
func ParsePolicy(s string) (Policy, error) {
	for _, name := range PolicyNames {
		if s == name {
			return Policy{Name: name}, nil
		}
	}
	name, argument, found := strings.Cut(s, "(")
	if found && name == PolarCompat {
		if p, ok := parseEndOfTurn(argument); ok {
			return p, nil
		}
		return Policy{}, fmt.Errorf("parse merge policy %q: %s takes (end_of_turn=N), where N is a token id from 0 to 2147483647",
			s, PolarCompat)
	}
	if found && (name == StrictTree || name == PerRequest) {
		return Policy{}, fmt.Errorf("parse merge policy %q: %s takes no parameter", s, name)
	}
	return Policy{}, fmt.Errorf("parse merge policy %q: not one of %s (which may be followed by (end_of_turn=N))",
		s, strings.Join(PolicyNames, ", "))
}

func parseEndOfTurn(argument string) (Policy, bool) {
	digits, opened := strings.CutPrefix(argument, "end_of_turn=")
	digits, closed := strings.CutSuffix(digits, ")")
	n, err := strconv.ParseUint(digits, 10, 31)
	// One policy has one spelling, because trajectory ids are made from it.
	if !opened || !closed || err != nil || strconv.FormatUint(n, 10) != digits {
		return Policy{}, false
	}
	id := int32(n)
	return Policy{Name: PolarCompat, EndOfTurn: &id}, true
}

// String gives the canonical form, which ParsePolicy reads back.
func (p Policy) String() string {
	switch {
	case p.Name == "":
		return StrictTree
	case p.Name == PolarCompat && p.EndOfTurn != nil:
		return fmt.Sprintf("%s(end_of_turn=%d)", p.Name, *p.EndOfTurn)
	default:
		return p.Name
	}
}

// TrajectoryID names a trajectory by its rollout, its policy and the trace that
// names the row (Trajectory.Namer): "tr_" and 32 hexadecimal digits. It does not
// depend on what else the rollout holds, so a row that stays keeps its id.
func TrajectoryID(rolloutID string, p Policy, namingTraceID string) string {
	h := sha256.New()
	for _, part := range []string{rolloutID, p.String(), namingTraceID} {
		// Lengths go first, so that no two triples run together alike.
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		h.Write(length[:])
		h.Write([]byte(part))
	}
	return "tr_" + hex.EncodeToString(h.Sum(nil)[:16])
}
