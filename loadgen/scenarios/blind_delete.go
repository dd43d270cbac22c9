package scenarios

import (
	"time"

	"locktop/loadgen"
)

// blindDelete shows an unlock by DEL without a check of the owner.
func blindDelete() loadgen.Scenario {
	return loadgen.Scenario{
		Name: "blind-delete",
		Caption: "Now and then the work takes longer than the lock, and its holder deletes, when it is done, whatever lock is there. " +
			"That is the next one's, and a third client gets in beside it.",
		Watch:    "foreign unlocks, each followed by an overlap",
		Lock:     loadgen.Lock{Kind: "classic/blind-delete", TTL: 300 * time.Millisecond},
		Keys:     loadgen.Keys{Pick: loadgen.PickOne, N: 1},
		Clients:  6,
		Hold:     loadgen.Bimodal(100*time.Millisecond, 450*time.Millisecond, 0.3),
		Think:    loadgen.Exp(20 * time.Millisecond),
		Expect:   expect("foreign-unlock.count > 0", "overlap.count > 0", "late-work.count > 0"),
		Duration: 6 * time.Second,
	}
}
