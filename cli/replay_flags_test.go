package cli

import (
	"testing"
	"time"

	"locktop/keyspace"
)

// The limits of a replay count instead of those of the recorder. A flag that a recording
// cannot obey is refused.
func TestAReplayObeysItsFlagsOrRefusesThem(t *testing.T) {
	t.Parallel()
	var all []keyspace.Snapshot
	at := time.Now().Add(-time.Hour).Truncate(time.Second)
	for i := range 3 {
		l := keyspace.Lock{Key: "lock:a", Format: "set-nx", Kind: keyspace.Mutex, Expires: at.Add(time.Hour), Holders: []keyspace.Holder{{ID: token, Count: 1, Since: at.Add(-time.Minute)}}}
		all = append(all, keyspace.Snapshot{At: at.Add(time.Duration(i) * time.Second), Locks: []*keyspace.Lock{&l}, Complete: true})
	}
	file := recorded(t, all...)
	openTerminal(t, 120, 30, "replay", file, "--overdue", "20s").want("the configured limit is 20 s").quit()
	openTerminal(t, 120, 30, "replay", file).want("no findings").quit()
	for _, flag := range []string{"--all", "--match=x*", "--lock=x*", "--budget=2%"} {
		locktop(t, "replay", file, flag).fails(t, exitUsage)
	}
}
