package openapi_test

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"
)

// TestPageHoldsEverything: every operation, code and schema of the document.
func TestPageHoldsEverything(t *testing.T) {
	t.Parallel()
	d, root := document(t, options)
	page := string(d.Page())
	operations := 0
	for path, item := range root["paths"].(map[string]any) {
		for method, op := range item.(map[string]any) {
			op := op.(map[string]any)
			id := op["operationId"].(string)
			_, article, found := strings.Cut(page, `<article id="`+id+`">`)
			require.True(t, found, id)
			article, _, _ = strings.Cut(article, "</article>")
			require.Contains(t, article, strings.ToUpper(method)+"</span> <code>"+path+"</code>")
			require.Contains(t, page, `<a href="#`+id+`"><span class="method`, "the navigation lacks %s", id)
			require.Contains(t, article, `<pre class="curl"><code>curl -s`)
			for status, response := range op["responses"].(map[string]any) {
				codes, _ := response.(map[string]any)["x-codes"].([]any)
				for _, code := range codes {
					require.Contains(t, article, "<td>"+status+"</td><td><code>"+code.(string)+"</code></td>")
				}
			}
			operations++
		}
	}
	require.Greater(t, operations, 15)
	for name := range root["components"].(map[string]any)["schemas"].(map[string]any) {
		require.Contains(t, page, `<div id="schema-`+name+`">`)
	}
}

// TestWrittenOrderIsKept: of the document, of examples and of fields.
func TestWrittenOrderIsKept(t *testing.T) {
	t.Parallel()
	d, _ := document(t, options)
	require.Regexp(t, `^\{\s*"openapi": "3\.1\.\d",\s*"info": \{\s*"title": "icecore"`, string(d.JSON()))
	page := string(d.Page())
	require.Contains(t, page, `curl -s --json &#39;[{&#34;trace_id&#34;:&#34;t-1&#34;,&#34;rollout_id&#34;:`)
	_, trace, found := strings.Cut(page, `<div id="schema-Trace">`)
	require.True(t, found)
	at := 0
	for _, field := range []string{"trace_id", "rollout_id", "seq", "prompt_token_ids", "response_token_ids", "response_logprobs", "status", "metadata"} {
		i := strings.Index(trace[at:], "<dt><code>"+field+"</code>")
		require.GreaterOrEqual(t, i, 0, "%s is missing, or not in its place", field)
		at += i
	}
}

// TestPageNeedsNothingElse: no script, nothing from elsewhere, and every link
// goes to a place on it.
func TestPageNeedsNothingElse(t *testing.T) {
	t.Parallel()
	d, _ := document(t, options)
	root, err := html.Parse(strings.NewReader(string(d.Page())))
	require.NoError(t, err)
	places := map[string]bool{}
	var links []string
	for n := range root.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		require.NotContains(t, []string{"script", "link", "img", "iframe", "object", "embed", "form", "base"}, n.Data)
		for _, a := range n.Attr {
			require.False(t, a.Key == "style" || a.Key == "src" || a.Key == "srcset" || strings.HasPrefix(a.Key, "on"), "%s has %s", n.Data, a.Key)
			switch a.Key {
			case "id":
				require.False(t, places[a.Val], "two elements are called %s", a.Val)
				places[a.Val] = true
			case "href":
				links = append(links, a.Val)
			}
		}
	}
	require.NotEmpty(t, links)
	for _, link := range links {
		require.True(t, link == "/openapi.json" || strings.HasPrefix(link, "#") && places[link[1:]], "%s leads nowhere", link)
	}
}

// TestPolicyAllowsTheStyleOnly: browsers hash what stands between the tags.
func TestPolicyAllowsTheStyleOnly(t *testing.T) {
	t.Parallel()
	d, _ := document(t, options)
	e := echo.New()
	d.Register(e)
	rec := httptest.NewRecorder()
	e.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/docs", nil))
	require.Equal(t, 200, rec.Code)
	m := regexp.MustCompile(`(?s)<style>(.*?)</style>`).FindStringSubmatch(rec.Body.String())
	require.NotNil(t, m)
	sum := sha256.Sum256([]byte(m[1]))
	policy := rec.Header().Get("Content-Security-Policy")
	require.Contains(t, policy, "default-src 'none'")
	require.Contains(t, policy, "'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'")
	require.NotContains(t, policy, "unsafe")
	require.NotContains(t, m[1], "url(")
	require.NotContains(t, m[1], "@import")
}
