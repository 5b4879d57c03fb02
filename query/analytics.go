package query

import (
	"context"
	"slices"

	"github.com/labstack/echo/v4"

	"icecore/query/analytics"
)

// Rows of an analysis; what is cut off is counted.
const (
	defaultRows = 1000
	maxRows     = 10_000
)

// drained waits until the warehouse has all that was stored before.
func (a *API) drained(ctx context.Context) error { return a.s.WaitDrained(ctx, a.s.NewestBatch()) }

// summary answers GET /v1/analytics/summary.
func (a *API) summary(c echo.Context) error {
	if err := only(c, slices.Concat(analysisNames, versionNames, []string{"split", "policy", "end_of_turn", "bucket", "k", "current_version"})...); err != nil {
		return err
	}
	q := analytics.SummaryQuestion{}
	policy, err := policyOf(c)
	if err != nil {
		return err
	}
	q.Policy = policy.String()
	if q.By, q.SolvedAt, q.Limit, err = analysisOf(c, analytics.SummaryKeys); err != nil {
		return err
	}
	if q.Filter, err = rolloutsOf(c); err != nil {
		return err
	}
	if q.Bucket, err = bucketOf(c, q.By); err != nil {
		return err
	}
	if q.Ks, err = ksOf(c); err != nil {
		return err
	}
	if q.CurrentVersion, err = optInt(c, "current_version"); err != nil {
		return err
	}
	ctx := c.Request().Context()
	if err := a.ensureAll(ctx, policy); err != nil {
		return fault(err)
	}
	answer, err := analytics.Summarise(ctx, a.sql, q)
	if err != nil {
		return fault(err)
	}
	return writeJSON(c, answer)
}

// uplift answers GET /v1/analytics/uplift.
func (a *API) uplift(c echo.Context) error {
	if err := only(c, slices.Concat(analysisNames, []string{"split", "base", "against"})...); err != nil {
		return err
	}
	q := analytics.UpliftQuestion{}
	var err error
	if q.By, q.SolvedAt, q.Limit, err = analysisOf(c, analytics.UpliftKeys); err != nil {
		return err
	}
	if q.Filter, err = rolloutsOf(c); err != nil {
		return err
	}
	if q.Base, q.Against, err = rangesOf(c); err != nil {
		return err
	}
	ctx := c.Request().Context()
	if err := a.drained(ctx); err != nil {
		return fault(err)
	}
	answer, err := analytics.Compare(ctx, a.sql, q)
	if err != nil {
		return fault(err)
	}
	return writeJSON(c, answer)
}

// splits answers GET /v1/analytics/splits.
func (a *API) splits(c echo.Context) error {
	if err := only(c, slices.Concat(analysisNames, versionNames)...); err != nil {
		return err
	}
	q := analytics.SplitsQuestion{}
	var err error
	if q.By, q.SolvedAt, q.Limit, err = analysisOf(c, analytics.SplitsKeys); err != nil {
		return err
	}
	// Rows are per task in any case.
	if !slices.Contains(q.By, analytics.KeyTask) {
		q.By = append([]string{analytics.KeyTask}, q.By...)
	}
	if q.Filter, err = rolloutsOf(c); err != nil {
		return err
	}
	ctx := c.Request().Context()
	if err := a.drained(ctx); err != nil {
		return fault(err)
	}
	answer, err := analytics.CompareSplits(ctx, a.sql, q)
	if err != nil {
		return fault(err)
	}
	return writeJSON(c, answer)
}
