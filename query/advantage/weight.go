package advantage

import "fmt"

// RowWeight names what the rows of a batch shall count for under a trainer that
// takes a mean over rows. Policy losses are linear in the advantage for a positive
// factor, so advantage times weight carries it into a trainer that has none; it
// does not weigh KL or entropy terms.
//
// K rows lie in R rollouts (that have rows); a rollout has k rows and N trained
// tokens, n of them in this row. Under a mean over rows, a token counts 1/(K·n).
type RowWeight string

// The row weights.
const (
	// Unweighted: 1.
	Unweighted RowWeight = "none"
	// RolloutMean: K·n/(R·N). Each rollout counts the same, and each trained token
	// of a rollout does: 1/(R·N).
	RolloutMean RowWeight = "rollout_mean"
	// SessionMean: K/(R·k). Each rollout counts the same, and each row of a rollout
	// does (verl-project/verl#7580).
	SessionMean RowWeight = "session_mean"
)

// RowWeights lists them, the default first.
var RowWeights = []RowWeight{Unweighted, RolloutMean, SessionMean}

// Weights gives the weight of each row of a lease. rollouts has by rollout the
// trained tokens, 1 or more, of each of its rows.
func (w RowWeight) Weights(rollouts [][]int) [][]float64 {
	rows, holders := 0.0, 0.0
	for _, r := range rollouts {
		rows += float64(len(r))
		if len(r) > 0 {
			holders++
		}
	}
	out := make([][]float64, len(rollouts))
	for i, r := range rollouts {
		out[i] = make([]float64, len(r))
		trained := 0
		for _, n := range r {
			trained += n
		}
		for j, n := range r {
			switch w {
			case RolloutMean:
				out[i][j] = rows * float64(n) / (holders * float64(trained))
			case SessionMean:
				out[i][j] = rows / (holders * float64(len(r)))
			case Unweighted:
				out[i][j] = 1
			default:
				panic(fmt.Sprintf("advantage: weigh rows: no row weight is called %q", w))
			}
		}
	}
	return out
}
