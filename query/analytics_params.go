package query

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"icecore/problem"
	"icecore/query/analytics"
)

// analysisNames are the parameters of every analysis.
var (
	analysisNames = []string{"by", "solved_at", "limit", "harness", "model", "task_id", "group_id", "since", "until"}
	versionNames  = []string{"policy_version_min", "policy_version_max"}
)

// words reads a parameter whose values are separated by commas; absent: nil.
func words(c echo.Context, name string) []string {
	text := c.QueryParam(name)
	if text == "" {
		return nil
	}
	var out []string
	for word := range strings.SplitSeq(text, ",") {
		if word = strings.TrimSpace(word); !slices.Contains(out, word) {
			out = append(out, word)
		}
	}
	return out
}

// analysisOf reads what every analysis has: by=, solved_at= and limit=.
func analysisOf(c echo.Context, keys []string) (by []string, solvedAt float64, limit int64, err error) {
	if by = words(c, "by"); by == nil {
		by = []string{analytics.KeyHarness}
	}
	for _, k := range by {
		if !slices.Contains(keys, k) {
			return nil, 0, 0, problem.BadParameter("by", strconv.Quote(k)+" is not one of "+strings.Join(keys, ", "))
		}
	}
	solvedAt = 1
	if text := c.QueryParam("solved_at"); text != "" {
		if solvedAt, err = strconv.ParseFloat(text, 64); err != nil || math.IsNaN(solvedAt) || math.IsInf(solvedAt, 0) {
			return nil, 0, 0, problem.BadParameter("solved_at", "is not a finite number")
		}
	}
	limit, err = intParam(c, "limit", defaultRows, 1, maxRows)
	return by, solvedAt, limit, err
}

// rolloutsOf reads the filters of analyses.
func rolloutsOf(c echo.Context) (f analytics.Filter, err error) {
	// It checks the values that are from a list.
	if _, err := filterOf(c); err != nil {
		return f, err
	}
	q := c.QueryParams()
	f = analytics.Filter{Harnesses: q["harness"], Models: q["model"], TaskIDs: q["task_id"], GroupIDs: q["group_id"], Splits: q["split"]}
	if f.VersionMin, err = optInt(c, "policy_version_min"); err != nil {
		return f, err
	}
	if f.VersionMax, err = optInt(c, "policy_version_max"); err != nil {
		return f, err
	}
	if f.Since, err = timeParam(c, "since"); err != nil {
		return f, err
	}
	f.Until, err = timeParam(c, "until")
	return f, err
}

func timeParam(c echo.Context, name string) (*time.Time, error) {
	text := c.QueryParam(name)
	if text == "" {
		return nil, nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if y := t.UTC().Year(); err != nil || y < 1 || y > 9999 {
		return nil, problem.BadParameter(name, "is not a time with a zone, as 2026-01-31T09:30:00Z")
	}
	return &t, nil
}

// bucketOf reads bucket=; without it the key bucket is a day.
func bucketOf(c echo.Context, by []string) (string, error) {
	text := c.QueryParam("bucket")
	switch {
	case text != "" && !slices.Contains(analytics.Buckets, text):
		return "", problem.BadParameter("bucket", strconv.Quote(text)+" is not one of "+strings.Join(analytics.Buckets, ", "))
	case slices.Contains(by, analytics.KeyBucket):
		if text == "" {
			text = "day"
		}
		return text, nil
	case text != "":
		return "", problem.BadParameter("bucket", "goes with by=bucket")
	}
	return "", nil
}

// Each k of pass@k, and how many.
const (
	maxK  = 999
	maxKs = 16
)

func ksOf(c echo.Context) ([]int64, error) {
	list := words(c, "k")
	if list == nil {
		return []int64{1, 2, 4, 8}, nil
	}
	if len(list) > maxKs {
		return nil, problem.BadParameter("k", "has more than "+strconv.Itoa(maxKs)+" values")
	}
	var ks []int64
	for _, text := range list {
		k, err := strconv.ParseInt(text, 10, 64)
		if err != nil || k < 1 || k > maxK {
			return nil, problem.BadParameter("k", strconv.Quote(text)+" is not a whole number from 1 to "+strconv.Itoa(maxK))
		}
		ks = append(ks, k)
	}
	return ks, nil
}

// rangesOf reads base= and against=.
func rangesOf(c echo.Context) (base, against analytics.Range, err error) {
	if base, err = rangeParam(c, "base"); err != nil {
		return base, against, err
	}
	if against, err = rangeParam(c, "against"); err != nil {
		return base, against, err
	}
	if base.Overlaps(against) {
		err = problem.BadParameter("against", "has a version that base has too; a version can be on one side only")
	}
	return base, against, err
}

// rangeParam reads a range of policy versions: 0-9, 10-, -9, or one version.
func rangeParam(c echo.Context, name string) (r analytics.Range, err error) {
	text := c.QueryParam(name)
	if text == "" {
		return r, problem.BadParameter(name, "is missing: a range of policy versions, as 0-9, 10- or -9")
	}
	low, high, dash := strings.Cut(text, "-")
	if !dash {
		high = low
	}
	if low == "" && high == "" {
		return r, badRange(name, text)
	}
	if r.Min, err = endOf(low); err != nil {
		return r, badRange(name, text)
	}
	if r.Max, err = endOf(high); err != nil {
		return r, badRange(name, text)
	}
	if r.Min != nil && r.Max != nil && *r.Min > *r.Max {
		return r, problem.BadParameter(name, strconv.Quote(text)+" ends before it begins")
	}
	return r, nil
}

// endOf reads an end of a range; nil: it is open.
func endOf(text string) (*int64, error) {
	if text == "" {
		return nil, nil
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return nil, fmt.Errorf("read policy version: %w", err)
	}
	v := int64(n)
	return &v, nil
}

func badRange(name, text string) error {
	return problem.BadParameter(name, strconv.Quote(text)+" is not a range of policy versions, as 0-9, 10- or -9")
}
