// Package scenarios has the scenarios that come with locktop, one a file. Each
// shows one thing, in seconds, and knows what must be seen at its end.
package scenarios

import (
	"fmt"

	"locktop/loadgen"
)

// All returns the scenarios, in the order in which they tell the story of locks.
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
	}
}

// Find returns the scenario of a name.
func Find(name string) (s loadgen.Scenario, found bool) {
	for _, s := range All() {
		if s.Name == name {
			return s, true
		}
	}
	return loadgen.Scenario{}, false
}

// expect reads what is seen at the end of a scenario. What it cannot read is an
// error of this package, which its tests find.
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
