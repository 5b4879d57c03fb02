package analytics

import "math"

// Interval is a 95 % confidence interval: its low and its high end.
type Interval [2]float64

// normal975 is the 97.5 % quantile of the normal distribution.
const normal975 = 1.959963984540054

// meanInterval is Student's interval of a mean: mean ± t·std/√n. It is nil for
// fewer than two values.
func meanInterval(n int64, mean, std *float64) *Interval {
	if n < 2 || mean == nil || std == nil {
		return nil
	}
	half := studentT975(float64(n-1)) * *std / math.Sqrt(float64(n))
	return &Interval{*mean - half, *mean + half}
}

// wilson is Wilson's score interval of a rate of hits among n. It is nil when n
// is 0.
func wilson(hits, n int64) *Interval {
	if n == 0 {
		return nil
	}
	z2, c := normal975*normal975, float64(n)
	p := float64(hits) / c
	mid := (p + z2/(2*c)) / (1 + z2/c)
	half := normal975 / (1 + z2/c) * math.Sqrt(p*(1-p)/c+z2/(4*c*c))
	// At the ends the formula is exact, its arithmetic is not.
	low, high := max(mid-half, 0), min(mid+half, 1)
	if hits == 0 {
		low = 0
	}
	if hits == n {
		high = 1
	}
	return &Interval{low, high}
}

// rateDifference is Newcombe's hybrid score interval (his method 10) of the
// difference of two independent rates, the first less the second. It is nil when
// either has no values.
func rateDifference(hits1, n1, hits2, n2 int64) *Interval {
	w1, w2 := wilson(hits1, n1), wilson(hits2, n2)
	if w1 == nil || w2 == nil {
		return nil
	}
	p1, p2 := float64(hits1)/float64(n1), float64(hits2)/float64(n2)
	d := p1 - p2
	return &Interval{d - math.Hypot(p1-w1[0], w2[1]-p2), d + math.Hypot(w1[1]-p1, p2-w2[0])}
}

// sample is what the interval of a mean is computed from.
type sample struct {
	n         int64
	mean, std *float64
}

// meanDifference is Welch's interval of the difference of two independent means,
// a less b. It is nil when either has fewer than two values.
func meanDifference(a, b sample) *Interval {
	if a.n < 2 || b.n < 2 || a.mean == nil || b.mean == nil || a.std == nil || b.std == nil {
		return nil
	}
	va, vb := *a.std**a.std/float64(a.n), *b.std**b.std/float64(b.n)
	d, v := *a.mean-*b.mean, va+vb
	if v == 0 {
		return &Interval{d, d}
	}
	// Shares of v instead of squares of it, which may leave a float's range.
	sa, sb := va/v, vb/v
	df := 1 / (sa*sa/float64(a.n-1) + sb*sb/float64(b.n-1))
	half := studentT975(df) * math.Sqrt(v)
	return &Interval{d - half, d + half}
}

// studentT975 is the 97.5 % quantile of Student's t distribution with df ≥ 1
// degrees of freedom, to nine digits.
func studentT975(df float64) float64 {
	const z = normal975
	if df > 1e4 {
		// Beyond the second term of the expansion 1/df³ is left.
		return z + (z*z*z+z)/(4*df) + (5*math.Pow(z, 5)+16*z*z*z+3*z)/(96*df*df)
	}
	low, high := z, 13.0 // at df = 1 it is 12.7
	for range 60 {
		mid := (low + high) / 2
		// Both tails beyond ±t hold I(df/(df+t²); df/2, 1/2).
		if incompleteBeta(df/(df+mid*mid), df/2, 0.5) > 0.05 {
			low = mid
		} else {
			high = mid
		}
	}
	return (low + high) / 2
}

// incompleteBeta is the regularised incomplete beta function I(x; a, b) for
// 0 < x < 1, by its continued fraction (Abramowitz and Stegun 26.5.8), which
// converges fast on the side where x is small.
func incompleteBeta(x, a, b float64) float64 {
	if x > (a+1)/(a+b+2) {
		return 1 - incompleteBeta(1-x, b, a)
	}
	la, _ := math.Lgamma(a)
	lb, _ := math.Lgamma(b)
	lab, _ := math.Lgamma(a + b)
	front := math.Exp(lab-la-lb+a*math.Log(x)+b*math.Log1p(-x)) / a
	// From the inside out: a term more than is needed costs nothing, and the
	// number of terms needed grows with the root of the larger parameter.
	terms := 40 + int(5*math.Sqrt(max(a, b)))
	f := 1.0
	for m := terms; m > 0; m-- {
		i := float64(m)
		even := i * (b - i) * x / ((a + 2*i - 1) * (a + 2*i))
		odd := -(a + i - 1) * (a + b + i - 1) * x / ((a + 2*i - 2) * (a + 2*i - 1))
		f = 1 + odd/(1+even/f)
	}
	return front / f
}
