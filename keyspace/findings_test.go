package keyspace_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/keyspace"
	"locktop/keyspace/holds"
)

// Each finding is tested together with the most similar state that has no finding.
func TestFindings(t *testing.T) {
	const hour = 3_600_000
	typical := func(l keyspace.Lock, d time.Duration) keyspace.Lock {
		l.MedianHold = d
		return l
	}
	noTTL := func(l keyspace.Lock) keyspace.Lock {
		l.NoTTL = true
		return l
	}
	lapsed := mutex(keyspace.Holder{ID: "a", Mode: keyspace.Read, Since: t0, Expires: at(1000)})
	stamped := func(l keyspace.Lock, readAt int) keyspace.Lock {
		l.Stamped = true
		if readAt > 0 {
			l.ReadAt = at(readAt)
		}
		return l
	}
	for _, c := range []struct {
		name string
		lock keyspace.Lock
		at   int // ms after the hold began
		want string
		says string
	}{
		{"no deadline", mutex(holder("a", 0)), 2000, "never-expires", "for 2.0 s without a deadline"},
		{"no deadline, begin unknown", mutex(keyspace.Holder{ID: "a"}), 2000, "never-expires", "Held without a deadline"},
		{"no deadline by design", noTTL(mutex(holder("a", 0))), 599_000, "", ""},
		{"no deadline by design, for long", noTTL(mutex(holder("a", 0))), 601_000, "never-expires overdue", "10 m 01"},
		{"no deadline by design, much longer than usual", typical(noTTL(mutex(holder("a", 0))), 2*time.Second), 41_000, "never-expires overdue", "41 s"},
		{"no deadline by design, and its client is gone", noTTL(mutex(keyspace.Holder{ID: "a", Label: "a", DisconnectedAt: t0})), 6000, "never-expires holder-gone", " "},
		{"a far deadline", mutex(holder("a", hour)), 2000, "", ""},
		{"no deadline and no holder", waitedFor(mutex(), "w"), 2000, "", ""},
		{"held for more than ten minutes", mutex(holder("a", hour)), 601_000, "overdue", "Held for 10 m 01; the limit is 10 m."},
		{"held for almost ten minutes", mutex(holder("a", hour)), 599_000, "", ""},
		{"held for ten minutes, begin unknown", mutex(keyspace.Holder{ID: "a", Expires: at(hour)}), 601_000, "", ""},
		{"one of the readers has been there for long", mutex(keyspace.Holder{ID: "b", Since: at(600_000), Expires: at(hour)}, holder("a", hour)), 601_000, "overdue", "10 m 01"},
		{"long, and another client asks", with(mutex(holder("a", hour)), func(l *keyspace.Lock) { l.AskedAt = at(600_000) }), 601_000, "overdue", "the limit is 10 m. Another client asks for it."},
		{"another client asks", with(mutex(holder("a", hour)), func(l *keyspace.Lock) { l.AskedAt = at(10_000) }), 11_000, "", ""},
		{"much longer than usual", typical(mutex(holder("a", hour)), 2*time.Second), 41_000, "overdue", "half of its holds are over in 2.0 s"},
		{"somewhat longer than usual", typical(mutex(holder("a", hour)), 2*time.Second), 39_000, "", ""},
		{"much longer than usual, but short", typical(mutex(holder("a", hour)), 100*time.Millisecond), 29_000, "", ""},
		{"long and without a deadline", mutex(holder("a", 0)), 601_000, "never-expires overdue", "10 m 01"},
		{"its own deadline passed long ago", stamped(mutex(holder("a", 1000)), 0), 3000, "stamp-passed", "passed 2.0 s ago"},
		{"its own deadline passed just now", stamped(mutex(holder("a", 1000)), 0), 1900, "", ""},
		{"its own deadline passed long ago, but since its read", stamped(mutex(holder("a", 1000)), 1900), 3000, "", ""},
		{"its own deadline passed long before its read", stamped(mutex(holder("a", 1000)), 2500), 3000, "stamp-passed", "passed 1.5 s ago"},
		{"its TTL has passed", mutex(holder("a", 1000)), 3000, "", ""},
		{"the lease of a reader has passed", with(lapsed, func(l *keyspace.Lock) { l.Expires = at(hour) }), 3000, "reader-lapsed", "lease of a is over"},
		{"the lease of a reader was over when it was read", with(lapsed, func(l *keyspace.Lock) { l.Expires, l.ReadAt = at(hour), at(1000) }), 1100, "reader-lapsed", "lease of a is over"},
		{"the lease of a reader passes just now", with(lapsed, func(l *keyspace.Lock) { l.Expires = at(hour) }), 1900, "", ""},
		{"the lease of a reader is that of the lock", lapsed, 3000, "", ""},
		{"renewed a hundred times without a rhythm, and no more", with(mutex(holder("a", hour)), func(l *keyspace.Lock) { l.Renewals, l.Renewed, l.RenewedEvery = 100, at(1000), -time.Second }), 4100, "", ""},
		{"renewed a hundred times", with(mutex(holder("a", hour)), func(l *keyspace.Lock) { l.Renewals, l.Renewed = 100, at(1000) }), 2000, "renewed-forever", "Renewed 100 times. A renewal does not show"},
		{"renewed a hundred times, until its renewals stopped", with(mutex(holder("a", hour)), func(l *keyspace.Lock) {
			l.Renewals, l.Renewed, l.RenewedEvery = 100, at(1000), time.Second
		}), 15_000, "renewals-stopped", "the next renewal is 13 s late"},
		{"renewed a hundred times, within a configured limit", with(mutex(holder("a", hour)), func(l *keyspace.Lock) { l.Renewals, l.Renewed, l.OverdueIn = 100, at(1000), time.Hour }), 2000, "", ""},
		{"renewed ninety-nine times", with(mutex(holder("a", hour)), func(l *keyspace.Lock) { l.Renewals, l.Renewed = 99, at(1000) }), 2000, "", ""},
		{"free, with a waiter", with(waitedFor(mutex(), "v", "w"), func(l *keyspace.Lock) { l.UnheldSince = t0 }), 2100, "waiters-no-holder", "Free for 2.1 s while 2 wait"},
		{"free for a moment, with a waiter", with(waitedFor(mutex(), "w"), func(l *keyspace.Lock) { l.UnheldSince = t0 }), 1900, "", ""},
		{"free for long, without a waiter", with(mutex(), func(l *keyspace.Lock) { l.UnheldSince = t0 }), 60_000, "", ""},
		{"the first in the queue is dead", with(waitedFor(mutex(holder("a", hour)), "v", "w"), func(l *keyspace.Lock) { l.Waiters[0].Expires = at(1000) }), 3000, "zombie-head", "has not answered for 2.0 s: 1 other waits"},
		{"the only one in the queue is dead", with(waitedFor(mutex(holder("a", hour)), "v"), func(l *keyspace.Lock) { l.Waiters[0].Expires = at(1000) }), 3000, "zombie-head", "only waiter"},
		{"the second in the queue is dead", with(waitedFor(mutex(holder("a", hour)), "v", "w"), func(l *keyspace.Lock) { l.Waiters[1].Expires = at(1000) }), 3000, "", ""},
		{"the first in the queue is late", with(waitedFor(mutex(holder("a", hour)), "v", "w"), func(l *keyspace.Lock) { l.Waiters[0].Expires = at(1000) }), 1900, "", ""},
		{"overtaken ten times", with(waitedFor(mutex(holder("a", hour)), "v", "w"), func(l *keyspace.Lock) { l.Waiters[1].OvertakenBy, l.Waiters[1].Since = 10, t0 }), 3000, "starving", "w was overtaken by 10 later waiters, in 3.0 s"},
		{"overtaken nine times", with(waitedFor(mutex(holder("a", hour)), "v"), func(l *keyspace.Lock) { l.Waiters[0].OvertakenBy = 9 }), 3000, "", ""},
		{"a writer waits for readers", writerWaits(mode(holder("r", hour), keyspace.Read)), 11_000, "writer-starved", "waiting for 11 s while a reader"},
		{"a writer waits a little for readers", writerWaits(mode(holder("r", hour), keyspace.Read)), 9000, "", ""},
		{"a writer waits for a writer", writerWaits(mode(holder("x", hour), keyspace.Write)), 11_000, "", ""},
		{"only ever entered", with(mutex(times(holder("a", hour), 11)), func(l *keyspace.Lock) { l.ReentryStreak = 10 }), 2000, "reentry-leak", "10 times"},
		{"entered deeply, and left once in a while", with(mutex(times(holder("a", hour), 90)), func(l *keyspace.Lock) { l.ReentryStreak = 9 }), 2000, "", ""},
		{"longer than was set", limited(holder("a", hour), time.Minute), 61_000, "overdue", "Held for 1 m 01; the configured limit is 1 m."},
		{"no longer than was set, though longer than usual", limited(holder("a", hour), 20*time.Minute), 19 * 60_000, "", ""},
		{"on one of three", redlock("a", "", ""), 3000, "minority", "On 1 of 3 servers, which is no majority: a leftover, a failed acquire, or other servers have lost their copies."},
		{"on one of three, and renewed", with(redlock("a", "", ""), func(l *keyspace.Lock) { l.Renewed = at(2000) }), 3000, "minority", "renewed 1.0 s ago: its client may use other servers."},
		{"on one of three, just now", redlock("a", "", ""), 1900, "", ""},
		{"on two of three", redlock("a", "a", ""), 3000, "", ""},
		{"on one of three, and one is silent", redlock("a", "", "?"), 3000, "", ""},
		{"three tokens on three", redlock("a", "b", "c"), 3000, "split", "3 tokens on 3 servers"},
		{"a restart took the majority", redlock("a", "-a", ""), 3000, "votes-lost", "n1 lost the copies of a, which is on 1 of 3 servers: another client can get a majority, and both may work"},
		{"a restart took the majority, and another has it", redlock("b", "b-a", "a"), 3000, "votes-lost", "n1 lost the copies of a, which is on 1 of 3 servers: b has a majority now, and both may work"},
		{"a restart took a copy", redlock("a", "a", "-a"), 3000, "", ""},
		{"a majority, and one left over", redlock("a", "b", "a"), 3000, "", ""},
		{"two tokens, and one is silent", redlock("a", "b", "?"), 3000, "", ""},
		{"ran out three times in a row", with(mutex(holder("a", hour)), func(l *keyspace.Lock) { l.ExpiryStreak = 3 }), 2000, "ttl-too-short", "last 3 holds"},
		{"ran out twice in a row", with(mutex(holder("a", hour)), func(l *keyspace.Lock) { l.ExpiryStreak = 2 }), 2000, "", ""},
		{"its client has hung up", with(mutex(holder("a", hour)), func(l *keyspace.Lock) { l.Holders[0].DisconnectedAt = t0 }), 6000, "holder-gone", "not been connected for 6.0 s."},
		{"its connection was listed before", with(mutex(holder("a", hour)), func(l *keyspace.Lock) {
			l.Holders[0].Addr, l.Holders[0].ConnectedAt, l.Holders[0].DisconnectedAt = "10.0.0.1:5", at(-2000), t0
		}), 6000, "holder-gone", "6.0 s: its connection 10.0.0.1:5 closed between " + at(-2000).Local().Format("15:04:05") + " and"},
		{"its client has disconnected, and it is renewed", with(mutex(holder("a", hour)), func(l *keyspace.Lock) { l.Holders[0].DisconnectedAt = t0; l.Renewed = at(1) }), 6000, "", ""},
		{"its client has hung up, after it has renewed it", with(mutex(holder("a", hour)), func(l *keyspace.Lock) { l.Holders[0].DisconnectedAt = t0; l.Renewed = t0 }), 6000, "holder-gone", ""},
		{"one of two clients has hung up, and the other one renews", with(mutex(holder("a", hour), holder("b", hour)), func(l *keyspace.Lock) {
			l.Holders[0].DisconnectedAt, l.Holders[1].Renewed, l.Renewed = t0, at(1), at(1)
		}), 6000, "holder-gone", "a has not been connected for 6.0 s"},
		{"one of two clients has disconnected, and renews", with(mutex(holder("a", hour), holder("b", hour)), func(l *keyspace.Lock) {
			l.Holders[0].DisconnectedAt, l.Holders[0].Renewed = t0, at(1)
		}), 6000, "", ""},
		{"its client is connecting anew", with(mutex(holder("a", hour)), func(l *keyspace.Lock) { l.Holders[0].DisconnectedAt = t0 }), 4900, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := keyspace.Snapshot{At: at(c.at), Locks: []*keyspace.Lock{new(mutex()), &c.lock}}
			var ids []string
			for _, f := range keyspace.Findings(s) {
				ids = append(ids, f.ID)
				check.True(t, f.Lock == c.lock.ID() && f.Remedy != "" && f.Severity != keyspace.Info, "got %+v", f)
				check.True(t, strings.Contains(f.Text, c.says), "it says %q, not %q", f.Text, c.says)
			}
			check.Equal(t, strings.Join(ids, " "), c.want, "found")
		})
	}
}

// with returns a copy of a lock with a change applied.
func with(l keyspace.Lock, change func(*keyspace.Lock)) keyspace.Lock {
	change(&l)
	return l
}

// limited returns a lock with a limit of its own. Half of its holds end within 1 s.
func limited(h keyspace.Holder, after time.Duration) keyspace.Lock {
	l := mutex(h)
	l.OverdueIn, l.MedianHold = after, time.Second
	return l
}

// writerWaits returns a read/write lock for which a writer has been waiting since t0.
func writerWaits(h keyspace.Holder) keyspace.Lock {
	l := mutex(h)
	l.Waiters = []keyspace.Waiter{{ID: "w", Mode: keyspace.Write, Since: t0}}
	return l
}

// redlock returns a lock on several servers with these tokens. "" is no token,
// "?" a server that does not answer, and "b-a" one with b that has lost a. The first token is the holder's since t0.
func redlock(tokens ...string) keyspace.Lock {
	l := mutex(holder(tokens[0], 3_600_000))
	l.Kind = keyspace.Redlock
	for i, token := range tokens {
		token, was, lost := strings.Cut(token, "-")
		l.Votes = append(l.Votes, keyspace.Vote{Node: fmt.Sprint("n", i), Token: strings.TrimSuffix(token, "?"), Unreachable: token == "?", Was: was})
		if lost {
			l.Votes[i].Why = keyspace.Lost
		}
	}
	return l
}

// lossAfter returns a snapshot so many seconds after a failover at t0 lost a hold of a for 60 s.
func lossAfter(seconds int, next keyspace.Holder) keyspace.Snapshot {
	l := mutex(next)
	l.Key = "k"
	return keyspace.Snapshot{At: at(1000 * seconds), Locks: []*keyspace.Lock{&l}, Losses: []keyspace.Loss{{Lock: l.ID(), Holder: holder("a", 60_000), At: t0}}}
}

// Each server finding is tested together with the most similar server that has
// none. Scenario 97 is a clock that jumps.
func TestServerFindings(t *testing.T) {
	missing := keyspace.FindingProblems() // of those of servers, the ones that no case has found
	one := func(s keyspace.Server) keyspace.Snapshot {
		s.Addr = "one"
		return keyspace.Snapshot{Server: s}
	}
	clocks := func(skews ...time.Duration) keyspace.Snapshot {
		var s keyspace.Snapshot
		for _, d := range skews {
			s.Nodes = append(s.Nodes, keyspace.Node{Up: true, Server: keyspace.Server{Addr: d.String(), Skew: d}})
		}
		return s
	}
	for _, c := range []struct {
		name string
		snap keyspace.Snapshot
		want string
		says string
	}{
		{"any key may be evicted", one(keyspace.Server{MaxMemory: 1, Policy: "allkeys-lru"}), "evictable", "any lock."},
		{"what expires may be evicted", one(keyspace.Server{MaxMemory: 1, Policy: "volatile-lru"}), "evictable", "that expires"},
		{"what expires soonest is evicted", one(keyspace.Server{MaxMemory: 1, Policy: "volatile-ttl"}), "evictable", "before anything else"},
		{"nothing is evicted", one(keyspace.Server{MaxMemory: 1, Policy: "noeviction"}), "", ""},
		{"memory is without limit", one(keyspace.Server{Policy: "allkeys-lru"}), "", ""},
		{"replicas are not waited for", one(keyspace.Server{Role: "master", Replicas: 2}), "failover-loses-locks", "2 replicas"},
		{"one replica is not waited for", one(keyspace.Server{Role: "master", Replicas: 1}), "failover-loses-locks", "has 1 replica, and"},
		{"a number of replicas is demanded", one(keyspace.Server{Role: "master", Replicas: 2, MinReplicas: true}), "", ""},
		{"there is no replica", one(keyspace.Server{Role: "master"}), "", ""},
		{"a replica has lost its master", one(keyspace.Server{Role: "slave", Master: "m:1", MasterDown: true}), "master-link-down", "lost its master m:1"},
		{"the other nodes of a cluster are not looked at", one(keyspace.Server{PartialCluster: true}), "part-of-cluster", "only the locks in its own slots"},
		{"one of two servers does not answer", keyspace.Snapshot{Nodes: []keyspace.Node{{Up: true}, {Server: keyspace.Server{Addr: "b:1"}, Error: "refused"}}}, "node-missing", "b:1"},
		{"some keys may not be read", keyspace.Snapshot{Nodes: []keyspace.Node{{Server: keyspace.Server{Addr: "c:1"}, Up: true, Unread: "2 keys of it"}}}, "locks-unread", "on c:1 may be missing: 2 keys of it."},
		{"it is a replica itself", one(keyspace.Server{Role: "slave", Replicas: 2}), "", ""},
		{"two clocks differ", clocks(0, 600*time.Millisecond), "clock-skew", "The clock of 600ms is 600 ms ahead of that of 0s"},
		{"two clocks hardly differ", clocks(0, 400*time.Millisecond), "", ""},
		{"two clocks agree, and ours is wrong", clocks(time.Hour, time.Hour), "", ""},
		{"ours or its clock is wrong", clocks(-time.Second), "clock-skew", "differ by 1.0 s"},
		{"a master has lost its last replica", one(keyspace.Server{Role: "master", HadReplicas: true}), "failover-loses-locks", "one has lost its last replica"},
		{"a failover lost a lock, and another client has it", lossAfter(30, holder("b", 3_600_000)), "locks-lost", "still work: k of a, lost 30 s ago with 30 s left, taken by b."},
		{"its holder has it again", lossAfter(30, holder("a", 3_600_000)), "", ""},
		{"its deadline is over", lossAfter(61, holder("b", 3_600_000)), "", ""},
		{"a cluster refuses its clients", keyspace.Snapshot{Nodes: []keyspace.Node{{Server: keyspace.Server{Addr: "a:1", ClusterDown: true}, Up: true}, {Server: keyspace.Server{Addr: "b:1"}, Error: "read locks: CLUSTERDOWN The cluster is down"}}},
			"cluster-down", "The cluster refuses its clients (CLUSTERDOWN at a:1, b:1)."},
		{"a server of a Redlock is empty after a restart", keyspace.Snapshot{Locks: []*keyspace.Lock{new(redlock("a", "-a", "")), new(redlock("a", "a", ""))}, Nodes: []keyspace.Node{{Server: keyspace.Server{Addr: "n1", Uptime: 3 * time.Second}, Up: true}}},
			"restarted-empty", "n1 restarted 3.0 s ago without the copies of 1 lock, whose holders may still work."},
		{"threads acquire two locks in both orders", keyspace.Snapshot{Inversions: []keyspace.Inversion{{[]keyspace.Step{{"a", "b", 2, "t1", [2]keyspace.ID{{Key: "a"}}}, {"b", "a", 1, "t2", [2]keyspace.ID{}}}, true}}},
			"lock-order", "Threads acquire a then b (2 times), b then a (1 time): they can deadlock. First seen of t1, t2."},
		{"processes do so", keyspace.Snapshot{Inversions: []keyspace.Inversion{{Steps: []keyspace.Step{{Locks: [2]keyspace.ID{{Key: "a"}}}, {}}}}}, "possible-lock-order", "Processes acquire"},
		{"pushes are not allowed", keyspace.Snapshot{Watch: keyspace.WatchStatus{Mode: keyspace.Polling, Limitations: []string{"NOPERM no client|tracking"}}}, "no-notify-right", "no permission for client tracking"},
		{"pushes do not exist", keyspace.Snapshot{Watch: keyspace.WatchStatus{Mode: keyspace.Polling, Limitations: []string{"ERR unknown command"}}}, "", ""},
		{"pushes come, other things are not allowed", keyspace.Snapshot{Watch: keyspace.WatchStatus{Mode: keyspace.Push, Limitations: []string{"NOPERM no psubscribe"}}}, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var ids []string
			for _, f := range keyspace.ServerFindings(c.snap) {
				ids = append(ids, f.ID)
				missing = slices.DeleteFunc(missing, func(p keyspace.Problem) bool { return p == f.Problem })
				check.True(t, (f.Lock == keyspace.ID{}) == (c.snap.Inversions == nil) && f.Remedy != "" && strings.Contains(f.Text, c.says), "got %+v", f)
			}
			check.Equal(t, strings.Join(ids, " "), c.want, "found")
		})
	}
	check.True(t, len(missing) != 0 && missing[len(missing)-1].ID == "possible-deadlock", "no server has one of %v", missing)
}

func TestDamageOrdersBySeverityThenByWhatWaitingCostsThenByName(t *testing.T) {
	const hour = 3_600_000
	named := func(key string, l keyspace.Lock) *keyspace.Lock {
		l.Key = key
		return &l
	}
	s := keyspace.Snapshot{At: at(700_000), Locks: []*keyspace.Lock{
		named("quiet 2", mutex(keyspace.Holder{ID: "x", Since: at(699_000), Expires: at(hour)})),
		named("b one waits", waitedFor(mutex(keyspace.Holder{ID: "x", Since: at(600_000), Expires: at(hour)}), "w")),
		named("c two wait", waitedFor(mutex(keyspace.Holder{ID: "x", Since: at(600_000), Expires: at(hour)}), "v", "w")),
		named("d overdue", mutex(holder("x", hour))),
		named("e stuck", mutex(keyspace.Holder{ID: "x"})),
		named("g asked for", with(mutex(keyspace.Holder{ID: "x", Since: at(610_000), Expires: at(hour)}), func(l *keyspace.Lock) { l.AskedAt = at(699_000) })),
		named("quiet 10", mutex(keyspace.Holder{ID: "x", Since: at(600_000), Expires: at(hour)})),
	}}
	var got []string
	for _, l := range new(keyspace.Review).Next(s, true).Order(keyspace.Findings(s)) {
		got = append(got, l.Key)
	}
	check.DeepEqual(t, got, []string{"e stuck", "d overdue", "c two wait", "b one waits", "g asked for", "quiet 2", "quiet 10"})
	check.True(t, s.Locks[0].Key == "quiet 2", "the snapshot was changed")
}

// Something must speak for it that a lock is stuck. The deadline in a value may pass; a TTL that has passed is that of
// the last read.
func TestALockIsStuckOrExpiredOnlyIfSomethingSpeaksForIt(t *testing.T) {
	endless := keyspace.Lock{Holders: []keyspace.Holder{{ID: "a", Depth: 1, Since: t0}}}
	renewed := func(l keyspace.Lock) keyspace.Lock {
		l.Expires = at(3_600_000)
		return l
	}
	usual := endless
	usual.MedianHold = time.Second
	gone := keyspace.Lock{Holders: []keyspace.Holder{{ID: "a", Depth: 1, DisconnectedAt: at(1000)}}}
	unknown := keyspace.Lock{Holders: []keyspace.Holder{{ID: "a", Depth: 1}}}
	expiring := mutex(holder("a", 5000))
	stamped := expiring
	stamped.Stamped = true
	for _, c := range []struct {
		name string
		lock keyspace.Lock
		at   int // ms after the hold began
		want keyspace.State
	}{
		{"just acquired", endless, 1000, keyspace.Held},
		{"for as long as many", endless, 599_000, keyspace.Held},
		{"for long", endless, 601_000, keyspace.Stuck},
		{"for long, and it will expire", renewed(endless), 601_000, keyspace.Held},
		{"as long as usual", usual, 29_000, keyspace.Held},
		{"much longer than usual", usual, 31_000, keyspace.Stuck},
		{"its client was away for a moment", gone, 3000, keyspace.Held},
		{"its client is gone", gone, 7000, keyspace.Stuck},
		{"since an unknown time", unknown, 601_000, keyspace.Held},
		{"before its stamp", stamped, 4000, keyspace.Held},
		{"just after its stamp", stamped, 5500, keyspace.Held},
		{"after its stamp", stamped, 10_000, keyspace.Lapsed},
		{"after its TTL", expiring, 10_000, keyspace.Held},
	} {
		check.Equal(t, c.lock.State(at(c.at)), c.want, "%s: it is", c.name)
	}
}

func TestNamesAreOrderedByTheirNumbers(t *testing.T) {
	want := []string{"a:7", "load:", "load:1", "load:2", "load:2:b", "load:02", "load:10", "load:10:9", "load:10:10", "load:a", "鎖2", "鎖10"}
	names := slices.Clone(want)
	slices.Sort(names)
	slices.SortFunc(names, keyspace.CompareNames)
	check.True(t, slices.Equal(names, want), "got %q", names)
}

// Each finding that the past of a lock causes is tested with the most similar states without it.
func TestFindingsOfThePastOfALock(t *testing.T) {
	const hour = 3_600_000
	slowly := func(change func(*keyspace.Lock)) keyspace.Lock { // free for 7 of 20 s
		return with(waitedFor(mutex(), "v", "w"), func(l *keyspace.Lock) {
			l.Holders = []keyspace.Holder{{ID: "a", Since: at(19_990), Expires: at(hour)}}
			l.Expires = at(hour)
			l.MedianHold, l.Past = 30*time.Millisecond, &keyspace.Past{HandOffP50: 210 * time.Millisecond, ContendedAt: t0, FreeSince: t0, Free: 7 * time.Second}
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
		{"waiters that poll slowly", slowly(same), 20_000, "slow-hand-off warning", "Between two holds the lock is free for 210 ms, and the holds take 30 ms: its 2 waiters poll too slowly."},
		{"one of them is left", slowly(func(l *keyspace.Lock) { l.Waiters = l.Waiters[:1] }), 20_000, "slow-hand-off warning", "its waiter polls too slowly"},
		{"waiters for less than ten seconds", slowly(func(l *keyspace.Lock) { l.Past.Free /= 2 }), 9900, "", ""},
		{"held for 71 % of the time", slowly(func(l *keyspace.Lock) { l.Past.Free = 5800 * time.Millisecond }), 20_000, "", ""},
		{"held for 69 % of the time", slowly(func(l *keyspace.Lock) { l.Past.Free = 6200 * time.Millisecond }), 20_000, "slow-hand-off warning", "210 ms"},
		{"held for long since", slowly(same), 24_000, "", ""},
		{"free at the moment, and in all for 31 % of the time", slowly(func(l *keyspace.Lock) {
			l.Past.Free, l.Holders, l.UnheldSince = 5600*time.Millisecond, nil, at(19_400)
		}), 20_000, "slow-hand-off warning", "210 ms"},
		{"holds that take longer than the hand-offs", slowly(func(l *keyspace.Lock) { l.MedianHold = 210 * time.Millisecond }), 20_000, "", ""},
		{"too few holds", slowly(func(l *keyspace.Lock) { l.MedianHold = 0 }), 20_000, "", ""},
		{"the next waiter has not polled yet", slowly(func(l *keyspace.Lock) { l.Waiters, l.Past.WaiterSeen = nil, at(19_100) }), 20_000, "slow-hand-off warning", "its waiters poll too slowly"},
		{"no waiter", slowly(func(l *keyspace.Lock) { l.Waiters = nil }), 20_000, "", ""},
		{"clients that ask during a hold and may give up", slowly(func(l *keyspace.Lock) { l.Waiters, l.AskedAt = nil, at(19_995) }), 20_000, "", ""},

		{"a renewal is late by half a period", renewed(same), 45_000, "renewals-stopped warning", "Renewed every 10 s, and the next renewal is 5.0 s late: the lock ends in 15 s."},
		{"a late renewal with a deadline ten renewals away", renewed(func(l *keyspace.Lock) { l.Expires = at(145_000) }), 45_000, "renewals-stopped warning", "the lock ends in 1 m 40"},
		{"a late renewal with a deadline farther away", renewed(func(l *keyspace.Lock) { l.Expires = at(145_100) }), 45_000, "", ""},
		{"a renewal is late by less", renewed(same), 44_900, "", ""},
		{"the lock has ended", renewed(same), 60_000, "", ""},
		{"too few renewals", renewed(func(l *keyspace.Lock) { l.Renewals = 2 }), 45_000, "", ""},
		{"renewals without a rhythm", renewed(func(l *keyspace.Lock) { l.RenewedEvery *= -1 }), 45_000, "", ""},
		{"renewals of several holders", renewed(func(l *keyspace.Lock) { l.Holders = append(l.Holders, holder("b", 60_000)) }), 45_000, "", ""},
		{"a fast renewal is read late", renewed(func(l *keyspace.Lock) { l.RenewedEvery = 100 * time.Millisecond }), 30_290, "", ""},
		{"no deadline", renewed(func(l *keyspace.Lock) { l.Expires, l.NoTTL = time.Time{}, true }), 45_000, "", ""},

		{"two missed renewals of a long lease", renewed(func(l *keyspace.Lock) { l.Expires = at(300_000) }), 59_000, "", ""},
		{"three missed renewals of a long lease", renewed(func(l *keyspace.Lock) { l.Expires = at(300_000) }), 60_000, "renewals-stopped warning", "the next renewal is 20 s late"},
		{"a wait of almost 30 s", waits(same), 29_900, "", ""},
		{"a wait of 30 s", waits(same), 30_000, "long-wait warning", "for 30 s"},
		{"a wait of 60 s", waits(same), 60_000, "long-wait critical", "for 1 m"},
		{"a wait for a leader", waits(func(l *keyspace.Lock) { l.Renewals = 1 }), 60_000, "", ""},
		{"a wait within the configured limit", waits(func(l *keyspace.Lock) { l.OverdueIn = time.Minute }), 60_000, "", ""},
		{"a wait whose begin is unknown", waits(func(l *keyspace.Lock) { l.Waiters[1].Since, l.Waiters[1].Seen = time.Time{}, t0 }), 30_000, "long-wait warning", "at least 30 s"},
		{"a dead waiter behind another", waits(func(l *keyspace.Lock) { l.Waiters[1].Expires = at(1000) }), 60_000, "", ""},

		{"holds that ended by expiry, and one that was renewed", expired(keyspace.Past{TTL: 30 * time.Second, HoldP99: 41 * time.Second}), 2000, "ttl-too-short warning", "hold p99 41 s, TTL 30 s."},
		{"holds of which only the TTL is known", expired(keyspace.Past{TTL: 30 * time.Second, HoldP99: 30 * time.Second, AtLeast: true}), 2000, "ttl-too-short warning", "hold p99 ≥ 30 s, TTL 30 s."},
		{"holds of unknown length", expired(keyspace.Past{TTL: 30 * time.Second}), 2000, "ttl-too-short warning", "none of them by a release."},
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
	stats holds.Stats
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
		h.stats.Removed(l.ID(), now.At)
		return l
	}
	h.stats.Annotate(now.Locks[0], now.At)
	return *now.Locks[0]
}

// The times of holds and of what is between them come from the events of a lock: 50 holds of 30
// ms with 210 ms between them, while clients wait, are a slow hand-off; the same hand-offs with more
// than 1 s without a waiter are none.
func TestASlowHandOffIsSeenInTheEvents(t *testing.T) {
	slow := func(l keyspace.Lock, ms int) bool {
		return slices.ContainsFunc(keyspace.Findings(keyspace.Snapshot{At: at(ms), Locks: []*keyspace.Lock{&l}}), func(f keyspace.Finding) bool { return f.ID == "slow-hand-off" })
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
				held := mutex(keyspace.Holder{ID: fmt.Sprint("owner-", cycle), Depth: 1, Expires: at(ms + 60_000)})
				held.Waiters, held.Expires = waiter, at(ms+60_000)
				last = h.read(ms, held)
				check.Require(t, !slow(last, ms) || ms >= 10_000, "its hand-off is slow after %d ms already", ms)
				free := mutex()
				free.Waiters = waiter
				ms += c.hold
				last = h.read(ms, free)
				ms += c.gap
			}
			check.Equal(t, slow(last, ms), c.want, "with %+v its hand-off is slow", last.Past)
		})
	}
}

// The rhythm of the renewals of a hold is known from the third one on, and a pause ends it.
func TestRenewalsHaveARhythm(t *testing.T) {
	var h history
	l := func(ms int) keyspace.Lock {
		l := mutex(keyspace.Holder{ID: "a", Depth: 1, Expires: at(ms + 30_000)})
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
			l := mutex(keyspace.Holder{ID: owner, Depth: 1, Expires: at(until)})
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
