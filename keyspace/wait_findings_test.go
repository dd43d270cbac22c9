package keyspace_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/keyspace"
)

// Each finding that the past of a lock causes is tested with the most similar states without it.
func TestFindingsOfThePastOfALock(t *testing.T) {
	const hour = 3_600_000
	convoy := func(change func(*keyspace.Lock)) keyspace.Lock { // free for 7 of 20 s
		return with(waitedFor(mutex(), "v", "w"), func(l *keyspace.Lock) {
			l.Holders = []keyspace.Holder{{ID: "a", Since: at(19_990), Expires: at(hour)}}
			l.Expires = at(hour)
			l.Past = &keyspace.Past{HoldP50: 30 * time.Millisecond, HandOffP50: 210 * time.Millisecond, ContendedAt: t0, FreeSince: t0, Free: 7 * time.Second}
			change(l)
		})
	}
	renewed := func(change func(*keyspace.Lock)) keyspace.Lock { // every 10 s, the last time at 30 s
		return with(mutex(holder("a", 60_000)), func(l *keyspace.Lock) {
			l.Renewals, l.RenewedEvery, l.Renewed = 3, 10*time.Second, at(30_000)
			change(l)
		})
	}
	waits := func(change func(*keyspace.Lock)) keyspace.Lock { // since t0
		return with(waitedFor(mutex(holder("a", hour)), "v", "w"), func(l *keyspace.Lock) {
			l.Waiters[1].Since = t0
			change(l)
		})
	}
	expired := func(p keyspace.Past) keyspace.Lock {
		return with(mutex(holder("a", hour)), func(l *keyspace.Lock) { l.ExpiryStreak, l.Past = 3, &p })
	}
	same := func(*keyspace.Lock) {}
	for _, c := range []struct {
		name string
		lock keyspace.Lock
		at   int    // ms after t0
		want string // kinds with their severities
		says string
	}{
		{"waiters that poll slowly", convoy(same), 20_000, "convoy warning", "Between two holds the lock is free for 210 ms, and the holds take 30 ms: its 2 waiters poll too slowly."},
		{"one of them is left", convoy(func(l *keyspace.Lock) { l.Waiters = l.Waiters[:1] }), 20_000, "convoy warning", "its waiter polls too slowly"},
		{"waiters for less than ten seconds", convoy(func(l *keyspace.Lock) { l.Past.Free /= 2 }), 9900, "", ""},
		{"held for 71 % of the time", convoy(func(l *keyspace.Lock) { l.Past.Free = 5800 * time.Millisecond }), 20_000, "", ""},
		{"held for 69 % of the time", convoy(func(l *keyspace.Lock) { l.Past.Free = 6200 * time.Millisecond }), 20_000, "convoy warning", "210 ms"},
		{"held for long since", convoy(same), 24_000, "", ""},
		{"free at the moment, and in all for 31 % of the time", convoy(func(l *keyspace.Lock) {
			l.Past.Free, l.Holders, l.UnheldSince = 5600*time.Millisecond, nil, at(19_400)
		}), 20_000, "convoy warning", "210 ms"},
		{"holds that take longer than the hand-offs", convoy(func(l *keyspace.Lock) { l.Past.HoldP50 = 210 * time.Millisecond }), 20_000, "", ""},
		{"too few holds", convoy(func(l *keyspace.Lock) { l.Past.HoldP50 = 0 }), 20_000, "", ""},
		{"the next waiter has not polled yet", convoy(func(l *keyspace.Lock) { l.Waiters, l.Past.WaiterSeen = nil, at(19_100) }), 20_000, "convoy warning", "its waiters poll too slowly"},
		{"no waiter", convoy(func(l *keyspace.Lock) { l.Waiters = nil }), 20_000, "", ""},
		{"clients that ask during a hold and may give up", convoy(func(l *keyspace.Lock) { l.Waiters, l.AskedAt = nil, at(19_995) }), 20_000, "", ""},

		{"a renewal is late by half a period", renewed(same), 45_000, "renewal-missed warning", "Renewed every 10 s, and the next renewal is 5.0 s late: the lock ends in 15 s."},
		{"a late renewal with a deadline ten renewals away", renewed(func(l *keyspace.Lock) { l.Expires = at(145_000) }), 45_000, "renewal-missed warning", "the lock ends in 1 m 40"},
		{"a late renewal with a deadline farther away", renewed(func(l *keyspace.Lock) { l.Expires = at(145_100) }), 45_000, "", ""},
		{"a renewal is late by less", renewed(same), 44_900, "", ""},
		{"the lock has ended", renewed(same), 60_000, "", ""},
		{"too few renewals", renewed(func(l *keyspace.Lock) { l.Renewals = 2 }), 45_000, "", ""},
		{"renewals without a rhythm", renewed(func(l *keyspace.Lock) { l.RenewedEvery *= -1 }), 45_000, "", ""},
		{"renewals of several holders", renewed(func(l *keyspace.Lock) { l.Holders = append(l.Holders, holder("b", 60_000)) }), 45_000, "", ""},
		{"a fast renewal is read late", renewed(func(l *keyspace.Lock) { l.RenewedEvery = 100 * time.Millisecond }), 30_290, "", ""},
		{"no deadline", renewed(func(l *keyspace.Lock) { l.Expires, l.NoTTL = time.Time{}, true }), 45_000, "", ""},

		{"a wait of almost 30 s", waits(same), 29_900, "", ""},
		{"a wait of 30 s", waits(same), 30_000, "long-wait warning", "for 30 s"},
		{"a wait of 60 s", waits(same), 60_000, "long-wait critical", "for 1 m"},
		{"a wait for a leader", waits(func(l *keyspace.Lock) { l.Renewals = 1 }), 60_000, "", ""},
		{"a wait within the configured limit", waits(func(l *keyspace.Lock) { l.OverdueIn = time.Minute }), 60_000, "", ""},
		{"a wait whose begin is unknown", waits(func(l *keyspace.Lock) { l.Waiters[1].Since, l.Waiters[1].Seen = time.Time{}, t0 }), 30_000, "long-wait warning", "at least 30 s"},
		{"a dead waiter behind another", waits(func(l *keyspace.Lock) { l.Waiters[1].Expires = at(1000) }), 60_000, "", ""},

		{"holds that ended by expiry, and one that was renewed", expired(keyspace.Past{TTL: 30 * time.Second, HoldP99: 41 * time.Second}), 2000, "outlived warning", "hold p99 41 s, TTL 30 s."},
		{"holds of which only the TTL is known", expired(keyspace.Past{TTL: 30 * time.Second, HoldP99: 30 * time.Second, AtLeast: true}), 2000, "outlived warning", "hold p99 ≥ 30 s, TTL 30 s."},
		{"holds of unknown length", expired(keyspace.Past{TTL: 30 * time.Second}), 2000, "outlived warning", "none of them by a release."},
	} {
		t.Run(c.name, func(t *testing.T) {
			var found []string
			for _, f := range keyspace.Findings(keyspace.Snapshot{At: at(c.at), Locks: []*keyspace.Lock{&c.lock}}) {
				found = append(found, f.ID+" "+f.Severity.String())
				check.True(t, strings.Contains(f.Text, c.says), "it says %q, not %q", f.Text, c.says)
			}
			check.Equal(t, strings.Join(found, ", "), c.want, "found")
		})
	}
}

// history is a lock that a watch follows, in ms after t0.
type history struct {
	stats keyspace.HoldStats
	was   keyspace.Snapshot
}

// read takes the next read of the lock and returns what is known of it then.
func (h *history) read(ms int, l keyspace.Lock) keyspace.Lock {
	now := keyspace.Snapshot{At: at(ms), Complete: true}
	if len(l.Holders)+len(l.Waiters) > 0 {
		now.Locks = []*keyspace.Lock{&l}
	}
	now = keyspace.CarryOver(h.was, now)
	h.stats.Learn(keyspace.Diff(h.was, now))
	h.was = now
	if len(now.Locks) == 0 {
		h.stats.Removed(l.ID())
		return l
	}
	h.stats.Annotate(now.Locks[0], now.At)
	return *now.Locks[0]
}

// The times of holds and of what is between them come from the events of a lock: 50 holds of 30
// ms with 210 ms between them, while clients wait, are a convoy; the same hand-offs with more
// than 1 s without a waiter are none.
func TestAConvoyIsSeenInTheEvents(t *testing.T) {
	convoys := func(l keyspace.Lock, ms int) bool {
		return slices.ContainsFunc(keyspace.Findings(keyspace.Snapshot{At: at(ms), Locks: []*keyspace.Lock{&l}}), func(f keyspace.Finding) bool { return f.ID == "convoy" })
	}
	for _, c := range []struct {
		name      string
		hold, gap int
		alone     int // first of six cycles without a waiter
		want      bool
	}{
		{"slow pollers", 30, 210, -1, true},
		{"slow pollers, and for 1.4 s nobody waits", 30, 210, 40, false},
		{"fast pollers", 210, 30, -1, false},
		{"holds that take most of the time", 300, 100, -1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var h history
			ms, last := 0, keyspace.Lock{}
			for cycle := range 50 {
				waiter := []keyspace.Waiter{{ID: "w"}}
				if c.alone >= 0 && cycle >= c.alone && cycle < c.alone+6 {
					waiter = nil
				}
				held := mutex(keyspace.Holder{ID: fmt.Sprint("owner-", cycle), Count: 1, Expires: at(ms + 60_000)})
				held.Waiters, held.Expires = waiter, at(ms+60_000)
				last = h.read(ms, held)
				check.Require(t, !convoys(last, ms) || ms >= 10_000, "it is a convoy after %d ms already", ms)
				free := mutex()
				free.Waiters = waiter
				ms += c.hold
				last = h.read(ms, free)
				ms += c.gap
			}
			check.Equal(t, convoys(last, ms), c.want, "with %+v it is a convoy", last.Past)
		})
	}
}

// The rhythm of the renewals of a hold is known from the third one on, and a pause ends it.
func TestRenewalsHaveARhythm(t *testing.T) {
	var h history
	l := func(ms int) keyspace.Lock {
		l := mutex(keyspace.Holder{ID: "a", Count: 1, Expires: at(ms + 30_000)})
		l.Expires = at(ms + 30_000)
		return h.read(ms, l)
	}
	for i, c := range []struct {
		ms   int
		want time.Duration
	}{{0, 0}, {10_000, 0}, {20_000, 10 * time.Second}, {31_000, 11 * time.Second}, {39_000, -8 * time.Second}, {47_500, 8500 * time.Millisecond}} {
		got := l(c.ms)
		check.True(t, got.RenewedEvery == c.want && got.Renewals == i,
			"after %d ms the lock was renewed every %v, want %v: %d renewals", c.ms, got.RenewedEvery, c.want, got.Renewals)
	}
}

// The TTL of an outlived lock and the longest hold come from its events: a hold that was renewed
// shows how long the work takes, one that expired only how long it takes at least.
func TestOutlivedNamesTheTTLThatWouldHaveFitted(t *testing.T) {
	for _, c := range []struct {
		renewed bool
		says    string
	}{{true, "hold p99 41 s, TTL 30 s."}, {false, "hold p99 ≥ 30 s, TTL 30 s."}} {
		var h history
		hold := func(ms int, owner string, until int) keyspace.Lock {
			l := mutex(keyspace.Holder{ID: owner, Count: 1, Expires: at(until)})
			l.Expires = at(until)
			return h.read(ms, l)
		}
		h.read(-1, mutex())
		if c.renewed {
			hold(0, "first", 30_000)
			hold(20_000, "first", 50_000)
			h.read(41_000, mutex())
		}
		var last keyspace.Lock
		for i := range 4 {
			from := 60_000 + i*40_000
			last = hold(from, fmt.Sprint("owner-", i), from+30_000)
			h.read(from+30_000, mutex())
		}
		texts := []string{}
		for _, f := range keyspace.Findings(keyspace.Snapshot{At: at(181_000), Locks: []*keyspace.Lock{&last}}) {
			texts = append(texts, f.Text)
		}
		check.True(t, len(texts) == 1 && strings.HasSuffix(texts[0], c.says), "found %q, want %q", texts, c.says)
	}
}

// A wait is noticed after 5 s, and a finding from 30 s on.
func TestTheLongestWaitHasASeverity(t *testing.T) {
	l := waitedFor(mutex(holder("a", 3_600_000)), "v", "w")
	l.Waiters[0].Since, l.Waiters[1].Since = at(2000), t0
	for ms, want := range map[int]string{4900: "0 info", 5000: "5 info", 29_000: "29 info", 30_000: "30 warning", 60_000: "60 critical"} {
		wait, severity := l.LongestWait(at(ms))
		check.Equal(t, fmt.Sprint(int(wait.Seconds()), " ", severity), want, "after %d ms the wait is", ms)
	}
}
