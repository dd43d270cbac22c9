package inspect

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/netfault"
	"locktop/internal/testtier"
	"locktop/keyspace"
)

// perhaps returns options with a format of strings that begin with "perhaps:"
// and are only possibly locks.
func perhaps() ScanOptions {
	return ScanOptions{Formats: []keyspace.Format{{
		About: keyspace.About{Name: "perhaps", Signature: "it begins with perhaps"}, Type: "string",
		Probe: func(_, first string) keyspace.Confidence {
			if strings.HasPrefix(first, "perhaps:") {
				return keyspace.Possible
			}
			return keyspace.No
		},
		Channels: func(e keyspace.Entry) []string { return []string{"free:" + e.Key} },
		Decode: func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
			l := keyspace.Lock{Kind: keyspace.Mutex, Holders: []keyspace.Holder{{ID: e.Value, Depth: 1}}}
			l.Waiting = int(e.Subscribers["free:"+e.Key])
			switch {
			case !strings.HasPrefix(e.Value, "perhaps:"):
				return l, keyspace.No
			case l.Waiting > 0:
				return l, keyspace.Certain
			default:
				return l, keyspace.Possible
			}
		},
	}}}
}

// watched runs the watcher for so many seconds, calls act at the start of each,
// and returns the last snapshot.
func watched(t *testing.T, seconds int, act func(t *testing.T, rdb *redis.Client, second int)) (last keyspace.Snapshot) {
	bubble(t, func(t *testing.T, rdb *redis.Client, _ *netfault.Network) {
		f := watch(t, rdb, perhaps())
		for second := range seconds {
			act(t, rdb, second)
			for range 4 {
				time.Sleep(250 * time.Millisecond)
				last = next(t, f)
			}
		}
	})
	return last
}

func TestAKeyWhoseDeadlineIsMovedOnIsALock(t *testing.T) {
	s := watched(t, 12, func(t *testing.T, rdb *redis.Client, second int) {
		if second%3 == 2 { // it has expired just now: this is the next one with the same mark
			do(t, rdb, "SET", "mark", "perhaps:1", "PX", 2_990)
		}
		switch {
		case second == 0:
			do(t, rdb, "SET", "job", "perhaps:one", "PX", 9_000)
			do(t, rdb, "SET", "session", "perhaps:two", "PX", 1_800_000)
			do(t, rdb, "SET", "idle", "perhaps:three", "PX", 60_000)
		case second%3 == 0:
			do(t, rdb, "PEXPIRE", "job", 9_000)
			do(t, rdb, "PEXPIRE", "session", 1_800_000) // used, and extended to half an hour each time
		}
	})
	check.Require(t, slices.Equal(keys(s), []string{"job"}), "found %q", keys(s))
	l := s.Locks[0]
	check.True(t, l.Confidence == keyspace.Likely && len(l.Evidence) == 2 && strings.Contains(l.Evidence[1], "moved later 2 times"),
		"%v for %q", l.Confidence, l.Evidence)
}

func TestAKeyThatComesBackWithAnotherValueIsALock(t *testing.T) {
	s := watched(t, 12, func(t *testing.T, rdb *redis.Client, second int) {
		if second == 0 {
			do(t, rdb, "SET", "cached", "perhaps:same", "PX", 2_000)
		}
		switch second % 3 {
		case 0:
			do(t, rdb, "SET", "job", fmt.Sprintf("perhaps:%d", second), "PX", 60_000)
			do(t, rdb, "SET", "cached", "perhaps:same", "PX", 60_000)
		case 2:
			do(t, rdb, "DEL", "job", "cached")
			if second == 11 {
				do(t, rdb, "SET", "job", "perhaps:last", "PX", 60_000)
			}
		}
	})
	check.Require(t, slices.Equal(keys(s), []string{"job"}) && strings.Contains(s.Locks[0].Evidence[1], "another value 2 times"),
		"found %+v", s.Locks)
}

func TestAConfirmedLockIsRemembered(t *testing.T) {
	s := watched(t, 20, func(t *testing.T, rdb *redis.Client, second int) {
		switch {
		case second <= 6 && second%2 == 0:
			do(t, rdb, "SET", "job", "perhaps:one", "PX", 9_000)
		case second == 14:
			do(t, rdb, "DEL", "job")
		case second == 18:
			do(t, rdb, "SET", "job", "perhaps:two", "PX", 9_000)
		}
	})
	check.Require(t, slices.Equal(keys(s), []string{"job"}) && s.Locks[0].Holders[0].ID == "perhaps:two", "found %+v", s.Locks)
}

func TestOneValueInSeveralKeysMakesThemLocks(t *testing.T) {
	rdb := realServer(t)
	const token = "perhaps:0123456789abcdef"
	do(t, rdb, "SET", "seat:14", token, "PX", 30_000)
	do(t, rdb, "SET", "seat:15", token, "PX", 20_000) // the name has the same pattern
	do(t, rdb, "SET", "alone", "perhaps:fedcba9876543210", "PX", 30_000)
	do(t, rdb, "SET", "a:cart", "perhaps:cart567890123456", "PX", 1_800_000)
	do(t, rdb, "SET", "b:cart", "perhaps:cart567890123456", "PX", 1_800_000)
	do(t, rdb, "SET", "a:flag", "perhaps:", "PX", 9_000)
	do(t, rdb, "SET", "a:mark", "perhaps:", "PX", 9_000)
	for i := range 20 { // a page that is cached under many names
		do(t, rdb, "SET", fmt.Sprintf("page:%d", i), "perhaps:thesame890123456", "PX", 30_000)
	}
	do(t, rdb, "SET", "x:never", "perhaps:never67890123456")
	do(t, rdb, "SET", "x:ever", "perhaps:never67890123456")
	scan := check.Must(NewScanner(rdb, perhaps()).Scan(t.Context()))(t)
	check.True(t, slices.Equal(keys(scan), []string{"seat:14", "seat:15"}) &&
		slices.Contains(scan.Locks[0].Evidence, "2 keys have the same value"), "found %+v", scan.Locks)
}

func TestSubscribersConfirmAPossibleLock(t *testing.T) {
	rdb := realServer(t)
	do(t, rdb, "SET", "door", "perhaps:x", "PX", 30_000)
	do(t, rdb, "SET", "window", "perhaps:y", "PX", 30_000)
	sub := rdb.Subscribe(t.Context(), "free:door")
	defer sub.Close()
	check.Must(sub.Receive(t.Context()))(t)
	scan := check.Must(NewScanner(rdb, perhaps()).Scan(t.Context()))(t)
	check.True(t, slices.Equal(keys(scan), []string{"door"}) && scan.Locks[0].Confidence == keyspace.Certain &&
		scan.Locks[0].WaiterCount() == 1, "found %+v", scan.Locks)
	f := watch(t, rdb, perhaps())
	until(t, f, complete)
	for range 3 { // it is read again, and stays
		check.DeepEqual(t, keys(next(t, f)), []string{"door"}, "followed, found")
	}
}

// Thousands of alike possible locks are not shown, nor tracked, also if they appear while the
// keyspace is watched. They are shown again when some of them behave as locks.
func TestManyAlikePossibleLocksAreShownOnlyIfTheyAreUsed(t *testing.T) {
	testtier.Long(t, "it watches hundreds of possible locks for 40 s")
	many := testtier.Size(220, 1_000, 1_000)
	bubble(t, func(t *testing.T, rdb *redis.Client, _ *netfault.Network) {
		all := perhaps()
		all.MinConfidence = keyspace.Possible
		w := watch(t, rdb, all)
		create := func(from, to int) {
			p := rdb.Pipeline()
			for i := from; i < to; i++ {
				p.Do(t.Context(), "SET", fmt.Sprintf("job:%d", i), fmt.Sprintf("perhaps:%d", i), "PX", 200_000)
			}
			check.Must(p.Exec(t.Context()))(t)
		}
		run := func(seconds int, act func()) (s keyspace.Snapshot) {
			for range seconds {
				act()
				for range 4 {
					time.Sleep(250 * time.Millisecond)
					s = next(t, w)
				}
			}
			return s
		}
		nothing := func() {}
		do(t, rdb, "SET", "door", "perhaps:x", "PX", 200_000)
		create(0, 150)
		s := run(3, nothing)
		check.True(t, len(s.Locks) == 151 && len(s.Problems) == 0, "of 151 possible locks it shows %d: %q", len(s.Locks), s.Problems)
		create(150, 210) // one by one, they become too many
		check.DeepEqual(t, keys(run(3, nothing)), []string{"door"}, "of 210 alike it shows")
		create(210, many)
		s = run(3, nothing)
		said := strings.ReplaceAll(strings.Join(s.Problems, "; "), "1,000", "1000")
		check.True(t, slices.Equal(keys(s), []string{"door"}) && len(s.Problems) == 1 &&
			strings.HasPrefix(said, fmt.Sprintf("%d keys may be locks, but too many are alike (job:*)", many)),
			"of %d alike it shows %d: %s", many, len(s.Locks), said)
		second := 0
		s = run(30, func() {
			if second++; second%5 == 0 {
				create(0, many) // renewed
			}
		})
		likely := 0
		for _, l := range s.Locks {
			if l.Confidence == keyspace.Likely {
				likely++
			}
		}
		check.True(t, len(s.Locks) == many+1 && likely != 0 && len(s.Problems) == 0,
			"of %d that are renewed it shows %d, %d of them as likely: %q", many, len(s.Locks), likely, s.Problems)
	})
}

func TestAReportedChangeDoesNotShowAHiddenKey(t *testing.T) {
	t.Parallel()
	rdb := realServer(t)
	all := perhaps()
	all.MinConfidence = keyspace.Possible
	for i := range keyspace.MaxAlike + 50 {
		do(t, rdb, "SET", fmt.Sprintf("job:%d", i), "perhaps:x", "PX", 600_000)
	}
	shown := []string{"job:door:a", "job:gate:a"} // their common prefix covers the hidden keys, too
	for _, key := range shown {
		do(t, rdb, "SET", key, "perhaps:a", "PX", 600_000)
	}
	w := watch(t, rdb, all)
	followed(t, w, func(s keyspace.Snapshot) bool { return pushes(s) && slices.Equal(keys(s), shown) })
	do(t, rdb, "SET", "job:7", "perhaps:b", "PX", 600_000)
	do(t, rdb, "SET", "job:gate:a", "perhaps:b", "PX", 600_000)
	s := followed(t, w, func(s keyspace.Snapshot) bool {
		return slices.ContainsFunc(s.Locks, func(l *keyspace.Lock) bool { return l.Key == "job:gate:a" && l.Holders[0].ID == "perhaps:b" })
	})
	check.True(t, slices.Equal(keys(s), shown), "it shows %q", keys(s))
}
