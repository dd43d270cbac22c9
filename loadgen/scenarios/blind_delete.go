package scenarios

import (
	"time"

	"locktop/loadgen"
)

// blindDelete shows an unlock by DEL without a check of the owner.
func blindDelete() loadgen.Scenario {
	return loadgen.Scenario{
		Name: "blind-delete",
		Caption: "Sometimes the work takes longer than the TTL, and then the holder deletes the key without a check of its owner. " +
			"The key is by then the lock of the next holder, so a third client enters beside that one.",
		Watch:    "foreign unlocks, and the overlaps that follow them",
		Lock:     loadgen.Lock{Kind: "classic/blind-delete", TTL: 300 * time.Millisecond},
		Keys:     loadgen.Keys{Pick: loadgen.PickOne, N: 1},
		Clients:  6,
		Hold:     loadgen.Bimodal(100*time.Millisecond, 450*time.Millisecond, 0.3),
		Think:    loadgen.Exp(20 * time.Millisecond),
		Expect:   expect("foreign-unlock.count > 0", "overlap.count > 0", "late-work.count > 0"),
		Duration: 6 * time.Second,
	}
}
