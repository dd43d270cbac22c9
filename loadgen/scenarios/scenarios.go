// Package scenarios contains the ready-made scenarios. Each shows one effect within
// seconds, and expects it in its metrics; lab/proofs runs them all.
package scenarios

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"locktop/loadgen"
)

// scenarios is one scenario file after another. Each begins with the name.
//
//go:embed scenarios.yaml
var scenarios string

// suite is one row of the suite after another, in the same form.
//
//go:embed suite.yaml
var suite string

// Suite returns the rows of the suite: a client must keep its promises in each that its kind of lock can run.
func Suite() []loadgen.Scenario {
	return parsed(strings.Split(suite, "---\n"), loadgen.Read) // of its own kind of lock, a row need not be valid
}

func files() []string { return strings.Split(scenarios, "---\n") }

// Names returns the names of the scenarios, in the order of [All].
func Names() (names []string) {
	for _, file := range files() {
		name, _, _ := strings.Cut(file, "\n")
		names = append(names, strings.TrimPrefix(name, "name: "))
	}
	return names
}

// All returns the scenarios, from simple to advanced, and then those of the historic kinds.
// The caller owns them.
func All() []loadgen.Scenario { return parsed(files(), loadgen.Parse) }

// Find returns the scenario with this name.
func Find(name string) (s loadgen.Scenario, found bool) {
	i := slices.Index(Names(), name)
	if i < 0 {
		return loadgen.Scenario{}, false
	}
	return parsed(files()[i:i+1], loadgen.Parse)[0], true
}

func parsed(files []string, parse func([]byte) (loadgen.Scenario, error)) (all []loadgen.Scenario) {
	for _, file := range files {
		s, err := parse([]byte(file))
		if err != nil {
			panic(fmt.Sprintf("scenarios: %v in\n%s", err, file)) // a test reads all
		}
		all = append(all, s)
	}
	return all
}
