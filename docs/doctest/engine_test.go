package doctest

import (
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/enginetest"
)

// members gives the paths of all members that JSON has for a type.
func members(of reflect.Type, at string) (out []string) {
	for i := range of.NumField() {
		f := of.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		inner, path := f.Type, at+name
		if inner.Kind() == reflect.Slice {
			inner = inner.Elem()
		}
		if inner.Kind() != reflect.Struct || inner == of {
			out = append(out, path)
			continue
		}
		if inner != f.Type {
			path += "[]"
		}
		out = append(out, members(inner, path+".")...)
	}
	return out
}

// TestEngineListed: docs/test-engine.md tells of every member of a script, of every word
// that one may have, and of the faces; and of no others.
func TestEngineListed(t *testing.T) {
	t.Parallel()
	page := read(t, "docs", "test-engine.md")
	all := members(reflect.TypeFor[enginetest.Script](), "")
	require.Greater(t, len(all), 60)
	for _, member := range all {
		require.Contains(t, page, "`"+member+"`")
	}
	for _, m := range regexp.MustCompile("`([a-z]+(?:\\[\\])?\\.[a-z_.\\[\\]]+)`").FindAllStringSubmatch(page, -1) {
		if !strings.HasSuffix(m[1], ".md") {
			require.Contains(t, all, m[1], "no script has it")
		}
	}
	words := 0
	for _, m := range regexp.MustCompile(`"([a-z0-9_ -]+)"`).FindAllStringSubmatch(between(t, read(t, "enginetest", "check.go"), "func (s *Script) Check", "return nil\n}"), -1) {
		for word := range strings.FieldsSeq(m[1]) {
			require.Contains(t, page, "`"+word+"`")
			words++
		}
	}
	require.Greater(t, words, 30)
	for _, face := range enginetest.New(enginetest.Options{}).Faces() {
		require.Contains(t, page, "`/"+face+"`")
	}
}
