package query

import (
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"icecore/problem"
	"icecore/query/analytics"
)

// groups answers GET /v1/groups.
func (a *API) groups(c echo.Context) error {
	if err := only(c, "group_id", "task_id", "split", "harness", "model", "complete", "zero_advantage", "limit", "cursor"); err != nil {
		return err
	}
	f, err := filterOf(c)
	if err != nil {
		return err
	}
	q := analytics.GroupsQuestion{GroupIDs: f.GroupIDs, TaskIDs: f.TaskIDs, Splits: f.Splits, Harnesses: f.Harnesses,
		Models: f.Models, Complete: f.Complete}
	if q.ZeroAdvantage, err = optBool(c, "zero_advantage"); err != nil {
		return err
	}
	limit, err := intParam(c, "limit", defaultPage, 1, maxPage)
	if err != nil {
		return err
	}
	if q.After, err = groupCursor(c); err != nil {
		return err
	}
	ctx := c.Request().Context()
	if err := a.drained(ctx); err != nil {
		return fault(err)
	}
	q.Limit = limit + 1 // one more says whether there is another page
	list, total, err := analytics.ListGroups(ctx, a.sql, q)
	if err != nil {
		return fault(err)
	}
	page := struct {
		Groups     []analytics.Group `json:"groups"`
		Total      int64             `json:"total"`
		NextCursor *string           `json:"next_cursor"`
	}{list, total, nil}
	if int64(len(list)) > limit {
		page.Groups = list[:limit]
		place, err := list[limit-1].Place()
		if err != nil {
			return fault(err)
		}
		next := cursorOf(place)
		page.NextCursor = &next
	}
	return writeJSON(c, page)
}

func cursorOf(p analytics.GroupPlace) string {
	return base64.RawURLEncoding.EncodeToString([]byte("1." + strconv.FormatInt(p.Time.UnixMicro(), 10) + "." + p.ID))
}

// groupCursor reads cursor=; nil: the first page.
func groupCursor(c echo.Context) (*analytics.GroupPlace, error) {
	text := c.QueryParam("cursor")
	if text == "" {
		return nil, nil
	}
	bad := problem.BadParameter("cursor", "is not one that this server gave")
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return nil, bad
	}
	parts := strings.SplitN(string(raw), ".", 3)
	if len(parts) != 3 || parts[0] != "1" {
		return nil, bad
	}
	at, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil {
		return nil, bad
	}
	p := analytics.GroupPlace{Time: time.UnixMicro(at), ID: parts[2]}
	if y := p.Time.UTC().Year(); y < 1 || y > 9999 || cursorOf(p) != text {
		return nil, bad
	}
	return &p, nil
}
