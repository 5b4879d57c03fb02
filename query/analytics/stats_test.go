package analytics

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The table of every textbook: 97.5 % points of Student's t.
func TestStudentT(t *testing.T) {
	t.Parallel()
	for df, want := range map[float64]float64{1: 12.7062, 2: 4.3027, 3: 3.1824, 4: 2.7764, 5: 2.5706, 7: 2.3646, 10: 2.2281,
		20: 2.0860, 29: 2.0452, 30: 2.0423, 60: 2.0003, 120: 1.9799} {
		require.InDelta(t, want, studentT975(df), 5e-5, "df %v", df)
	}
	// df = 1 is Cauchy's distribution, tan(0.475π); df = 2 has a closed form as
	// well: 0.95·√2/√(1-0.95²).
	require.InDelta(t, math.Tan(0.475*math.Pi), studentT975(1), 1e-8)
	require.InDelta(t, 0.95*math.Sqrt(2/(1-0.95*0.95)), studentT975(2), 1e-9)
	// Where one way of computing ends and the other begins they agree.
	require.InDelta(t, studentT975(1e4), studentT975(1e4+1e-6), 1e-9)
	require.InDelta(t, normal975, studentT975(1e12), 1e-9)
}

// Wilson's interval as Newcombe prints it (Statistics in Medicine 17, 1998,
// p. 857, table I, method 3).
func TestWilson(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		hits, n   int64
		low, high float64
	}{{81, 263, 0.2553, 0.3662}, {15, 148, 0.0624, 0.1605}, {0, 20, 0, 0.1611}, {1, 29, 0.0061, 0.1718}, {29, 29, 0.8830, 1}} {
		w := wilson(c.hits, c.n)
		require.InDelta(t, c.low, w[0], 5e-5, "%d of %d", c.hits, c.n)
		require.InDelta(t, c.high, w[1], 5e-5, "%d of %d", c.hits, c.n)
	}
	require.Nil(t, wilson(0, 0))
}

// Newcombe's differences (the same volume, p. 873, table II, method 10).
func TestRateDifference(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, m, b, n int64
		low, high  float64
	}{{56, 70, 48, 80, 0.0524, 0.3339}, {9, 10, 3, 10, 0.1705, 0.8090}, {10, 10, 0, 20, 0.6791, 1}, {10, 10, 0, 10, 0.6075, 1}} {
		d := rateDifference(c.a, c.m, c.b, c.n)
		require.InDelta(t, c.low, d[0], 5e-5, "%+v", c)
		require.InDelta(t, c.high, d[1], 5e-5, "%+v", c)
	}
	require.Nil(t, rateDifference(1, 2, 0, 0))
}

func TestMeans(t *testing.T) {
	t.Parallel()
	at := func(v float64) *float64 { return &v }
	// [1, 2, 3, 4]: mean 2.5, std 1.290994, half 3.182446·1.290994/2 = 2.054260.
	i := meanInterval(4, at(2.5), at(math.Sqrt(5.0/3)))
	require.InDelta(t, 2.5-2.054260, i[0], 1e-6)
	require.InDelta(t, 2.5+2.054260, i[1], 1e-6)
	require.Nil(t, meanInterval(1, at(2.5), nil))
	require.Nil(t, meanInterval(0, nil, nil))

	// Welch on [1, 2, 3, 4] and [2, 2, 2]: the second does not vary, so that the
	// degrees of freedom are the first's, 3, and so is the half width.
	d := meanDifference(sample{4, at(2.5), at(math.Sqrt(5.0 / 3))}, sample{3, at(2), at(0)})
	require.InDelta(t, 0.5-2.054260, d[0], 1e-6)
	require.InDelta(t, 0.5+2.054260, d[1], 1e-6)
	// Samples of one size and spread have all their degrees of freedom: 2·(n-1) = 6,
	// t = 2.446912, half 2.446912·1.290994/√2 = 2.233716.
	d = meanDifference(sample{4, at(2.5), at(math.Sqrt(5.0 / 3))}, sample{4, at(0), at(math.Sqrt(5.0 / 3))})
	require.InDelta(t, 2.5-2.233716, d[0], 1e-5)
	require.Equal(t, &Interval{1, 1}, meanDifference(sample{4, at(2), at(0)}, sample{3, at(1), at(0)}))
	require.Nil(t, meanDifference(sample{4, at(2), at(0)}, sample{1, at(1), nil}))
}

// An interval holds what it is the interval of, and is never NaN.
func TestIntervalsHold(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n, m := rapid.Int64Range(1, 1e9).Draw(t, "n"), rapid.Int64Range(1, 1e9).Draw(t, "m")
		a, b := rapid.Int64Range(0, n).Draw(t, "a"), rapid.Int64Range(0, m).Draw(t, "b")
		p, q := float64(a)/float64(n), float64(b)/float64(m)
		w := wilson(a, n)
		require.LessOrEqual(t, w[0], p)
		require.GreaterOrEqual(t, w[1], p)
		require.True(t, 0 <= w[0] && w[1] <= 1)
		d := rateDifference(a, n, b, m)
		require.True(t, d[0] <= p-q && p-q <= d[1])
		require.True(t, -1-1e-12 <= d[0] && d[1] <= 1+1e-12)
		df := rapid.Float64Range(1, 1e6).Draw(t, "df")
		require.Greater(t, studentT975(df), studentT975(df*1.01)-1e-9)
	})
}
