package query

import (
	"math"
	"slices"
	"strconv"

	"github.com/labstack/echo/v4"

	"icecore/problem"
	"icecore/query/analytics"
)

// Worst trajectories and tokens that an answer names.
const (
	defaultWorst = 10
	maxWorst     = 1000
)

// thresholds are the parameters of bounds on weights, with their defaults: those
// of TIS as slime has them, those of IcePop from its paper, and TRL's for whole
// sequences.
var thresholds = []struct {
	name  string
	value float64
	at    func(*analytics.Thresholds) *float64
}{
	{"tis_low", 0, func(t *analytics.Thresholds) *float64 { return &t.TIS[0] }},
	{"tis_high", 2, func(t *analytics.Thresholds) *float64 { return &t.TIS[1] }},
	{"icepop_low", 0.5, func(t *analytics.Thresholds) *float64 { return &t.IcePop[0] }},
	{"icepop_high", 5, func(t *analytics.Thresholds) *float64 { return &t.IcePop[1] }},
	{"sequence_high", 3, func(t *analytics.Thresholds) *float64 { return &t.Sequence }},
}

// mismatch answers GET /v1/analytics/mismatch.
func (a *API) mismatch(c echo.Context) error {
	names := slices.Concat(analysisNames, versionNames, []string{"split", "policy", "end_of_turn", "learner_version_min", "learner_version_max", "worst"})
	names = slices.DeleteFunc(names, func(name string) bool { return name == "solved_at" })
	for _, t := range thresholds {
		names = append(names, t.name)
	}
	if err := only(c, names...); err != nil {
		return err
	}
	q, err := mismatchOf(c)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	if err := a.drained(ctx); err != nil {
		return fault(err)
	}
	answer, err := analytics.Mismatches(ctx, a.sql, q)
	if err != nil {
		return fault(err)
	}
	return writeJSON(c, answer)
}

func mismatchOf(c echo.Context) (q analytics.MismatchQuestion, err error) {
	if q.By, _, q.Limit, err = analysisOf(c, analytics.MismatchKeys); err != nil {
		return q, err
	}
	if q.Filter, err = rolloutsOf(c); err != nil {
		return q, err
	}
	// Without policy= it is about all of them.
	if c.QueryParam("policy") != "" || c.QueryParam("end_of_turn") != "" {
		policy, err := policyOf(c)
		if err != nil {
			return q, err
		}
		q.Policy = policy.String()
	}
	if q.LearnerMin, err = optInt(c, "learner_version_min"); err != nil {
		return q, err
	}
	if q.LearnerMax, err = optInt(c, "learner_version_max"); err != nil {
		return q, err
	}
	if q.Worst, err = intParam(c, "worst", defaultWorst, 0, maxWorst); err != nil {
		return q, err
	}
	q.Thresholds, err = thresholdsOf(c)
	return q, err
}

func thresholdsOf(c echo.Context) (t analytics.Thresholds, err error) {
	for _, p := range thresholds {
		v := p.value
		if text := c.QueryParam(p.name); text != "" {
			if v, err = strconv.ParseFloat(text, 64); err != nil || !(v >= 0) || math.IsInf(v, 0) {
				return t, problem.BadParameter(p.name, "is not a finite number from 0 on")
			}
		}
		*p.at(&t) = v
	}
	switch {
	case t.TIS[0] > t.TIS[1]:
		err = problem.BadParameter("tis_high", "is less than tis_low")
	case t.IcePop[0] > t.IcePop[1]:
		err = problem.BadParameter("icepop_high", "is less than icepop_low")
	}
	return t, err
}
