package advantage

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// vectors are worked cases that other implementations are tested with too.
type vectors struct {
	Advantages []struct {
		Name      string    `json:"name"`
		Estimator Estimator `json:"estimator"`
		Sigma     string    `json:"sigma"`
		Epsilon   *float64  `json:"epsilon"`
		Single    string    `json:"single"`
		Groups    [][]struct {
			Reward *float64 `json:"reward"`
			Rows   []int    `json:"rows"`
		} `json:"groups"`
		Refused bool `json:"refused"`
		Expect  []struct {
			Advantages []*float64 `json:"advantages"`
			Zero       bool       `json:"zero_advantage"`
			Scored     int        `json:"scored"`
		} `json:"expect"`
	} `json:"advantages"`
	Weights []struct {
		Name        string      `json:"name"`
		RowWeight   RowWeight   `json:"row_weight"`
		Rollouts    [][]int     `json:"rollouts"`
		Expect      [][]float64 `json:"expect"`
		RowMeanMass []float64   `json:"row_mean_mass"`
	} `json:"weights"`
}

func load(t *testing.T) (v vectors) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "testdata", "conformance", "advantages.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &v))
	require.NotEmpty(t, v.Advantages)
	require.NotEmpty(t, v.Weights)
	return v
}

func TestVectors(t *testing.T) {
	t.Parallel()
	for _, c := range load(t).Advantages {
		t.Run(string(c.Estimator)+": "+c.Name, func(t *testing.T) {
			t.Parallel()
			o := Options{Estimator: c.Estimator, Population: c.Sigma == "population", Epsilon: c.Estimator.Epsilon(), KeepSingle: c.Single == "reward"}
			if c.Epsilon != nil {
				o.Epsilon = *c.Epsilon
			}
			var groups [][]Rollout
			for _, g := range c.Groups {
				var rollouts []Rollout
				for _, r := range g {
					one := Rollout{Reward: r.Reward}
					for _, n := range r.Rows {
						one.Trained += int64(n)
					}
					rollouts = append(rollouts, one)
				}
				groups = append(groups, rollouts)
			}
			got, err := o.Lease(groups)
			if c.Refused {
				require.ErrorContains(t, err, "beyond float32")
				return
			}
			require.NoError(t, err)
			require.Len(t, got, len(c.Expect))
			for i, want := range c.Expect {
				require.Equal(t, want.Zero, got[i].Zero, "group %d", i)
				require.Equal(t, want.Scored, got[i].Scored, "group %d", i)
				require.Len(t, got[i].Advantages, len(want.Advantages), "group %d", i)
				for j, a := range want.Advantages {
					have := got[i].Advantages[j]
					switch {
					case a == nil:
						require.Nil(t, have, "group %d, rollout %d", i, j)
					case *a == 0:
						require.NotNil(t, have, "group %d, rollout %d", i, j)
						require.InDelta(t, 0, *have, 1e-12, "group %d, rollout %d", i, j)
					default:
						require.NotNil(t, have, "group %d, rollout %d", i, j)
						require.InEpsilon(t, *a, *have, 1e-9, "group %d, rollout %d", i, j)
					}
				}
			}
		})
	}
}

func TestWeightVectors(t *testing.T) {
	t.Parallel()
	for _, c := range load(t).Weights {
		t.Run(string(c.RowWeight)+": "+c.Name, func(t *testing.T) {
			t.Parallel()
			got := c.RowWeight.Weights(c.Rollouts)
			rows := 0
			for i, want := range c.Expect {
				require.Len(t, got[i], len(want))
				rows += len(want)
				for j := range want {
					require.InEpsilon(t, want[j], got[i][j], 1e-12, "rollout %d, row %d", i, j)
				}
			}
			for i, mass := range c.RowMeanMass {
				sum := 0.0
				for _, w := range got[i] {
					sum += w / float64(rows)
				}
				require.InDelta(t, mass, sum, 1e-12, "rollout %d", i)
			}
		})
	}
}
