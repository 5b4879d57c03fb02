package openapi_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/pb33f/libopenapi/datamodel"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"icecore/openapi"
)

var options = openapi.Options{Version: "1.2.3", BaseURL: "http://127.0.0.1:7470", MaxRequestBytes: 3 << 20, MaxItems: 17, MaxTokens: 1234, MaxBodyBytes: 5000,
	MaxJSONDepth: 512, MaxOpen: 3, MaxBufferedBytes: 1 << 30, ReadTimeout: 7 * time.Second,
	SQLRunning: 2, SQLWaiting: 21, SQLTimeout: 11 * time.Second, SQLMaxTimeout: 22 * time.Second, SQLMaxRows: 54321, SQLMaxBytes: 2 << 20}

func document(t *testing.T, o openapi.Options) (*openapi.Document, map[string]any) {
	t.Helper()
	d, err := openapi.New(o)
	require.NoError(t, err)
	var root map[string]any
	require.NoError(t, json.Unmarshal(d.JSON(), &root))
	return d, root
}

// TestDocumentIsOpenAPI: by the schema that the OpenAPI Initiative publishes.
func TestDocumentIsOpenAPI(t *testing.T) {
	t.Parallel()
	official, err := jsonschema.UnmarshalJSON(strings.NewReader(datamodel.OpenAPI31SchemaData))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource("official.json", official))
	schema, err := c.Compile("official.json")
	require.NoError(t, err)
	for _, profile := range []bool{false, true} {
		o := options
		o.Profile = profile
		d, _ := document(t, o)
		instance, err := jsonschema.UnmarshalJSON(strings.NewReader(string(d.JSON())))
		require.NoError(t, err)
		require.NoError(t, schema.Validate(instance))
	}
}

func TestDocumentStatesTheLimitsOfItsServer(t *testing.T) {
	t.Parallel()
	d, root := document(t, options)
	about := root["info"].(map[string]any)["description"]
	for _, says := range []string{"| 3 MiB |", "| 17 |", "| 1234 |", "| 5000 bytes |", "| 512 |", "| 3 |", "| 1 GiB |", "| 7s |"} {
		require.Contains(t, about, says)
	}
	require.Contains(t, string(d.JSON()), `"maxItems": 17`)
	require.Contains(t, string(d.JSON()), `"maxItems": 1234`)
	require.Contains(t, string(d.JSON()), "At most 2 run at once and 21 more wait")
	require.Contains(t, string(d.JSON()), "54321 rows and 2 MiB of columns; a statement that names no time limit has 11s, and none more than 22s")
	require.Contains(t, string(d.JSON()), `"maximum": 22000`)
	require.NotContains(t, string(d.JSON()), "${")
}

func TestProfilesAreThereOnlyWithTheirFlag(t *testing.T) {
	t.Parallel()
	_, root := document(t, options)
	require.NotContains(t, root["paths"], "/debug/pprof/{page}")
	o := options
	o.Profile = true
	_, root = document(t, o)
	require.Contains(t, root["paths"], "/debug/pprof/{page}")
}

// TestExamplesFitTheirSchemas: what the document shows is what it says.
func TestExamplesFitTheirSchemas(t *testing.T) {
	t.Parallel()
	d, root := document(t, options)
	whole, err := jsonschema.UnmarshalJSON(strings.NewReader(string(d.JSON())))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	require.NoError(t, c.AddResource("openapi.json", whole))
	checked := 0
	var walk func(v any, at string)
	walk = func(v any, at string) {
		switch v := v.(type) {
		case map[string]any:
			if example, ok := v["example"]; ok && v["schema"] != nil {
				schema, err := c.Compile("openapi.json#" + at + "/schema")
				require.NoError(t, err, at)
				require.NoError(t, schema.Validate(example), at)
				checked++
			}
			for name, value := range v {
				walk(value, at+"/"+strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(name))
			}
		case []any:
			for _, value := range v {
				if _, deep := value.(map[string]any); deep {
					return // lists of the document hold no examples of their own
				}
			}
		}
	}
	walk(root, "")
	require.Greater(t, checked, 50)
}
