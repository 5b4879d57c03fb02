package generate_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/ingest/gateway/generate"
	"icecore/ingest/gateway/turn"
)

func TestSchemaDialect(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		`{"type":"OBJECT","properties":{"type":{"type":"STRING","description":"a <b>"},"min_items":{"type":"INTEGER","format":"int64"}},"required":["type"],"propertyOrdering":["type"]}`: `{"type":"object","properties":{"type":{"type":"string","description":"a <b>"},"min_items":{"type":"integer","format":"int64"}},"required":["type"]}`,
		`{"type":"ARRAY","items":{"type":"NUMBER","nullable":true},"minItems":"1","max_items":3}`:                                                                                         `{"type":"array","items":{"type":["number","null"]},"minItems":1,"maxItems":3}`,
		`{"nullable":true,"type":"STRING","enum":["A","B"]}`:                                                                                                                              `{"type":["string","null"],"enum":["A","B",null]}`,
		`{"any_of":[{"type":"STRING"},{"ref":"#/defs/x"}],"nullable":true,"defs":{"x":{"type":"BOOLEAN"}}}`:                                                                               `{"anyOf":[{"type":"string"},{"$ref":"#/$defs/x"},{"type":"null"}],"$defs":{"x":{"type":"boolean"}}}`,
		`{"type":"TYPE_UNSPECIFIED","title":"t","additionalProperties":false,"x_own":1,"default":null}`:                                                                                   `{"title":"t","additionalProperties":false,"x_own":1,"default":null}`,
		`{"type":["string","null"],"minimum":1.50}`:                                                                                                                                       `{"type":["string","null"],"minimum":1.50}`,
		`{"minItems":1,"min_items":2,"any_of":[],"anyOf":[{}]}`:                                                                                                                           `{"minItems":1,"anyOf":[]}`,
		`{}`: `{}`,
	} {
		r := decode(t, `{"contents":[{"parts":[{"text":"q"}]}],"tools":[{"functionDeclarations":[{"name":"f","parameters":`+given+`}]}]}`)
		require.Equal(t, want, string(r.Tools[0].Parameters), given)
	}
}

func TestSchemaDepth(t *testing.T) {
	t.Parallel()
	nested := strings.Repeat(`{"items":`, 100) + "{}" + strings.Repeat("}", 100)
	_, err := generate.Provider{}.Decode(turn.Incoming{Path: path, Body: []byte(`{"contents":[{"parts":[{"text":"q"}]}],"tools":[{"functionDeclarations":[{"name":"f","parameters":` + nested + `}]}]}`)})
	require.ErrorContains(t, err, "nested too deep")
}
