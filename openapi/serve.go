package openapi

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"

	"github.com/labstack/echo/v4"
)

// Register adds the routes.
func (d *Document) Register(e *echo.Echo) {
	e.GET("/openapi.json", d.serveJSON)
	e.GET("/docs", d.servePage)
}

func (d *Document) serveJSON(c echo.Context) error {
	return c.Blob(http.StatusOK, echo.MIMEApplicationJSON, d.json)
}

// policy lets the page use its own style and nothing else.
var policy = func() string {
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}()

func (d *Document) servePage(c echo.Context) error {
	h := c.Response().Header()
	h.Set(echo.HeaderContentSecurityPolicy, policy)
	h.Set(echo.HeaderXContentTypeOptions, "nosniff")
	h.Set(echo.HeaderReferrerPolicy, "no-referrer")
	return c.Blob(http.StatusOK, echo.MIMETextHTMLCharsetUTF8, d.page)
}
