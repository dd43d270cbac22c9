package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// mostConfirmed is how many failing tests of a mutant run again. They say enough about it.
const mostConfirmed = 15

// matrix prints which tests fail for each mutant: all of them, not only the first. The explorer and
// the simulations are one column each. At the end it prints which columns the mutants need.
func (t tester) matrix(all []mutant, simulate time.Duration) error {
	var columns []string
	for i := range t.suites {
		s := &t.suites[i]
		if s.dir == "simulate" {
			s.env = []string{fmt.Sprint("LOCKTOP_SIMULATE=", simulate)}
		}
		if s.by != "a test" {
			columns = append(columns, s.by)
			continue
		}
		began := time.Now()
		names, err := s.steady(t)
		if err != nil {
			return err
		}
		usual := time.Since(began)
		t.within = max(t.within, 4*usual)
		fmt.Printf("%d tests pass without a mutant, in %v\n", len(names), usual.Round(time.Second))
		columns, s.names = append(columns, names...), names
	}
	var killed [][]string // the columns that notice, by mutant
	for i, m := range all {
		by, err := t.columns(m, simulate)
		if err != nil {
			return err
		}
		if by == nil {
			fmt.Printf("%3d  %s\n     the compiler refuses it\n", i+1, m)
			continue
		}
		killed = append(killed, by)
		fmt.Printf("%3d  %s\n     %s\n", i+1, m, cmp.Or(strings.Join(by, ", "), "SURVIVES"))
	}
	printCover(columns, killed)
	return nil
}

// columns returns the columns that notice a mutant; nil if it does not compile.
func (t tester) columns(m mutant, simulate time.Duration) ([]string, error) {
	by := []string{}
	for _, s := range t.suites {
		binary, _, err := t.build(s, m)
		switch {
		case err != nil || binary == "":
			return nil, err
		case s.names != nil:
			by = append(by, t.failing(s, binary)...)
		case t.whole(s, binary, t.within+2*simulate):
			by = append(by, s.by)
		}
	}
	return by, nil
}

// printCover prints how many mutants the explorer and the simulations kill, a small set of columns
// that kills what all kill, and the other columns.
func printCover(columns []string, killed [][]string) {
	kills, alone := make(map[string]int), make(map[string]int)
	for _, by := range killed {
		for _, name := range by {
			kills[name]++
			if len(by) == 1 {
				alone[name]++
			}
		}
	}
	needed := cover(killed)
	fmt.Printf("%d columns kill what all kill of %d mutants (kills, alone):\n", len(needed), len(killed))
	for _, name := range needed {
		fmt.Printf("%4d %4d  %s\n", kills[name], alone[name], name)
	}
	columns = slices.DeleteFunc(columns, func(name string) bool { return slices.Contains(needed, name) })
	fmt.Printf("%d columns that no mutant needs (kills):\n", len(columns))
	for _, name := range columns {
		fmt.Printf("%4d       %s\n", kills[name], name)
	}
}

// cover returns the column that kills the most mutants, then the one that kills the most of the
// rest, and so on.
func cover(killed [][]string) (needed []string) {
	rest := slices.DeleteFunc(slices.Clone(killed), func(by []string) bool { return len(by) == 0 })
	for len(rest) > 0 {
		kills := make(map[string]int)
		for _, by := range rest {
			for _, name := range by {
				kills[name]++
			}
		}
		best := slices.MaxFunc(slices.Sorted(maps.Keys(kills)), func(a, b string) int { return cmp.Compare(kills[a], kills[b]) })
		needed = append(needed, best)
		rest = slices.DeleteFunc(rest, func(by []string) bool { return slices.Contains(by, best) })
	}
	return needed
}

// steady returns the tests of a suite that pass without a mutant.
func (s suite) steady(t tester) ([]string, error) {
	list := exec.Command(s.original, "-test.list", "^Test")
	list.Dir = s.dir
	out, err := list.Output()
	if err != nil {
		return nil, err
	}
	o := t.all(s, s.original, strings.Fields(string(out)))
	if !o.ended {
		return nil, fmt.Errorf("package lock as it is: the tests end in %v", o.running)
	}
	return o.passed, nil
}

// whole reports whether a suite under a fake clock fails, twice and not without the mutant.
func (t tester) whole(s suite, binary string, within time.Duration) bool {
	for range 2 {
		if _, outcome := t.run(s, within, binary, s.args); outcome == passed {
			return false
		}
	}
	_, usual := t.run(s, within, s.original, s.args)
	return usual == passed
}

// failing returns the tests that fail or do not end with a mutant, twice and not without it. Of more
// than mostConfirmed it returns some.
func (t tester) failing(s suite, binary string) []string {
	var suspects []string
	for rest := s.names; len(rest) > 0 && len(suspects) < mostConfirmed; {
		o := t.all(s, binary, rest)
		suspects = append(suspects, o.failed...)
		if o.ended {
			break
		}
		// A test that panics or does not end has ended all: the others run without it.
		if died := o.running; len(o.failed) == 0 || o.hung {
			suspects = append(suspects, died...)
		}
		left := slices.DeleteFunc(slices.Clone(rest), func(name string) bool {
			return slices.Contains(suspects, name) || slices.Contains(o.passed, name)
		})
		if len(left) == len(rest) {
			break // it ended before its first test
		}
		rest = left
	}
	return t.confirmed(s, binary, suspects[:min(len(suspects), mostConfirmed)])
}

// confirmed returns the tests that fail with a mutant and pass without it, each alone.
func (t tester) confirmed(s suite, binary string, suspects []string) []string {
	const together = 3 // a test that waits for what does not come takes long
	twice := make([]bool, len(suspects))
	free := make(chan struct{}, together)
	var busy sync.WaitGroup
	for i, name := range suspects {
		busy.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			args := []string{"-test.run=^" + name + "$"}
			if _, outcome := t.run(s, t.within, binary, args); outcome != passed {
				_, usual := t.run(s, t.within, s.original, args)
				twice[i] = usual == passed
			}
		})
	}
	busy.Wait()
	var all []string
	for i, name := range suspects {
		if twice[i] {
			all = append(all, name)
		}
	}
	return all
}

// outcomes are those of the tests of one run.
type outcomes struct {
	passed, failed []string
	running        []string // when the run broke off
	ended          bool     // no test broke the run off
	hung           bool
}

// event is a line of a test binary about a test that is not a subtest.
var event = regexp.MustCompile(`(?m)^(=== RUN|=== PAUSE|=== CONT|--- PASS:|--- FAIL:|--- SKIP:) +(Test\w+)(?: \(.*)?$`)

// all runs tests, and does not stop at the first failure.
func (t tester) all(s suite, binary string, names []string) (o outcomes) {
	ctx, cancel := context.WithTimeout(context.Background(), t.within+10*time.Second)
	defer cancel()
	command := exec.CommandContext(ctx, binary, "-test.v", "-test.timeout="+t.within.String(), "-test.run=^("+strings.Join(names, "|")+")$")
	command.Dir, command.Env = s.dir, append(os.Environ(), s.env...)
	out, err := command.CombinedOutput()
	running := make(map[string]bool)
	for _, e := range event.FindAllStringSubmatch(string(out), -1) {
		kind, name := e[1], e[2]
		running[name] = kind == "=== RUN" || kind == "=== CONT"
		switch kind {
		case "--- PASS:", "--- SKIP:":
			o.passed = append(o.passed, name)
		case "--- FAIL:":
			o.failed = append(o.failed, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(running)) {
		if running[name] {
			o.running = append(o.running, name)
		}
	}
	o.hung = ctx.Err() != nil || late.Match(out)
	var exit *exec.ExitError
	o.ended = err == nil || errors.As(err, &exit) && exit.ExitCode() == 1 && !o.hung // 2 after a panic
	return o
}
