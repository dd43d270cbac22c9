package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"locktop/internal/check"
)

// imports is the complete table of allowed imports between packages. An import
// that is not listed is not allowed. Tests may also import internal/server, internal/servertest, internal/check,
// internal/golden, internal/netfault and internal/testtier, and external tests (package
// x_test) their own package.
var imports = map[string][]string{
	".":                        {"cli"},
	"cli":                      {"cli/connect", "cli/demo", "cli/render", "internal/humanize", "internal/server", "internal/shell", "keyspace", "keyspace/contention", "keyspace/formats", "keyspace/holds", "keyspace/incident", "keyspace/inspect", "keyspace/metrics", "keyspace/metrics/web", "keyspace/order", "keyspace/recording", "keyspace/release", "loadgen", "loadgen/agents", "loadgen/fit", "loadgen/oracle", "loadgen/report", "loadgen/scenarios", "loadgen/witness", "lock", "tui", "tui/widget"},
	"cli/connect":              {"internal/humanize", "internal/shell", "keyspace", "keyspace/inspect", "tui/widget"},
	"cli/demo":                 {"internal/humanize", "internal/netfault", "internal/server", "keyspace", "keyspace/formats", "keyspace/inspect", "loadgen"},
	"cli/render":               {"internal/htmlpage", "internal/humanize", "keyspace", "keyspace/contention", "keyspace/formats", "keyspace/holds", "keyspace/incident", "tui/widget"},
	"keyspace/metrics":         {"keyspace"},
	"keyspace/metrics/web":     {},
	"tui":                      {"internal/humanize", "keyspace", "keyspace/contention", "keyspace/holds", "keyspace/incident", "loadgen", "loadgen/oracle", "loadgen/witness", "tui/svg", "tui/widget"},
	"tui/svg":                  {},
	"tui/widget":               {},
	"keyspace":                 {"internal/humanize", "internal/shell", "keyspace/internal/sorted"},
	"keyspace/contention":      {"keyspace", "keyspace/holds"},
	"keyspace/formats":         {"keyspace"},
	"keyspace/holds":           {"keyspace", "keyspace/internal/cache"},
	"keyspace/incident":        {"internal/humanize", "keyspace", "keyspace/holds"},
	"keyspace/inspect":         {"internal/humanize", "keyspace", "keyspace/holds", "keyspace/internal/cache", "keyspace/internal/sorted", "keyspace/order"},
	"keyspace/internal/cache":  {},
	"keyspace/internal/sorted": {},
	"keyspace/order":           {"keyspace"},
	"keyspace/recording":       {"keyspace"},
	"keyspace/release":         {"internal/humanize", "keyspace", "keyspace/inspect"},
	"internal/check":           {},
	"internal/golden":          {},
	"internal/htmlpage":        {},
	"internal/house":           {},
	"internal/netfault":        {},
	"loadgen":                  {"internal/humanize", "internal/netfault", "loadgen/external", "loadgen/oracle", "loadgen/witness", "lock", "lock/classic"},
	"loadgen/agents":           {"internal/humanize", "loadgen", "loadgen/witness"},
	"loadgen/external":         {"internal/sigstop"},
	"loadgen/fit":              {"loadgen"},
	"loadgen/oracle":           {"internal/humanize"},
	"loadgen/witness":          {"internal/humanize", "loadgen/oracle"},
	"loadgen/report":           {"internal/htmlpage", "internal/humanize", "loadgen", "loadgen/oracle", "loadgen/witness"},
	"loadgen/scenarios":        {"loadgen"},
	"docs":                     {},
	"internal/humanize":        {},
	"lock":                     {"lock/internal/transport"},
	"lock/classic":             {},
	"lock/internal/transport":  {},
	"internal/server":          {"internal/sigstop"},
	"internal/servertest":      {"internal/server"},
	"internal/sigstop":         {},
	"internal/shell":           {},
	"internal/testtier":        {},
	"screenshots":              {"tui/svg"},
	"cli/manpages":             {"cli"},
}

// testImports lists the additional imports of a package's tests.
var testImports = map[string][]string{
	"tui":                 {"keyspace/formats", "keyspace/inspect", "keyspace/recording", "loadgen/scenarios"}, // tests of the screen use recordings, and the scenes as they run
	"keyspace/contention": {"keyspace/formats"},                                                                // the commands of libraries
	"keyspace":            {"keyspace/holds", "keyspace/internal/cache"},                                       // tests of findings of the past of a lock
	"keyspace/formats":    {"keyspace/inspect", "keyspace/release"},                                            // tests find and release the samples on a server
	"loadgen":             {"loadgen/scenarios"},                                                               // every scene runs, in one binary with the tests of runs
	"loadgen/agents":      {"loadgen/oracle", "loadgen/scenarios"},                                             // the witness must flag the historic locks of the scenes
	"loadgen/report":      {"loadgen/scenarios"},                                                               // what to watch in a scene is a figure of the report
	"lock/classic":        {"lock"},                                                                            // tests of the flaws also use the sound kinds
}

// guarded lists the libraries, and the clock, that only some packages may use. The clock
// may also be read by single functions.
var guarded = map[string][]string{
	// One call of a template makes the linker keep every exported method of
	// every type. These would be a third of the program.
	"text/template":                           {},
	"html/template":                           {},
	"github.com/redis/go-redis/v9":            {"cli", "cli/connect", "cli/demo", "internal/server", "internal/servertest", "keyspace/inspect", "keyspace/release", "loadgen", "loadgen/agents", "loadgen/witness", "lock", "lock/classic", "lock/internal/transport"},
	"github.com/alicebob/miniredis/v2":        {"internal/server", "internal/servertest"},
	"github.com/yuin/gopher-lua":              {"internal/server"},
	"github.com/charmbracelet/bubbletea":      {"cli", "tui"},
	"github.com/charmbracelet/lipgloss":       {"cli", "tui", "tui/widget"},
	"github.com/HdrHistogram/hdrhistogram-go": {"loadgen", "loadgen/witness"},
	"github.com/go-json-experiment/json":      {"keyspace/recording"}, // of Go 1.27, where it is encoding/json/v2
	"github.com/klauspost/compress/zstd":      {"keyspace/recording"},
	"github.com/spf13/cobra":                  {"cli", "cli/manpages"},
	"time.Now":                                {"cli", "cli/connect", "internal/netfault", "internal/server", "internal/servertest", "internal/sigstop", "keyspace/inspect", "keyspace/release", "loadgen", "loadgen/agents", "loadgen/external", "loadgen/witness", "lock", "lock/classic", "lock/internal/transport", "screenshots", "tui.fetchSnapshot", "tui.listClients", "tui.readStored"},
}

func TestImportsKeepToTheTable(t *testing.T) {
	for _, f := range sources(t) {
		allowed, known := imports[f.pkg]
		if !known {
			t.Errorf("%s: package %s is not in the import table of internal/house/imports_test.go; add it there with its reason in docs/architecture.md", f.name, f.pkg)
			continue
		}
		if f.test {
			allowed = slices.Concat(allowed, []string{"internal/server", "internal/servertest", "internal/check", "internal/golden", "internal/netfault", "internal/testtier", f.pkg}, testImports[f.pkg])
		}
		for _, imp := range f.imports {
			ours, ok := strings.CutPrefix(imp, "locktop/")
			check.True(t, !ok || slices.Contains(allowed, ours), "%s imports %s; allowed for %s: %v", f.name, imp, f.pkg, allowed)
		}
	}
}

func TestGuardedThingsStayWhereTheyBelong(t *testing.T) {
	for _, f := range sources(t) {
		if f.test {
			continue
		}
		for thing, packages := range guarded {
			check.True(t, !f.uses(thing) || slices.Contains(packages, f.pkg), "%s uses %s; only these may: %v", f.name, thing, packages)
		}
		for _, function := range f.clock {
			if may := guarded["time.Now"]; !slices.Contains(may, f.pkg) && !slices.Contains(may, f.pkg+"."+function) {
				t.Errorf("%s: %s reads the clock; only these may: %v", f.name, function, may)
			}
		}
	}
}

// CLIENT NO-TOUCH crashes Redis 8.0 and Valkey 8.1 (redis#14415, valkey#2347), so no code may send
// it. TestConnectionsSetNoStateButTheListed in cli checks the commands that are sent. Colours and
// attributes are lipgloss': it fits them to the terminal, and leaves them out where there are none.
func TestNoCodeHasForbiddenStrings(t *testing.T) {
	forbidden := regexp.MustCompile("\x1b\\[[0-9;%d]*m|(?i:no-touch)")
	eachFile(t, func(name string, file *ast.File) {
		if strings.HasSuffix(name, "_test.go") {
			return
		}
		ast.Inspect(file, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(lit.Value)
			check.True(t, err == nil && !forbidden.MatchString(text), "%s has the string %s", name, lit.Value)
			return true
		})
	})
}

// source describes one Go file for the rules.
type source struct {
	name    string // slash-separated, relative to the root of the repository
	pkg     string // its directory
	test    bool
	imports []string
	clock   []string // functions that read the clock
}

func (s source) uses(library string) bool {
	return slices.ContainsFunc(s.imports, func(imp string) bool {
		return imp == library || strings.HasPrefix(imp, library+"/")
	})
}

// sources returns every Go file of this module.
func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	eachFile(t, func(name string, file *ast.File) {
		s := source{name: name, pkg: path.Dir(name), test: strings.HasSuffix(name, "_test.go"), clock: clockReaders(file)}
		for _, imp := range file.Imports {
			value, err := strconv.Unquote(imp.Path.Value)
			check.NoError(t, err)
			s.imports = append(s.imports, value)
		}
		all = append(all, s)
	})
	return all
}

// eachFile calls visit with every Go file of this module and its comments, which are parsed once.
// The name is slash-separated and relative to the root of the repository.
func eachFile(t *testing.T, visit func(name string, file *ast.File)) {
	t.Helper()
	files, err := parsed()
	check.NoError(t, err)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		visit(name, files[name])
	}
}

var parsed = sync.OnceValues(func() (map[string]*ast.File, error) {
	all := make(map[string]*ast.File)
	return all, filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if p == "lab" || p == "testdata" || p != "." && strings.HasPrefix(d.Name(), ".") {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(p) != ".go" {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.ParseComments|parser.SkipObjectResolution)
		all[filepath.ToSlash(p)] = file
		return err
	})
})

// clockReaders returns the functions of a file that mention time.Now, time.Since or
// time.Until. The name is empty outside of functions.
func clockReaders(file *ast.File) []string {
	var all []string
	for _, decl := range file.Decls {
		name := ""
		if f, ok := decl.(*ast.FuncDecl); ok {
			name = f.Name.Name
		}
		ast.Inspect(decl, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			pkg, ok := sel.X.(*ast.Ident)
			if ok && pkg.Name == "time" && slices.Contains([]string{"Now", "Since", "Until"}, sel.Sel.Name) {
				all = append(all, name)
			}
			return true
		})
	}
	return all
}
