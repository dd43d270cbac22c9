// Mutants breaks package lock on purpose, one line at a time, and reports which test
// notices: the explorer of lab/explore, or one of the tests of the package. The files stay
// as they are. It runs in the folder lab.
//
//	go run ./mutants -defects             # the table of defects
//	go run ./mutants -sample 40 -seed 7   # some of all mutants
//	go run ./mutants -matrix -sample 60   # which tests notice which mutant
package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// mutant is a file of package lock with a change.
type mutant struct {
	file string // in lock/
	line int    // from 1
	old  string // the line, or its part that differs
	new  string
	why  string // what breaks; empty = a rule made the mutant
	text string // of the whole file
}

func (m mutant) String() string {
	if m.why != "" {
		return m.why
	}
	return fmt.Sprintf("%s:%d `%s` → `%s`", m.file, m.line, m.old, m.new)
}

// rule changes a part of a line, or deletes the line.
type rule struct {
	extension string
	from      *regexp.Regexp
	to        string
}

var rules = []rule{
	{".lua", regexp.MustCompile(`^\s*redis\.p?call\(.*\)$`), ""},
	{".lua", regexp.MustCompile(`==`), "~="},
	{".lua", regexp.MustCompile(` < `), " <= "},
	{".lua", regexp.MustCompile(` <= `), " < "},
	{".lua", regexp.MustCompile(` > `), " >= "},
	{".lua", regexp.MustCompile(` >= `), " > "},
	{".lua", regexp.MustCompile(`, 'PX', [^)]*`), ""},
	{".lua", regexp.MustCompile(`KEYS\[1\]`), "KEYS[2]"},
	{".lua", regexp.MustCompile(` and `), " or "},
	{".go", regexp.MustCompile(`^\t+[a-zA-Z.]+\([^{]*\)$`), ""}, // a call without a result
	{".go", regexp.MustCompile(` == `), " != "},
	{".go", regexp.MustCompile(` != `), " == "},
	{".go", regexp.MustCompile(` && `), " || "},
	{".go", regexp.MustCompile(` \|\| `), " && "},
	{".go", regexp.MustCompile(` > `), " >= "},
	{".go", regexp.MustCompile(` >= `), " > "},
	{".go", regexp.MustCompile(`\bmin\(`), "max("},
	{".go", regexp.MustCompile(`\bmax\(`), "min("},
	{".go", regexp.MustCompile(`\btrue\b`), "false"},
	{".go", regexp.MustCompile(`\bfalse\b`), "true"},
	{".go", regexp.MustCompile(` - `), " + "},
}

// generated returns all mutants that the rules make.
func generated(dir string) (all []mutant, _ error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		file := entry.Name()
		if entry.IsDir() || strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return nil, err
		}
		lines := strings.Split(string(text), "\n")
		for i, line := range lines {
			if trimmed := strings.TrimSpace(line); strings.HasPrefix(trimmed, "--") || strings.HasPrefix(trimmed, "//") {
				continue
			}
			for _, r := range rules {
				at := r.from.FindStringIndex(line)
				if r.extension != filepath.Ext(file) || at == nil {
					continue
				}
				changed := line[:at[0]] + r.to + line[at[1]:]
				whole := slices.Clone(lines)
				whole[i] = changed
				all = append(all, mutant{file, i + 1, strings.TrimSpace(line), strings.TrimSpace(changed), "", strings.Join(whole, "\n")})
			}
		}
	}
	return all, nil
}

// listed returns the mutants of a table: blocks of the lines "# why", "@ file", "- old" and "+ new", where \n breaks a line.
func listed(dir, table string) (all []mutant, _ error) {
	f, err := os.Open(table)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var m mutant
	for lines := bufio.NewScanner(f); lines.Scan(); {
		kind, rest, _ := strings.Cut(lines.Text(), " ")
		switch kind {
		case "#":
			m = mutant{why: rest}
		case "@":
			m.file = rest
		case "-":
			m.old = lineBreaks.Replace(rest)
		case "+":
			m.new = lineBreaks.Replace(rest)
			text, err := os.ReadFile(filepath.Join(dir, m.file))
			if err != nil {
				return nil, err
			}
			if n := strings.Count(string(text), m.old); n != 1 {
				return nil, fmt.Errorf("%s: %q is %d times in %s, and must be there once", m.why, m.old, n, m.file)
			}
			m.text = strings.Replace(string(text), m.old, m.new, 1)
			all = append(all, m)
		}
	}
	return all, nil
}

// lineBreaks replaces the breaks of lines of a table.
var lineBreaks = strings.NewReplacer(`\n`, "\n")

// result is what happened to a mutant.
type result struct {
	by     string // which tests noticed; empty = none
	detail string
}

// suite is tests that may notice a mutant.
type suite struct {
	by       string // its name in results
	dir      string // of its package
	args     []string
	env      []string
	names    []string // of the tests, for a matrix; nil = it is one column
	original string   // binary of the tests with package lock as it is
}

// tester runs suites on mutants.
type tester struct {
	lock   string // folder of package lock
	suites []suite
	work   string
	orders int
	within time.Duration
}

// test builds and runs one suite after the other, until one notices a mutant.
func (t tester) test(m mutant) (result, error) {
	for _, s := range t.suites {
		binary, out, err := t.build(s, m)
		switch {
		case err != nil:
			return result{}, err
		case binary == "":
			return result{"the compiler", out}, nil
		}
		if r := t.tried(s, binary); r.by != "" {
			return r, nil
		}
	}
	return result{}, nil
}

// build builds a suite with a mutant. Without a binary and an error, the compiler refuses it.
func (t tester) build(s suite, m mutant) (binary, out string, _ error) {
	changed, overlay := filepath.Join(t.work, "changed"+filepath.Ext(m.file)), filepath.Join(t.work, "overlay.json")
	list, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(t.lock, m.file): changed}})
	if err := errors.Join(err, os.WriteFile(changed, []byte(m.text), 0o600), os.WriteFile(overlay, list, 0o600)); err != nil {
		return "", "", err
	}
	binary = filepath.Join(t.work, filepath.Base(s.dir)+"-"+m.file+".test")
	build := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", overlay, "-o", binary, ".")
	build.Dir = s.dir
	if out, err := build.CombinedOutput(); err != nil {
		return "", string(out), nil
	}
	return binary, "", nil
}

var (
	order   = regexp.MustCompile(`LOCKTOP_EXPLORE_ORDER='[^']*'`)
	failure = regexp.MustCompile(`(?m)^\s*--- FAIL: (Test\w+)\S*|^panic: .*`)
	late    = regexp.MustCompile(`(?s)panic: test timed out(?:.*?running tests:\n\t+(Test\w+))?`)
)

// tried runs tests. The machine may be busy: the test that fails or does not end runs again alone,
// and if it passes then, all do. What happens twice, and not without the mutant, has killed it.
func (t tester) tried(s suite, binary string) result {
	out, outcome := t.run(s, t.within, binary, s.args)
	if outcome == failed && order.MatchString(out) { // under a fake clock
		return result{s.by, order.FindString(out)}
	}
	if outcome == passed {
		return result{}
	}
	for i, again := range [][]string{alone(out, s.args), s.args} {
		if out, outcome = t.run(s, time.Duration(1+2*i)*t.within, binary, again); outcome == passed {
			continue
		}
		if _, usual := t.run(s, t.within, s.original, alone(out, again)); usual != passed {
			continue
		}
		if outcome == hung {
			return result{s.by + " that hangs", strings.Join(alone(out, again), " ")}
		}
		return result{s.by, strings.TrimSpace(cmp.Or(order.FindString(out), failure.FindString(out)))}
	}
	return result{}
}

// alone returns the arguments that run the test that failed or did not end, args if its name is not known.
func alone(out string, args []string) []string {
	for _, name := range []*regexp.Regexp{late, failure} {
		if found := name.FindStringSubmatch(out); found != nil && found[1] != "" {
			return []string{"-test.run=^" + found[1] + "$"}
		}
	}
	return args
}

// outcome is that of a run of tests.
type outcome uint8

const (
	passed outcome = iota
	failed
	hung // it did not end in time
)

// run runs the tests of a binary until the first failure.
func (t tester) run(s suite, within time.Duration, binary string, args []string) (out string, _ outcome) {
	ctx, cancel := context.WithTimeout(context.Background(), within+10*time.Second)
	defer cancel()
	command := exec.CommandContext(ctx, binary, append([]string{"-test.failfast", "-test.timeout=" + within.String()}, args...)...)
	command.Dir = s.dir
	command.Env = append(append(os.Environ(), s.env...), fmt.Sprint("LOCKTOP_EXPLORE=", t.orders))
	all, err := command.CombinedOutput()
	switch {
	case err == nil:
		return string(all), passed
	case ctx.Err() != nil || late.Match(all):
		return string(all), hung
	}
	return string(all), failed
}

func main() {
	var t tester
	flag.IntVar(&t.orders, "orders", 150, "how many orders of each kind the explorer runs")
	flag.DurationVar(&t.within, "within", time.Minute, "how long the explorer, and the other tests, may take; three times as long when all run again")
	explorer := flag.Bool("explorer", false, "run only the explorer")
	defects := flag.Bool("defects", false, "test the mutants of lab/mutants/defects.txt instead of those of the rules")
	matrix := flag.Bool("matrix", false, "run all tests on each mutant of lab/mutants/defects.txt and of the sample, and print which tests the mutants need")
	simulate := flag.Duration("simulate", 10*time.Second, "how long each of the two simulations runs for -matrix; 0 = only the tests of package lock run")
	sample := flag.Int("sample", 0, "test so many mutants, drawn at random; 0 = all")
	seed := flag.Uint64("seed", 1, "of the sample")
	flag.Parse()
	tests := suite{by: "a test", dir: "../lock"}
	t.suites = []suite{{by: "the explorer", dir: "explore", args: []string{"-test.run=^TestExplore$"}}}
	switch {
	case *matrix && *simulate == 0:
		t.suites = []suite{tests}
	case *matrix:
		t.suites = append(t.suites, tests, suite{by: "the simulations", dir: "simulate"})
	case !*explorer:
		t.suites = append(t.suites, tests)
	}
	if err := run(*defects, *matrix, *simulate, *sample, *seed, t); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(defects, matrix bool, simulate time.Duration, sample int, seed uint64, t tester) (err error) {
	if t.lock, err = filepath.Abs("../lock"); err != nil {
		return err
	}
	if t.work, err = os.MkdirTemp("", "mutants"); err != nil {
		return err
	}
	defer os.RemoveAll(t.work)
	all, err := generated(t.lock)
	if err != nil {
		return err
	}
	if sample > 0 && sample < len(all) {
		choose := rand.New(rand.NewPCG(seed, 0))
		choose.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		all = all[:sample]
	}
	if defects || matrix {
		known, err := listed(t.lock, filepath.Join("mutants", "defects.txt"))
		if err != nil {
			return err
		}
		if defects {
			all = nil
		}
		all = append(known, all...)
	}
	for i, s := range t.suites {
		var out string
		if t.suites[i].original, out, err = t.build(s, mutant{file: "original.go", text: "package lock\n"}); err == nil && t.suites[i].original == "" {
			err = fmt.Errorf("package lock as it is: %s", out)
		}
		if err != nil {
			return err
		}
	}
	if matrix {
		return t.matrix(all, simulate)
	}
	by := map[string]int{}
	for i, m := range all {
		r, err := t.test(m)
		if err != nil {
			return err
		}
		by[r.by]++
		fmt.Printf("%3d  %s\n     %s\n", i+1, m, r)
	}
	fmt.Printf("%d mutants, %d killed: %v\n", len(all), len(all)-by[""], by)
	return nil
}

func (r result) String() string {
	if r.by == "" {
		return "SURVIVES"
	}
	return fmt.Sprintf("killed by %s: %s", r.by, r.detail)
}
