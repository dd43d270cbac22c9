package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"locktop/internal/check"
	"locktop/loadgen"
)

func TestTheSchemaOfScenariosHasTheKeysOfAFile(t *testing.T) {
	const schema, faults = "../../docs/scenario.schema.json", "properties/faults/items/properties"
	for what, pair := range map[string][2][]string{
		"a scenario": {readKeys("x: 1"), slices.Sorted(maps.Keys(check.Part[map[string]any](t, schema, "properties")))},
		"a fault":    {readKeys("faults: [{x: 1}]"), slices.Sorted(maps.Keys(check.Part[map[string]any](t, schema, faults)))},
	} {
		slices.Sort(pair[0])
		check.DeepEqual(t, pair[0], pair[1], "%s", what)
	}
	for _, kind := range loadgen.FaultKinds() {
		check.True(t, slices.Contains(check.Part[[]any](t, schema, faults+"/fault/enum"), any(string(kind))),
			"the schema does not know the fault %s", kind)
	}
}

// readKeys returns the keys that the error about a file with a wrong key lists.
func readKeys(file string) []string {
	_, err := loadgen.Parse([]byte(file))
	_, keys, _ := strings.Cut(fmt.Sprint(err), "there are ")
	return strings.Fields(keys)
}

func TestThresholdsHaveTheNamesOfTheReports(t *testing.T) {
	for _, name := range []string{"release.p99", "service.p99", "hand-off.p50", "handoff.p50", "timed-out.count", "timeouts.count", "timed_out.rate"} {
		_, err := loadgen.ParseThreshold(name + " >= 0")
		check.True(t, err == nil || strings.Contains(err.Error(), "is not a duration"), "%s: %v", name, err)
	}
}
