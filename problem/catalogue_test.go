package problem_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"icecore/problem"
)

// root is the repository.
const root = ".."

func TestEveryEntryIsWhole(t *testing.T) {
	t.Parallel()
	seen := map[problem.Code]bool{}
	for i := range problem.Catalogue {
		e := &problem.Catalogue[i]
		require.Regexp(t, `^[a-z]+(_[a-z]+)*$`, string(e.Code))
		require.False(t, seen[e.Code], "%s stands twice in the catalogue", e.Code)
		seen[e.Code] = true
		require.NotEmpty(t, e.Title(), "%s: %d is no status", e.Code, e.Status)
		require.NotEmpty(t, e.Meaning, e.Code)
		require.Equal(t, e.Section == problem.Busy, e.Retry(), "%s: what is busy, and nothing else, is to be sent again", e.Code)
		require.Equal(t, e.Status == 429 || e.Status == 503, e.Retry(), "%s: its status says otherwise whether to send again", e.Code)
		require.True(t, e.Do != "" || e.Retry(), "%s: what is to be done?", e.Code)
		require.Same(t, e, problem.Find(e.Code))
	}
	require.Nil(t, problem.Find("no_such_code"))
}

func TestStatusAndRetryAfterAreTheCatalogues(t *testing.T) {
	t.Parallel()
	p := problem.New(problem.DiskFull, "it is full")
	require.Equal(t, 503, p.Status)
	require.Equal(t, 10, p.RetryAfter)
	require.Equal(t, "Service Unavailable", p.Title)
	require.Equal(t, "urn:icecore:error:disk_full", p.Type)
}

// TestUnlistedCodeIsOurFault: a code that slips through is not shown.
func TestUnlistedCodeIsOurFault(t *testing.T) {
	t.Parallel()
	p := problem.New(problem.Code("no_such"+"_code"), "hello")
	require.Equal(t, problem.InternalFault, p.Code)
	require.NotContains(t, p.Detail, "no_such_code")
	require.ErrorContains(t, p.Cause, "no_such_code")
}

// TestLowerFloorsAreListed: trace, wire and the warehouse declare codes of their
// own, since they may not import this package.
func TestLowerFloorsAreListed(t *testing.T) {
	t.Parallel()
	found := 0
	for file, name := range map[string]string{
		"trace/error.go":         `^Code[A-Z]`,
		"wire/errors.go":         `^Code[A-Z]`,
		"store/warehouse/ask.go": `^Fault[A-Z]`,
	} {
		pattern := regexp.MustCompile(name)
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, 0)
		require.NoError(t, err)
		for _, decl := range parsed.Decls {
			constants, ok := decl.(*ast.GenDecl)
			if !ok || constants.Tok != token.CONST {
				continue
			}
			for _, spec := range constants.Specs {
				v := spec.(*ast.ValueSpec)
				if !pattern.MatchString(v.Names[0].Name) {
					continue
				}
				code, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
				require.NoError(t, err)
				e := problem.Find(problem.Code(code))
				require.NotNil(t, e, "%s of %s is not in the catalogue", code, file)
				require.True(t, file != "trace/error.go" || e.Item, "%s of %s is not marked as an item's code", code, file)
				found++
			}
		}
	}
	require.Greater(t, found, 20, "the codes of the lower floors were not found")
}

// TestNoLiterals: codes are named by constants, so that the compiler knows them
// all. Strings convert to Code unasked.
func TestNoLiterals(t *testing.T) {
	t.Parallel()
	calls := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && len(d.Name()) > 2 || d.Name() == "node_modules") {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			to, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if pkg, ok := to.X.(*ast.Ident); !ok || pkg.Name != "problem" || to.Sel.Name != "New" && to.Sel.Name != "Code" && to.Sel.Name != "Find" {
				return true
			}
			calls++
			if _, literal := call.Args[0].(*ast.BasicLit); literal {
				t.Errorf("%s: a code as a literal; name it in problem/entries.go", set.Position(call.Pos()))
			}
			return true
		})
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, calls, 10, "the calls were not found")
}
