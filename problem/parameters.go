package problem

import (
	"net/url"
	"slices"

	"github.com/labstack/echo/v4"
)

// PathParam reads an element of the path, which may be percent-encoded.
func PathParam(c echo.Context, name string) (string, error) {
	value := c.Param(name)
	// Echo routes by the raw path where net/url keeps one; else the path is
	// decoded already, and what still looks encoded is the value itself.
	if c.Request().URL.RawPath == "" {
		return value, nil
	}
	value, err := url.PathUnescape(value)
	if err != nil {
		return "", BadParameter(name, "is not well encoded")
	}
	return value, nil
}

// Parameters refuses whatever of a query would be passed over in silence: what
// cannot be read, parameters that the path does not know (a filter with a typo
// would select everything), and such as are empty or given twice (an empty
// cursor would begin anew). Those in lists may be given several times, and be
// empty.
func Parameters(c echo.Context, known, lists []string) error {
	// Echo, like net/http, drops what it cannot read.
	query, err := url.ParseQuery(c.Request().URL.RawQuery)
	if err != nil {
		return New(InvalidParameter, "the query cannot be read: "+err.Error())
	}
	for name, values := range query {
		switch {
		case !slices.Contains(known, name):
			return BadParameter(name, "is not a parameter of this path")
		case slices.Contains(lists, name):
		case len(values) > 1:
			return BadParameter(name, "is given more than once")
		case values[0] == "":
			return BadParameter(name, "is empty; leave it out, or give it a value")
		}
	}
	return nil
}
