package inspect

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/netfault"
	"locktop/internal/testtier"
	"locktop/keyspace"
	"locktop/keyspace/order"
)

func follow(rdb Client, o ScanOptions) *Watcher {
	return NewWatcher(NewScanner(rdb, o))
}

// watch returns a watcher, which the test closes at its end.
func watch(t testing.TB, rdb Client, o ScanOptions) *Watcher {
	w := follow(rdb, o)
	t.Cleanup(w.Close)
	return w
}

// pushing is [watch] for a watcher to which the server reports changes.
func pushing(t testing.TB, rdb Client, o ScanOptions) *Watcher {
	t.Helper()
	w := watch(t, rdb, o)
	followed(t, w, pushes)
	return w
}

// inBackground is [watch] for a watcher in the background.
func inBackground(t testing.TB, rdb Client, o ScanOptions) *BackgroundWatcher {
	b := StartWatcher(follow(rdb, o))
	t.Cleanup(b.Close)
	return b
}

func next(t testing.TB, f *Watcher) keyspace.Snapshot {
	t.Helper()
	return check.Must(f.Snapshot(t.Context()))(t)
}

// until calls the watcher until a condition on the snapshot holds, for at most 30 s.
func until(t testing.TB, f *Watcher, so func(keyspace.Snapshot) bool) keyspace.Snapshot {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; {
		s := next(t, f)
		if so(s) {
			return s
		}
		check.Require(t, !time.Now().After(deadline), "it stays at %q", keys(s))
		time.Sleep(time.Millisecond)
	}
}

func complete(s keyspace.Snapshot) bool { return s.Complete }
func pushes(s keyspace.Snapshot) bool   { return s.Complete && s.Watch.Mode == keyspace.Push }

func TestAWatcherSeesLocksComeAndGo(t *testing.T) {
	rdb := realServer(t)
	do(t, rdb, "SET", "a", "token:1", "PX", 60_000)
	f := follow(rdb, justTokens())
	first := until(t, f, complete)
	check.Require(t, slices.Equal(keys(first), []string{"a"}) && first.Locks[0].Holders[0].Since.IsZero(), "at first: %+v", first.Locks)

	do(t, rdb, "SET", "b", "token:2", "PX", 60_000)
	second := until(t, f, func(s keyspace.Snapshot) bool { return len(s.Locks) == 2 })
	check.Equal(t, second.Locks[1].Holders[0].Since, second.At, "b is held since")
	check.True(t, second.Locks[1].Holders[0].Late > 0, "a scan has found b, which may be older")

	do(t, rdb, "DEL", "a")
	do(t, rdb, "SET", "b", "token:3", "PX", 60_000)
	third := next(t, f)
	check.True(t, slices.Equal(keys(third), []string{"b"}), "after a is gone: %q", keys(third))
	got := words(keyspace.Diff(second, third))
	check.True(t, len(got) == 3 && got[1] == "acquired token:3" && got[2] == "released token:1", "got %q", got)
}

// A known lock is read when it changes, not again in each pass.
func TestAPassProbesNoWatchedKeys(t *testing.T) {
	testtier.Long(t, "it watches a server for seconds")
	t.Parallel()
	rdb := realServer(t)
	const locks = 300
	for i := range locks {
		do(t, rdb, "SET", fmt.Sprintf("lock:%d", i), "token:x", "PX", 600_000)
	}
	f := pushing(t, rdb, justTokens())
	walked, read := called(t, rdb, "scan"), called(t, rdb, "getrange")
	followed(t, f, func(keyspace.Snapshot) bool { return called(t, rdb, "scan") >= walked+6 })
	check.AtMost(t, called(t, rdb, "getrange")-read, locks/10, "values that were read again, of %d unchanged locks", locks)
}

// called returns how often a command was called.
func called(t *testing.T, rdb *redis.Client, name string) (calls int) {
	t.Helper()
	_, _ = fmt.Sscanf(stats(t, rdb)[name], "calls=%d,", &calls) // 0 if it was never called
	return calls
}

// One call does a limited amount of work. Locks are shown before the first pass has ended.
func TestACallIsBoundedHoweverLargeTheKeyspace(t *testing.T) {
	t.Parallel()
	rdb := realServer(t)
	for i := range testtier.Size(6, 30, 30) { // much more than a call reads
		fillFrom(t, rdb, 10_000*i, 10_000)
	}
	for i := range 100 {
		do(t, rdb, "SET", fmt.Sprintf("lock:%d", i), "token:x")
	}
	f := follow(rdb, justTokens())
	calls, early := 0, 0
	s := until(t, f, func(s keyspace.Snapshot) bool {
		calls++
		if !s.Complete && len(s.Locks) > 0 {
			early++
		}
		return s.Complete
	})
	check.True(t, len(s.Locks) == 100, "found %d locks, want 100", len(s.Locks))
	check.True(t, calls >= 2 && early != 0, "%d calls, of which %d showed a part; one cannot do it all", calls, early)
	check.True(t, s.Cost.Scanned == s.Cost.Keys, "the complete snapshot has %d out of %d keys", s.Cost.Scanned, s.Cost.Keys)
}

// fillFrom sets strings that are not locks.
func fillFrom(t testing.TB, rdb *redis.Client, from, n int) {
	t.Helper()
	args := make([]any, 0, 2*n)
	for i := range n {
		args = append(args, fmt.Sprintf("ordinary:%d", from+i), "value")
	}
	check.NoError(t, rdb.MSet(t.Context(), args...).Err())
}

// A busy server answers with an error. Known locks do not disappear then, and a scan does not show an empty keyspace.
func TestABusyServerTakesNoLockAway(t *testing.T) {
	rdb := realServer(t, "--lua-time-limit", "1") // answers BUSY to others after 1 ms; Redis 7 has renamed the option and still accepts this name
	do(t, rdb, "SET", "a", "token:1")
	f := follow(rdb, justTokens())
	before := until(t, f, complete)
	release := occupy(t, rdb)
	_, err := f.Snapshot(t.Context())
	check.True(t, redis.HasErrorPrefix(err, "BUSY"), "got %v", err)
	_, err = NewScanner(rdb, justTokens()).Scan(t.Context())
	check.ErrorContains(t, err, "BUSY", "scanning")
	release()
	after := next(t, f)
	events := keyspace.Diff(before, after)
	check.True(t, len(events) == 0 && len(after.Locks) == 1, "got %q", words(events))
}

func TestAKeyThatBecomesSomethingElseIsNoLockAnyMore(t *testing.T) {
	rdb := realServer(t)
	do(t, rdb, "SET", "a", "token:1")
	do(t, rdb, "SET", "b", "token:1")
	f := follow(rdb, justTokens())
	until(t, f, complete)
	do(t, rdb, "DEL", "a")
	do(t, rdb, "RPUSH", "a", "token:1")
	do(t, rdb, "SET", "b", "something else")
	check.Equal(t, fmt.Sprint(keys(next(t, f))), "[]", "found")
}

func TestSnapshotsAreNeverChanged(t *testing.T) {
	rdb := realServer(t)
	do(t, rdb, "SET", "a", "token:1", "PX", 10_000)
	f := follow(rdb, justTokens())
	first := until(t, f, complete)
	before := fmt.Sprintf("%+v", first)
	do(t, rdb, "SET", "a", "token:2", "PX", 20_000)
	next(t, f)
	do(t, rdb, "PEXPIRE", "a", 30_000)
	next(t, f)
	check.Equal(t, fmt.Sprintf("%+v", first), before, "the first snapshot is")
}

// The test runs an hour in fake time, or a quarter in the first tier: a lock with a TTL of 1 min that is
// acquired again when it expires, and one that is renewed all the time.
func TestAnHourOfWatching(t *testing.T) {
	seconds := testtier.Size(540, 3600, 3600)
	bubble(t, func(t *testing.T, rdb *redis.Client, _ *netfault.Network) {
		f := follow(rdb, justTokens())
		do(t, rdb, "SET", "renewed", "token:always", "PX", 60_000)
		last := next(t, f)
		time.Sleep(time.Second)
		kinds := make(map[string]int)
		for second := range seconds {
			if second%90 == 0 {
				do(t, rdb, "SET", "often", fmt.Sprintf("token:%d", second), "PX", 60_000)
			}
			if second%20 == 0 {
				do(t, rdb, "PEXPIRE", "renewed", 60_000)
			}
			now := next(t, f)
			for _, e := range keyspace.Diff(last, now) {
				kinds[string(e.Kind)+" "+e.Lock.Key]++
				check.True(t, e.Kind != keyspace.Expired || e.Held == time.Minute, "a lock of a minute was held for %v", e.Held)
			}
			l := now.Locks[0]
			check.True(t, second != seconds-80 || l.Key == "often" && l.MedianHold == time.Minute,
				"holds of %s typically last %v", l.Key, l.MedianHold)
			last = now
			time.Sleep(time.Second)
		}
		want := map[string]int{"acquired often": seconds / 90, "expired often": seconds / 90, "renewed renewed": seconds / 20}
		check.True(t, fmt.Sprint(kinds) == fmt.Sprint(want), "got %v, want %v", kinds, want)
	})
}

// words tells events briefly.
func words(events []keyspace.Event) []string {
	var all []string
	for _, e := range events {
		word := fmt.Sprintf("%s %s", e.Kind, e.Holder.ID+e.Waiter.ID)
		if e.Held > 0 {
			word += " " + e.Held.String()
		}
		all = append(all, word)
	}
	return all
}

// What a watcher sees is enough to find threads that acquire two locks in both orders.
func TestAWatcherFindsTheOrderOfLocks(t *testing.T) {
	t.Parallel()
	rdb := realServer(t)
	w := watch(t, rdb, ScanOptions{Formats: []keyspace.Format{anyString}, Order: new(order.Graph)})
	await := func(key string, held bool) {
		t.Helper()
		for (w.locks.known[key] != nil) != held || !w.scan.complete {
			_, _, err := w.Next(t.Context())
			check.Require(t, err == nil, "waiting for %s: %v", key, err)
		}
		check.Must(w.Snapshot(t.Context()))(t) // the next change is later than this read
	}
	do(t, rdb, "SET", "lock:known", "token")
	await("lock:known", true)
	for token, keys := range map[string][2]string{"8743c9c0-0795-4907-87fd-6c719a6b4586:1": {"lock:a", "lock:b"}, "1f6bd2aa-5f0c-4c2c-9a53-3f0e6a0b7c11:7": {"lock:b", "lock:a"}} {
		for found := 0; found < 5; found++ { // a busy machine may read late
			for _, key := range keys {
				do(t, rdb, "SET", key, token)
				await(key, true)
				time.Sleep(2 * (w.lateness() + 5*time.Millisecond)) // more than the errors of both begins
			}
			for _, key := range []string{keys[1], keys[0]} {
				do(t, rdb, "DEL", key)
				await(key, false)
			}
		}
	}
	found := w.Known().Inversions
	check.True(t, len(found) == 1 && found[0].Certain, "the orders of locks are %+v", found)
}
