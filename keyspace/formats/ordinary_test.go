package formats_test

import (
	"crypto/md5"
	"fmt"
	"strconv"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/testtier"
	"locktop/keyspace"
	"locktop/keyspace/formats"
	"locktop/keyspace/inspect"
)

// Caches contain digests, and counters have names with the word lock. None of
// them is a likely lock, however many there are.
func TestCachesAndCountersAreNotLikelyLocks(t *testing.T) {
	t.Parallel()
	rdb := connect(t, server.ForTest(t).Addr())
	p := rdb.Pipeline()
	for i := range testtier.Size(4_000, 20_000, 20_000) {
		p.Set(t.Context(), fmt.Sprintf("page:%d", i), fmt.Sprintf("%x", md5.Sum([]byte(strconv.Itoa(i)))), time.Hour)
	}
	counters := []string{
		"lock:failed_attempts", "lock_version", "lock:counter", "locks:total", "lock:42:retries", "mutex:acquired", "lock.waiters:7",
		"leader:epoch", "leader:term", "lease:seq", "semaphore:count", "lock-revision", "singleton:version", "locks:fencing-token", "lock:fence:7",
	}
	for i, key := range counters {
		p.Set(t.Context(), key, 1+i, 0)
		p.Set(t.Context(), "short:"+key, 1+i, time.Minute)
	}
	check.Must(p.Exec(t.Context()))(t)
	for _, l := range scan(t, rdb).Locks {
		check.True(t, l.Confidence < keyspace.Likely, "%s is %s to be a %s: %q", l.Key, l.Confidence, l.Format, l.Evidence)
	}
	for _, l := range scanFor(t, rdb, inspect.ScanOptions{Formats: everyFormat, MinConfidence: keyspace.Possible}).Locks {
		check.True(t, l.Key != "locks:fencing-token" && l.Key != "lock:fence:7",
			"%s, which numbers holders, is possibly a %s", l.Key, l.Format)
	}
}

// The same rules must accept tokens of the last weeks, markers, times, and
// locks whose names end in a word that counters use.
func TestLocksWithNumbersAndOldTokensAreStillLikely(t *testing.T) {
	rdb := connect(t, server.ForTest(t).Addr())
	now := clock(t, rdb)
	week := formats.At(keyspace.Sample{Commands: [][]string{{"SET", "job:nightly", "{v1hex-604800000/5e}"}}}, now)
	want := []string{"job:nightly", "lock:42", "lock:page:7", "lock:report", "lock:sync", "lock_version", "scheduler:leader"}
	load(t, rdb, week.Commands...)
	load(t, rdb,
		[]string{"SET", "lock:report", "1"},
		[]string{"SET", "lock:page:7", "1", "PX", "30000"},
		[]string{"SET", "lock:42", "42", "PX", "30000"},
		[]string{"SET", "lock:sync", strconv.FormatInt(now.Unix(), 10)},
		[]string{"SET", "lock_version", client, "PX", "30000"},
		[]string{"SET", "scheduler:leader", "4242", "PX", "30000"},
	)
	check.Equal(t, fmt.Sprint(keys(scan(t, rdb))), fmt.Sprint(want), "found")
}

// The holders of dramatiq's permits are not known, but the number of permits in use is.
func TestPermitsThatAreOutAreHeld(t *testing.T) {
	rdb := connect(t, server.ForTest(t).Addr())
	load(t, rdb, []string{"SET", "pdf-workers", "2", "PX", "60000"})
	want := map[string]keyspace.State{"pdf-workers": keyspace.Held}
	snap := scanFor(t, rdb, inspect.ScanOptions{Formats: everyFormat, MinConfidence: keyspace.Possible})
	for _, l := range snap.Locks {
		check.True(t, l.State(snap.At) == want[l.Key], "%s is %s, want %s", l.Key, l.State(snap.At), want[l.Key])
		delete(want, l.Key)
	}
	check.True(t, len(want) == 0, "it does not see %v", want)
}
