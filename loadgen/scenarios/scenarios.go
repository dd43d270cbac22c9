// Package scenarios contains the ready-made scenarios, one per file. Each shows one
// effect within seconds, and expects it in its metrics.
package scenarios

import (
	"fmt"

	"locktop/loadgen"
)

// All returns the scenarios, from simple to advanced, and then those of the historic
// kinds.
func All() []loadgen.Scenario {
	return []loadgen.Scenario{
		hotKey(),
		herd(),
		crash(),
		freeze(),
		freezeFenced(),
		renewal(),
		renewalBounded(),
		readersWriters(),
		reentrant(),
		semaphore(),
		severalKeys(),
		redlockMinority(),
		redlockMajority(),
		phantom(),
		setnxCrash(),
		getsetSkew(),
		blindDelete(),
		getThenDel(),
		counted(),
		twoKeyRw(),
		stampRw(),
		quorumSemaphore(),
	}
}

// Find returns the scenario with this name.
func Find(name string) (s loadgen.Scenario, found bool) {
	for _, s := range All() {
		if s.Name == name {
			return s, true
		}
	}
	return loadgen.Scenario{}, false
}

// expect parses thresholds. It panics if one is invalid.
func expect(texts ...string) []loadgen.Threshold {
	all := make([]loadgen.Threshold, len(texts))
	for i, text := range texts {
		t, err := loadgen.ParseThreshold(text)
		if err != nil {
			panic(fmt.Sprintf("scenarios: %v", err))
		}
		all[i] = t
	}
	return all
}
