package cli

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"locktop/keyspace"
	"locktop/keyspace/recording"
)

// The limits of a replay count instead of those of the recorder. A flag that a recording
// cannot obey is refused.
func TestAReplayObeysItsFlagsOrRefusesThem(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "night.lockrec")
	f, err := os.Create(file)
	must(t, err)
	w := recording.NewWriter(f, false)
	at := time.Now().Add(-time.Hour).Truncate(time.Second)
	for i := range 3 {
		l := keyspace.Lock{Key: "lock:a", Format: "set-nx", Kind: keyspace.Mutex, Expires: at.Add(time.Hour), Holders: []keyspace.Holder{{ID: token, Count: 1, Since: at.Add(-time.Minute)}}}
		must(t, w.Add(keyspace.Snapshot{At: at.Add(time.Duration(i) * time.Second), Locks: []*keyspace.Lock{&l}, Complete: true}))
	}
	must(t, w.Close())
	must(t, f.Close())
	openTerminal(t, 120, 30, "replay", file, "--overdue", "20s").want("the configured limit is 20 s").quit()
	openTerminal(t, 120, 30, "replay", file).want("no findings").quit()
	for _, flag := range []string{"--all", "--match=x*", "--lock=x*", "--budget=2%"} {
		locktop(t, "replay", file, flag).fails(t, exitUsage)
	}
}
