package problem_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"icecore/problem"
)

func TestParameters(t *testing.T) {
	t.Parallel()
	for query, field := range map[string]string{
		"":                        "",
		"limit=1":                 "",
		"limit=1&harness=a":       "",
		"harness=a&harness=b":     "",
		"harness=":                "",
		"harness=&harness=":       "",
		"colour=red":              "colour",
		"limit=":                  "limit",
		"limit":                   "limit",
		"limit=1&limit=1":         "limit",
		"Limit=1":                 "Limit",
		"limit=1;harness=a":       "-",
		"limit=%zz":               "-",
		"limit=1&harness=%":       "-",
		"%6cimit=1":               "",
		"limit=1&%6cimit=2":       "limit",
		"limit=1&&harness=a&":     "",
		"harness=a%26limit%3D1=2": "",
	} {
		r := httptest.NewRequest(http.MethodGet, "/?"+query, nil)
		err := problem.Parameters(echo.New().NewContext(r, nil), []string{"limit", "harness"}, []string{"harness"})
		if field == "" {
			require.NoError(t, err, query)
			continue
		}
		var p *problem.Problem
		require.True(t, errors.As(err, &p), query)
		require.Equal(t, problem.InvalidParameter, p.Code, query)
		if field != "-" {
			require.Equal(t, field, p.Field, query)
		}
	}
}
