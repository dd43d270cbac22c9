package formats_test

import (
	"context"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/servertest"
	"locktop/keyspace"
	"locktop/keyspace/inspect"
)

// The next hold of a hand-over has the next number. It is no second entry. locktop does not subscribe to the releases: only a
// pattern for the channels of all software would match those of every namespace.
func TestAHandOverOfRedfourIsNoSecondEntry(t *testing.T) {
	t.Parallel()
	const (
		acquire = "local i = redis.call('INCR', KEYS[2]) redis.call('HMSET', KEYS[1], 'index', i) return redis.call('PEXPIRE', KEYS[1], 30000)"
		release = "redis.call('DEL', KEYS[1]) redis.call('PUBLISH', 'jobs-release', KEYS[1]) "
	)
	rdb := connect(t, servertest.RedisForTest(t).Addr())
	run := func(script string) {
		t.Helper()
		check.NoError(t, rdb.Eval(t.Context(), script, []string{"jobs:lock:7", "jobsindex"}).Err())
	}
	run(acquire)
	f := inspect.NewWatcher(inspect.NewScanner(rdb, inspect.ScanOptions{Formats: everyFormat}))
	defer f.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var seen []string
	await := func(so func() bool) {
		t.Helper()
		for !so() {
			events, _, err := f.Next(ctx)
			check.NoError(t, err, "after %q", seen)
			for _, e := range events {
				seen = append(seen, string(e.Kind)+" "+e.Holder.ID)
			}
		}
	}
	await(func() bool { return len(seen) > 0 && f.Known().Watch.Mode == keyspace.Push })
	run(release + acquire)
	await(func() bool { return len(seen) >= 3 })
	check.DeepEqual(t, seen, []string{"appeared 1", "replaced 1", "acquired 2"}, "the events are")
	run(release + "return 1")
	await(func() bool { return len(seen) >= 4 })
	check.Equal(t, seen[3], "released 2", "the end of the second hold is")
}
