package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"locktop/internal/check"
	"locktop/internal/shell"
	"locktop/tui/widget"
)

// docBlock is the commands of one fenced block of a page, or one command of another file.
// They run one after another in the same folder.
type docBlock struct {
	file     string // relative to the root of the repository
	line     int
	commands []string // as written, with their comments
}

func (b docBlock) String() string { return fmt.Sprintf("%s:%d", b.file, b.line) }

// docBlocks returns all commands of the pages and of contrib.
func docBlocks(t *testing.T) (all []docBlock) {
	t.Helper()
	for _, page := range docPages(t) {
		all = append(all, fenced(readText(t, "../"+page), page, "sh")...)
	}
	return append(all, contribCommands(t)...)
}

// docPages returns the names of the pages for people.
func docPages(t *testing.T) (pages []string) {
	t.Helper()
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "contrib/*.md", "contrib/*/*.md", "lab/docs/oracle.md", "lab/docs/reliability.md"} {
		found := check.Must(filepath.Glob("../" + pattern))(t)
		for _, path := range found {
			pages = append(pages, strings.TrimPrefix(filepath.ToSlash(path), "../"))
		}
	}
	return pages
}

// fenced returns the fenced blocks of a page that have a label. Lines without a command are left out.
func fenced(text, page, label string) (all []docBlock) {
	inside := false
	for i, line := range strings.Split(text, "\n") {
		fence, isFence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case isFence && inside:
			inside = false
		case isFence:
			inside = true
			all = append(all, docBlock{file: page, line: i + 2})
			if fence != label {
				all[len(all)-1].file = "" // of no interest
			}
		case inside && bare(line) != "":
			last := &all[len(all)-1]
			last.commands = append(last.commands, strings.TrimSpace(line))
		}
	}
	return slices.DeleteFunc(all, func(b docBlock) bool { return b.file == "" })
}

// bare returns a command without its comment.
func bare(command string) string {
	return strings.TrimSpace(compiled(`(^|\s)#.*`).ReplaceAllString(command, ""))
}

// contribLine is how files of contrib mention a command: as that of a unit, in an alert, in
// quotes, or alone in a comment. An alert adds the flags of its target by a template.
var contribLine = regexp.MustCompile("(?m)(?:\\bExecStart=|Run: |`|: |^# +)((?:/usr/local/bin/)?locktop [a-z]+ [-/A-Z][^`\n]*|locktop [a-z]+(?:`|\\{\\{)|sed [^`\n]*)")

// contribCommands returns the commands of the files in contrib, each as a block of its own, and that of the container
// in the manifest for Kubernetes.
func contribCommands(t *testing.T) (all []docBlock) {
	t.Helper()
	files := check.Must(filepath.Glob("../contrib/*/*"))(t)
	for _, path := range files {
		if path == ruleTests {
			continue // it repeats the texts of the alerts
		}
		text := readText(t, path)
		file := strings.TrimPrefix(filepath.ToSlash(path), "../")
		for _, at := range contribLine.FindAllStringSubmatchIndex(text, -1) {
			command := text[at[2]:at[3]]
			if strings.HasSuffix(command, "`") {
				continue // the name of a command
			}
			command = strings.TrimSpace(compiled(`\{\{.*`).ReplaceAllString(command, ""))
			all = append(all, docBlock{file, 1 + strings.Count(text[:at[2]], "\n"), []string{command}})
		}
	}
	text := readText(t, manifestFile)
	container := at(objectsOf(t, text)["apps/v1 Deployment"], "spec.template.spec.containers.0")
	var words []string
	for _, key := range []string{"command", "args"} {
		for _, word := range at(container, key).([]any) {
			words = append(words, word.(string))
		}
	}
	line, ok := shell.Line(words...)
	check.Require(t, ok, "%q cannot be written for a shell", words)
	before, _, _ := strings.Cut(text, "command:")
	return append(all, docBlock{strings.TrimPrefix(manifestFile, "../"), 1 + strings.Count(before, "\n"), []string{line}})
}

// docExemption is a command that no test runs, and why.
type docExemption struct{ command, reason string }

var docExemptions = []docExemption{
	{`^kubectl `, "needs a cluster of Kubernetes"},
	{`^systemctl `, "needs systemd, and changes it"},
	{`^journalctl `, "needs systemd, and the unit of locktop"},
	{`^docker `, "needs a daemon and a registry of images"},
	{`^locktop watch --events lost --plain$`, "waits for a failover, as in TestWatchGoesOnOnTheServerThatTakesTheMastersPlace"},
}

// docProject are the commands for the source of locktop. The test looks for their targets,
// packages, flags and tests, and does not run them.
const docProject = `^(?:[A-Z_]+=\S+ |cd \S+ && )*(?:make|go (?:test|build|run \./\S+|run \.\./\S+)) ?`

// Every command of the pages and of contrib is run by TestTheCommandsOfTheDocsRun, or is for
// the source and names what exists, or has an exemption with a reason.
func TestEveryCommandOfTheDocsIsKnown(t *testing.T) {
	t.Parallel()
	var run, project, exempt int
	used := map[string]bool{}
	for _, block := range docBlocks(t) {
		for _, command := range block.commands {
			text := bare(command)
			if compiled(docProject).MatchString(text) {
				project++
				err := existsInProject(text)
				check.True(t, err == nil, "%s: %s: %v", block, text, err)
				continue
			}
			if rule := docRuleFor(text); rule != nil {
				run++
				used[rule.command] = true
				if compiled(`^(\S*locktop|go run \.|for) `).MatchString(text) {
					err := existsInLocktop(text)
					check.True(t, err == nil, "%s: %s: %v", block, text, err)
				}
				continue
			}
			found := false
			for _, e := range docExemptions {
				if found = compiled(e.command).MatchString(text); found {
					exempt++
					used[e.command] = true
					break
				}
			}
			check.True(t, found,
				"%s: %s\nNo rule of docRules says what this command prints, and docExemptions has no reason why it cannot run.", block, text)
		}
	}
	for _, e := range docExemptions {
		check.True(t, used[e.command], "the exemption %s is for no command any more", e.command)
	}
	for _, r := range docRules {
		check.True(t, used[r.command], "the rule %s is for no command any more", r.command)
	}
	t.Logf("%d commands: %d are run, %d are for the source, %d are exempt", run+project+exempt, run, project, exempt)
}

// docNotCommands are the fenced blocks without a label, by their first lines: they have no commands for a shell.
var docNotCommands = []docExemption{
	{`^main ──► `, "the packages"},
	{`^CLASS `, "output of contention; the tests of cli/render print it"},
	{`^→ `, "lines of the protocol for clients"},
	{`^rate\(`, "an expression for Prometheus"},
	{`^ACL SETUSER locktop `, "commands for Redis; TestTheAdvisedRightsAreEnough runs them"},
	{`^ACL SETUSER load `, "a command for Redis; TestTheUserOfALoadNeedsNoOtherRight runs it"},
	{`^ACL SETUSER app `, "a command for Redis; TestTheDocumentedPermissionsAreEnough of lock uses it"},
	{`^\+hello `, "permissions; TestNothingIsSentThatIsNotOnThePrintedList compares them"},
	{`^(:|SET|DEL|HSET|ZADD|SADD|RPUSH|SETRANGE) `, "samples and cases of formats; the tests of keyspace/formats run them"},
}

func TestEveryBlockOfCommandsHasALabel(t *testing.T) {
	used := map[string]bool{}
	for _, page := range docPages(t) {
		text := readText(t, "../"+page)
		for _, label := range []string{"console", "shell", "bash"} {
			for _, block := range fenced(text, page, label) {
				t.Errorf("%s: the block has the label %s: label it sh", block, label)
			}
		}
		for _, block := range fenced(text, page, "") {
			known := slices.ContainsFunc(docNotCommands, func(e docExemption) bool {
				fits := compiled(e.command).MatchString(block.commands[0])
				used[e.command] = used[e.command] || fits
				return fits
			})
			if !known {
				t.Errorf("%s: the block has no label. If it has commands, label it sh; if not, say in docNotCommands what it is:\n%s", block, block.commands[0])
			}
		}
	}
	for _, e := range docNotCommands {
		check.True(t, used[e.command], "no block begins with %s any more", e.command)
	}
}

// A command between backquotes in the text of a page is for the source and names what
// exists, or has a command and flags of locktop.
func TestTheCommandsInTheTextExist(t *testing.T) {
	t.Parallel()
	count := 0
	for _, page := range docPages(t) {
		if page == "CHANGELOG.md" {
			continue // it is about the past
		}
		text := compiled("(?ms)^ *```.*?^ *```").ReplaceAllString(readText(t, "../"+page), "")
		for _, span := range compiled("`([^`]+)`").FindAllStringSubmatch(text, -1) {
			command := strings.Join(strings.Fields(span[1]), " ")
			switch {
			case compiled(docProject).MatchString(command):
				count++
				err := existsInProject(command)
				check.True(t, err == nil, "%s: %s: %v", page, command, err)
			case compiled(`^(sudo )?(\./)?locktop |^go run \. `).MatchString(command):
				count++
				err := existsInLocktop(command)
				check.True(t, err == nil, "%s: %s: %v", page, command, err)
			}
		}
	}
	check.True(t, count != 0, "there is none")
}

// The help has every variable that the program reads, and every variable, flag and exit code that a page names exists.
func TestTheVariablesFlagsAndExitCodesOfTheDocsExist(t *testing.T) {
	t.Parallel()
	for _, path := range append(check.Must(filepath.Glob("*.go"))(t), check.Must(filepath.Glob("connect/*.go"))(t)...) {
		for _, read := range compiled(`os\.(?:Getenv|LookupEnv)\("(\w+)"`).FindAllStringSubmatch(readText(t, path), -1) {
			check.True(t, strings.HasSuffix(path, "_test.go") || strings.Contains(environment, read[1]), "the help has no %s", read[1])
		}
	}
	flags := map[string]bool{"--delete-emptydir-data": true, "--name": true} // of kubectl, and of any program
	parsing.Lock()
	for _, cmd := range append(documented().Commands(), documented()) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) { flags["--"+f.Name] = true })
	}
	parsing.Unlock()
	known := environment + readText(t, "../internal/testtier/testtier.go")
	for _, page := range docPages(t) {
		text := readText(t, "../"+page)
		for _, name := range compiled(`\b(?:(?:LOCKTOP|REDISCLI|XDG|NO)_[A-Z_]+|REDIS_URL)\b`).FindAllString(text, -1) {
			check.True(t, strings.Contains(known, name), "%s: no program reads %s", page, name)
		}
		for _, at := range compiled("`(--[a-z][a-z0-9.-]*)").FindAllStringSubmatch(text, -1) {
			check.True(t, flags[at[1]], "%s: there is no flag %s", page, at[1])
		}
		for _, at := range compiled(`(?:[Ee]xit code (?:is (?:then )?|of )?|exits with |code |(?m:^)\| )(\d+)\b`).FindAllStringSubmatch(text, -1) {
			check.True(t, strings.HasPrefix(page, "lab/") || compiled(`(?m)(^  |, )`+at[1]+`\b`).MatchString(exitCodes), "%s: there is no exit code %s", page, at[1])
		}
	}
}

// A page is short enough to be read: the reference pages, which have tables alone, do not count.
func TestThePagesAreShort(t *testing.T) {
	words := 0
	for _, page := range docPages(t) {
		text := compiled("(?ms)^ *```.*?^ *```").ReplaceAllString(readText(t, "../"+page), "")
		for _, paragraph := range compiled(`\n\s*\n|\n(?:[*-]|\d+\.) `).Split(text, -1) {
			n := len(strings.Fields(paragraph))
			check.True(t, n <= 100 || compiled(`^\s*[|>]`).MatchString(paragraph) || strings.Contains(page, "decisions/"), "%s: a paragraph of %d words: %s", page, n, paragraph)
		}
		if compiled(`^(README|docs/(architecture|contention|export|library|load|operators|stuck-lock))\.md$`).MatchString(page) {
			words += len(compiled(`\S*\pL\S*|\S*\d\S*`).FindAllString(readText(t, "../"+page), -1))
		}
	}
	check.True(t, words <= 16_000, "the pages for people have %d words", words)
}

// Two commands of the README do everything on a machine with Go alone.
func TestTheReadmeBeginsWithTheTwoCommands(t *testing.T) {
	_, block, _ := strings.Cut(readText(t, "../README.md"), "```sh\n")
	check.True(t, compiled(`^go run \. demo +#.*\ngo test \./\.\.\. +#`).MatchString(block), "the first block of the README is %.200s", block)
}

func TestTheHelpHasShortLinesAndExamplesThatExist(t *testing.T) {
	t.Parallel()
	root := Documentation()
	for _, cmd := range append(root.Commands(), root) {
		var out strings.Builder
		cmd.SetOut(&out)
		check.NoError(t, cmd.Help())
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			check.True(t, f.Hidden || strings.Contains(out.String(), "--"+f.Name), "the help of %s has no --%s", cmd.Name(), f.Name)
		})
		for line := range strings.Lines(out.String()) {
			check.True(t, widget.Width(line) <= 100, "%s has a line that is too long: %s", cmd.Name(), line)
		}
		for _, example := range strings.Split(cmd.Example, "\n") {
			example = compiled(`(\S)   *.*`).ReplaceAllString(strings.TrimSpace(example), "$1")
			for part := range strings.SplitSeq(example, ";") {
				part = strings.TrimSpace(part)
				if _, after, loop := strings.Cut(part, "locktop "); loop {
					part = "locktop " + strings.TrimSuffix(after, "&")
				}
				if !strings.HasPrefix(part, "locktop") {
					continue
				}
				err := existsInLocktop(part)
				check.True(t, err == nil, "%s: %s: %v", cmd.Name(), part, err)
			}
		}
	}
}

// compiled is regexp.MustCompile for a pattern that many commands are compared with.
func compiled(pattern string) *regexp.Regexp {
	known, ok := patterns.Load(pattern)
	if !ok {
		known, _ = patterns.LoadOrStore(pattern, regexp.MustCompile(pattern))
	}
	return known.(*regexp.Regexp)
}

var patterns sync.Map // of compiled, by the pattern

// documented returns the command line. parsing guards its flags, which are set by each command that is looked up.
var (
	parsing    sync.Mutex
	documented = sync.OnceValue(func() *cobra.Command {
		root := Documentation()
		root.InitDefaultHelpCmd()
		return root
	})
)

// existsInLocktop returns an error unless locktop has the command and its flags, and takes
// that number of arguments. It looks only at the text before a pipe or a redirection.
func existsInLocktop(command string) error {
	words, err := shell.Split(bare(compiled(` [|>&] .*`).ReplaceAllString(command, "")))
	if err != nil {
		return err
	}
	for i, word := range words {
		if word == "go" { // go run .
			words = words[i+3:]
			break
		}
		if strings.HasSuffix(word, "locktop") {
			words = words[i+1:]
			break
		}
	}
	parsing.Lock()
	defer parsing.Unlock()
	root := documented()
	cmd, rest, err := root.Find(words)
	if err != nil {
		return err
	}
	if cmd == root && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") && rest[0] != "COMMAND" {
		return fmt.Errorf("there is no command %s", rest[0])
	}
	if err := cmd.ParseFlags(rest); !errors.Is(err, pflag.ErrHelp) {
		return err
	}
	return nil
}

// existsInProject returns an error unless the makefile has the target of a command, or the
// folder of a package, the flags of its program and the named tests exist.
func existsInProject(command string) error {
	dir := ".."
	words, err := shell.Split(command)
	if err != nil {
		return err
	}
	for len(words) > 0 && (strings.Contains(words[0], "=") || words[0] == "cd") {
		if words[0] == "cd" {
			dir, words = filepath.Join(dir, words[1]), words[2:] // and &&
		}
		words = words[1:]
	}
	if words[0] == "make" {
		return makeHas(dir, words[1:])
	}
	goCommand, words := words[1], words[2:]
	packages := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, ".") })
	if packages < 0 {
		return errors.New("it names no package")
	}
	pkg := filepath.Join(dir, strings.TrimSuffix(words[packages], "..."))
	source, err := sourceOf(pkg)
	if err != nil || source == "" && filepath.Base(pkg) != "lab" {
		return fmt.Errorf("there is no package in %s: %w", pkg, err)
	}
	for i, word := range words {
		flag := strings.TrimLeft(word, "-")
		switch {
		case goCommand == "run" && flag != word && i > packages:
			if !compiled(`\w\.\w+\((?:&[\w.]+, )?"` + regexp.QuoteMeta(flag) + `"`).MatchString(source) {
				return fmt.Errorf("%s has no flag -%s", pkg, flag)
			}
		case goCommand == "test" && word == "-run" && words[i+1] != "^$":
			if !compiled(`func Test\w*` + strings.TrimPrefix(words[i+1], "Test")).MatchString(source) {
				return fmt.Errorf("%s has no test %s", pkg, words[i+1])
			}
		}
	}
	return nil
}

// sourceOf returns the text of the files of a package. It reads them once.
func sourceOf(pkg string) (string, error) {
	if known, ok := packages.Load(pkg); ok {
		return known.(string), nil
	}
	names, err := filepath.Glob(filepath.Join(pkg, "*.go"))
	if err != nil {
		return "", err
	}
	var all []byte
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return "", err
		}
		all = append(all, text...)
	}
	packages.Store(pkg, string(all))
	return string(all), nil
}

var packages sync.Map // of sourceOf, by the folder

// makeHas returns an error unless a makefile has the targets and variables of a command.
func makeHas(dir string, words []string) error {
	text, err := os.ReadFile(filepath.Join(dir, "Makefile"))
	if err != nil {
		return err
	}
	for _, word := range words {
		variable, _, isVariable := strings.Cut(word, "=")
		pattern := `(?m)^` + word + `:`
		if isVariable {
			pattern = `\$\(` + variable + `\)`
		}
		if !compiled(pattern).Match(text) {
			return fmt.Errorf("the makefile has no %s", word)
		}
	}
	return nil
}
