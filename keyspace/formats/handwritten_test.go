package formats_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/keyspace"
	"locktop/keyspace/formats"
	"locktop/keyspace/inspect"
)

// layout is how somebody stores a lock without a library. Its commands acquire it.
type layout keyKind

// layouts reads a file of testdata.
func layouts(t *testing.T, file string) (all []layout) {
	t.Helper()
	for _, k := range keyKinds(t, file) {
		all = append(all, layout(k))
	}
	return all
}

func (l layout) key() string { return l.commands[0][1] }

// acquiredBy returns the commands of an owner with a number, at a time of the server.
func (l layout) acquiredBy(owner int, at time.Time) [][]string {
	people := [...]string{"alice", "bert", "carla", "dora"}
	names := strings.NewReplacer(
		"{worker}", fmt.Sprintf("worker-%d", owner), "{process}", fmt.Sprintf("web-0%d:42%02d", owner%7, owner),
		"{host}", fmt.Sprintf("node-%c", 'a'+owner%20), "{person}", people[owner%len(people)],
		"{uuid}", fmt.Sprintf("0b9f2c7e-3d41-4c6a-9e58-7a1d2f3b%04x", owner),
	)
	commands := make([][]string, len(l.commands))
	for i, argv := range l.commands {
		for _, word := range argv {
			commands[i] = append(commands[i], names.Replace(word))
		}
	}
	return formats.At(keyspace.Sample{Commands: commands}, at).Commands
}

// found returns the locks of a snapshot by key.
func found(s keyspace.Snapshot) map[string]keyspace.Lock {
	all := make(map[string]keyspace.Lock)
	for _, l := range s.Locks {
		all[l.Key] = *l
	}
	return all
}

// atFirstSight returns what one scan with --all finds of the layouts.
func atFirstSight(t *testing.T, rdb server.Client, all []layout) map[string]keyspace.Lock {
	t.Helper()
	now := clock(t, rdb)
	for _, l := range all {
		load(t, rdb, l.acquiredBy(1, now)...)
	}
	return found(scanFor(t, rdb, inspect.ScanOptions{Formats: everyFormat, MinConfidence: keyspace.Possible}))
}

// missing lists the layouts without a lock.
func missing(all []layout, in map[string]keyspace.Lock) (names []string) {
	for _, l := range all {
		if _, ok := in[l.key()]; !ok {
			names = append(names, l.key())
		}
	}
	return names
}

// Most locks that people write by hand are possible ones before anything of their behaviour
// is known.
func TestHandwrittenLocksArePossibleAtFirstSight(t *testing.T) {
	for name, rdb := range clients(t) {
		t.Run(name, func(t *testing.T) {
			all := layouts(t, "handwritten")
			locks := atFirstSight(t, rdb, all)
			unseen := missing(all, locks)
			likely := slices.DeleteFunc(slices.Collect(maps.Values(locks)), func(l keyspace.Lock) bool { return l.Confidence < keyspace.Likely })
			t.Logf("%d layouts: %d seen, %d of them likely; unseen are %q", len(all), len(all)-len(unseen), len(likely), unseen)
			check.True(t, len(all) >= 40 && len(unseen)*5 <= len(all), "of %d layouts, %d are unseen: %q", len(all), len(unseen), unseen)
			for _, l := range locks {
				check.True(t, len(l.Evidence) >= 1 && len(l.Holders) != 0, "%s has the holders %v, for %q", l.Key, l.Holders, l.Evidence)
			}
			load(t, rdb, []string{"FLUSHALL"})
			all = layouts(t, "handwritten_issue")
			check.Equal(t, len(missing(all, atFirstSight(t, rdb, all))), 0, "locks that are not seen")
		})
	}
}

// Only a mark that one library alone makes is certain: a companion, a name of its own, or the structure of its token.
func TestLocksOfTutorialsAreSeenAndNeverCertain(t *testing.T) {
	rdb := connect(t, servertest.RedisForTest(t).Addr())
	all := layouts(t, "tutorials")
	locks := atFirstSight(t, rdb, all)
	check.True(t, len(all) >= 40 && len(missing(all, locks)) == 0, "of %d, unseen are %q", len(all), missing(all, locks))
	for _, l := range locks {
		check.True(t, l.Confidence < keyspace.Certain, "%s is certain to be a %s: %q", l.Key, l.Format, l.Evidence)
	}
	for _, key := range []string{"mylock", "rate-limiter:drain-lock:sms"} {
		l := only(t, rdb, key)
		check.True(t, l.Confidence == keyspace.Likely && l.State(clock(t, rdb)) == keyspace.Held, "%s = 1 is %s to be a %s, %s", key, l.Confidence, l.Format, l.State(clock(t, rdb)))
	}
}

// inUse runs a watcher for a minute, in which owners take turns with every layout: each holds
// it for some seconds, renews it if it expires, and deletes it. It returns the last snapshot
// in which each is held.
func inUse(t *testing.T, all []layout) (last map[string]keyspace.Lock) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2026, 11, 24, 3, 0, 0, 0, time.UTC))) // a time of a lock
		embedded := server.NewPiped()
		defer embedded.Close()
		rdb := server.NewClient(embedded.Addr(), server.ClientOptions{Dial: embedded.Dial})
		defer rdb.Close()
		w := inspect.NewWatcher(inspect.NewScanner(rdb, inspect.ScanOptions{Formats: everyFormat, MinConfidence: keyspace.Likely}))
		defer w.Close()
		for second := range testtier.Size(45, 60, 60) {
			for i, l := range all {
				switch (second + i) % 9 {
				case 0, 4: // acquired
					load(t, rdb, l.acquiredBy(1+second, clock(t, rdb))...)
				case 2: // renewed
					if rdb.PTTL(t.Context(), l.key()).Val() > 0 {
						rdb.PExpire(t.Context(), l.key(), time.Duration(30+second)*time.Second)
					}
				case 3, 7: // released
					rdb.Del(t.Context(), l.key())
				}
			}
			for range 4 {
				time.Sleep(250 * time.Millisecond)
				s := check.Must(w.Snapshot(t.Context()))(t)
				last = found(s)
			}
		}
		for _, l := range all {
			load(t, rdb, l.acquiredBy(99, clock(t, rdb))...)
		}
		for range 8 {
			time.Sleep(250 * time.Millisecond)
			s := check.Must(w.Snapshot(t.Context()))(t)
			last = found(s)
		}
	})
	return last
}

// A lock that is released and taken again is likely, whatever its library.
func TestHandwrittenLocksInUseAreLikely(t *testing.T) {
	t.Parallel()
	all := layouts(t, "handwritten")
	unlikely := missing(all, inUse(t, all))
	t.Logf("in use, %d of %d are likely; not likely are %q", len(all)-len(unlikely), len(all), unlikely)
	check.True(t, len(unlikely)*10 <= len(all), "of %d layouts, %d are not likely: %q", len(all), len(unlikely), unlikely)
}
