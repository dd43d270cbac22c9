package inspect

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/keyspace"
)

// taken returns what happened to the lock of the first holder when the next one had it until a later time.
func taken(d keyspace.Differ, until time.Time, later time.Duration) keyspace.EventKind {
	held := func(id string, until time.Time) keyspace.Lock {
		return keyspace.Lock{Key: "a", Expires: until, Holders: []keyspace.Holder{{ID: id, Depth: 1, Expires: until}}}
	}
	d.Changed(held("first", until), held("next", until.Add(later)))
	return d.Events[0].Kind
}

// A theft is one change of the key, and no release was announced. If two changes were
// reported, the lock was released in between, whatever the deadlines are.
func TestALockThatWasReportedTwiceOrAsReleasedWasNotStolen(t *testing.T) {
	until := time.UnixMilli(1_763_683_200_123)
	for _, c := range []struct {
		reported     []string // keys, in two messages
		reason, want keyspace.EventKind
	}{
		{[]string{"a"}, "", keyspace.Stolen},
		{[]string{"a"}, keyspace.Released, keyspace.Released},
		{[]string{"a", "b"}, "", keyspace.Stolen},
		{[]string{"a", "b", "a"}, "", keyspace.Released},
	} {
		var once, kept tracking
		for _, key := range c.reported {
			once.pending.add(key, change{since: until})
		}
		kept.requeue(once.takeChanges()) // as after a failed read
		repeated := !kept.takeChanges().of["a"].repeated.IsZero()
		d := keyspace.Differ{At: until.Add(-time.Minute), Jitter: exactJitter, Held: time.Second, Repeated: repeated, Reason: c.reason}
		check.Equal(t, taken(d, until, 0), c.want, "reported %q, with %q known it is", c.reported, c.reason)
	}
}

// The same deadline proves a theft only if a released and reacquired lock cannot have it.
func TestALockWasStolenOnlyIfItsDeadlineProvesIt(t *testing.T) {
	until := time.UnixMilli(1_763_683_200_123)
	const ms = time.Millisecond
	for _, c := range []struct {
		name   string
		until  time.Time     // of the first holder
		later  time.Duration // how much later the next one expires
		held   time.Duration
		spread time.Duration
		want   keyspace.EventKind
	}{
		{"the same to the millisecond", until, 0, 2 * ms, 0, keyspace.Stolen},
		{"a millisecond later", until, ms, time.Minute, 0, keyspace.Released},
		{"sooner, as with a shorter time to live", until, -ms, time.Minute, 0, keyspace.Released},
		{"taken a moment ago", until, 0, ms, 0, keyspace.Released},
		{"held for an unknown time", until, 0, 0, 0, keyspace.Released},
		{"the same within the uncertainty", until, ms, 10 * ms, 2 * ms, keyspace.Stolen},
		{"could be the same, and could be the next", until, ms, 5 * ms, 2 * ms, keyspace.Released},
		{"hardly known when", until, 0, time.Minute, 6 * ms, keyspace.Released},
		{"20 ms later where only the time to live is known", until, 20 * ms, 20 * ms, 2 * ms, keyspace.Released},
		{"in whole seconds", until.Truncate(time.Second).Add(time.Second), 0, 900 * ms, 0, keyspace.Released},
		{"in whole seconds, and held for longer", until.Truncate(time.Second).Add(time.Second), 0, 1100 * ms, 0, keyspace.Stolen},
		{"until the end of the hour", until.Truncate(time.Hour).Add(time.Hour), 0, 59 * time.Minute, 0, keyspace.Released},
		{"until midnight", until.Truncate(24 * time.Hour), 0, 23 * time.Hour, 0, keyspace.Released},
	} {
		d := keyspace.Differ{At: c.until.Add(-time.Second), Jitter: keyspace.DeadlineJitter, Held: c.held, Spread: c.spread}
		check.Equal(t, taken(d, c.until, c.later), c.want, "%s", c.name)
	}
}

// A hold lasts at least until its last read, or until the message about its
// end, unless such a message may have been lost.
func TestHowLongAHoldHasLastedAtLeast(t *testing.T) {
	begin := time.Now()
	at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	deadline := time.UnixMilli(1_763_683_200_123)
	lock := func(id string, expires time.Time) candidate {
		return found(keyspace.Lock{Key: "a", Expires: expires, Holders: []keyspace.Holder{{ID: id}}})
	}
	var f Watcher
	read := func(was, now candidate, from, to int) candidate {
		f.times.readStart, f.times.readEnd = at(from), at(to)
		f.keepFirstRead(was, &now)
		return now
	}
	first := read(none, lock("me", deadline), 0, 10)
	again := read(first, lock("me", deadline), 500, 510)
	for _, c := range []struct {
		name     string
		was      candidate
		reported time.Time
		resync   bool
		want     int // ms
	}{
		{"read once", first, time.Time{}, false, -10},
		{"read twice", again, time.Time{}, false, 490},
		{"reported 1 s after it was read", first, at(1010), false, 900},
		{"reported, and earlier reports may be lost", first, at(1010), true, -10},
		{"reported at once", again, at(20), false, 490},
		{"renewed", read(again, lock("me", deadline.Add(time.Second)), 600, 610), time.Time{}, false, -10},
		{"by another holder", read(again, lock("you", deadline), 600, 610), time.Time{}, false, -10},
	} {
		f.tracking.resync = c.resync
		check.Equal(t, f.heldFor(c.was, c.reported), time.Duration(c.want)*time.Millisecond, "%s", c.name)
	}
}

// An earlier reply to another command says nothing about the present difference between the clocks.
func TestClocksAreComparedOnlyWhenTheServerWasAsked(t *testing.T) {
	f := NewWatcher(NewScanner(nil, ScanOptions{}))
	f.reader.conn.now = time.Now().Add(-time.Hour)
	check.NoError(t, f.refreshKeys(t.Context(), nil, changes{}))
	check.True(t, f.times.clockOffset == 0, "nothing was asked, and the server's clock is %v off", f.times.clockOffset)
}

// A touch in the second of an own read proves nothing, nor does one shortly after it.
func TestOnlyATouchInALaterSecondIsOneOfAnotherClient(t *testing.T) {
	for _, c := range []struct {
		own, touched, now int64
		asked, covered    bool
	}{
		{100_000, 100, 100, false, false}, // the own read
		{100_000, 101, 101, true, false},
		{100_000, 101, 102, true, true},
		{100_000, 100, 102, false, true},  // no client has asked
		{100_699, 101, 102, true, true},   // touchGrace ends in second 100
		{100_700, 101, 102, false, false}, // and here in second 101
		{100_700, 102, 102, true, false},
		{100_000, 99, 102, false, true}, // a clock that was set back
		{100_000, 101, 401, true, true}, // maxAskedAge
		{100_000, 101, 402, false, true},
	} {
		asked, covered := verdict(c.own, c.touched, c.now)
		check.Equal(t, [2]bool{asked, covered}, [2]bool{c.asked, c.covered},
			"own read at %d ms, touched in second %d, now %d", c.own, c.touched, c.now)
	}
}

func TestTheClockOfIdleTimesIsBehindThatOfTheServer(t *testing.T) {
	now := time.Unix(1_795_535_445, 900_000_000)
	for behind, fits := range map[int64]bool{0: true, 1: true, 59: true, 60: false, -1: false} {
		second := now.Unix() - behind
		got, ok := lruSecond(fmt.Sprintf("# Server\r\nhz:10\r\nlru_clock:%d\r\nport:1\r\n", second%(1<<lruBits)), now)
		check.True(t, ok == fits && (!ok || got == second), "a clock that is %d s behind shows second %d, %v", behind, got-now.Unix(), ok)
	}
	_, ok := lruSecond("", now)
	check.False(t, ok, "without a clock it is known")
}

// A hold that was read while it was open why the one before had ended is told, also if it has ended by then.
func TestAHoldBetweenTwoReadsOfAnEndIsTold(t *testing.T) {
	rdb := realServer(t)
	do(t, rdb, "SET", "lock:a", "token:1", "PX", 60_000)
	w := pushing(t, rdb, justTokens())
	for _, reported := range []bool{false, true} {
		do(t, rdb, "SET", "lock:a", "token:1", "PX", 60_000)
		await(t, w, func() bool {
			return slices.ContainsFunc(w.Known().Locks, func(l *keyspace.Lock) bool { return l.SoleHolder() == "token:1" })
		})
		do(t, rdb, "SET", "lock:a", "token:2", "PX", 60_000)
		next := check.Must(w.reader.detect(t.Context(), []candidate{{name: "lock:a", typ: "string"}}))(t)
		ended, c := time.Now().Add(-10*time.Millisecond), changes{}
		w.endings.pending["lock:a"] = pendingReason{conn: w.tracking.conn, replaced: true, late: true, reports: 1, since: ended, next: &next[0], later: change{since: ended}}
		if reported {
			c.add("lock:a", change{since: ended})
		}
		do(t, rdb, "DEL", "lock:a")
		w.unreported.take()
		check.NoError(t, w.refreshKeys(t.Context(), []string{"lock:a"}, c))
		var got []string
		for _, e := range w.unreported.events {
			got = append(got, string(e.Kind)+" "+e.Holder.ID)
		}
		check.Equal(t, fmt.Sprint(got), "[replaced token:1 acquired token:2 released token:2]", "events")
		last := w.unreported.events[len(got)-1].At
		check.True(t, !last.After(ended.Add(w.times.clockOffset)), "the end was reported %v before it is told", last.Sub(ended.Add(w.times.clockOffset)))
	}
}
