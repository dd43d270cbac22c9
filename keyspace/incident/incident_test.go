package incident_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/keyspace"
	"locktop/keyspace/incident"
)

const key = "job:nightly"

// staged is an incident that clients play.
type staged struct {
	name  string
	play  func(f *film)
	cause incident.Cause
	says  []string // in the text of the story
	never []string // not in it
}

// text returns everything that a story says.
func text(s incident.Story) string {
	all := s.Headline + "\n"
	for _, l := range s.Lines {
		all += fmt.Sprintf("%s %s | %v | %s\n", l.At.Format(time.TimeOnly), l.Text, l.Cost.Round(time.Second), l.Note)
	}
	return all + "Not known: " + strings.Join(s.Unknown, "; ") + "\nNext: " + s.Next
}

func incidents() []staged {
	return []staged{
		{"killed", func(f *film) {
			f.healthy(key, 20, 14*time.Second).acquire(key, "worker-7", 120*time.Second).wait(key, 11)
			f.pass(44 * time.Second).disconnect(key).pass(76 * time.Second).pass(67 * time.Second)
			f.acquire(key, "worker-2", 120*time.Second)
		}, incident.HolderGone, []string{
			"The connection of worker-7, which held job:nightly, had ended by 03:15:25, and the lock stayed held until 03:16:41. Then nobody took it until 03:17:48. 11 clients waited for 26 m 13 in all.",
			"TTL 2 m, never renewed (usual hold 14 s, p99 16 s)", "10.2.3.4:52312 had ended | 1m16s | a TTL of 30 s would have ended it at least 1 m 16 earlier", "whether worker-7 worked on",
			"03:16:41 expired; no release", "worker-2 acquired it: 11 clients waited and did not poll earlier | 1m7s", "see its log at 03:15:25", "shorter TTL",
		}, []string{"nobody worked", "whether clients waited"}},
		{"killed without waiters", func(f *film) {
			f.acquire(key, "worker-7", 60*time.Second).pass(10 * time.Second).disconnect(key).pass(51 * time.Second)
		}, incident.HolderGone, []string{"had ended by 03:10:10", "until 03:11:00", "whether clients waited"}, []string{"would have", "waited for"}},
		{"killed with a watchdog", func(f *film) {
			f.acquire(key, "worker-7", 30*time.Second).wait(key, 1).keep(key, 5)
			f.pass(3 * time.Second).disconnect(key).pass(28 * time.Second)
		}, incident.HolderGone, []string{"renewed 5 times, every 10 s", "had ended by 03:10:53", "until 03:11:20"}, []string{"would have"}},
		{"killed, and released by hand", func(f *film) {
			f.acquire(key, "worker-7", time.Hour).wait(key, 2).pass(10 * time.Second).disconnect(key)
			f.pass(5*time.Minute).end(key, keyspace.Released)
		}, incident.HolderGone, []string{"had ended by 03:10:10", "2 clients waited for 10 m", "03:15:10 released or deleted, 54 m 50 before its deadline"}, nil},
		{"disconnected, and released", func(f *film) {
			f.acquire(key, "worker-7", time.Hour).pass(10*time.Second).disconnect(key).pass(time.Minute).end(key, keyspace.Released)
			f.events[len(f.events)-1].Announced = true
		}, incident.HolderGone, []string{"03:11:10 worker-7 released it"}, []string{"deleted", "whether worker-7 released"}},
		{"killed, and deleted by hand", func(f *film) {
			f.acquire(key, "worker-7", time.Hour).wait(key, 2).pass(10 * time.Second).disconnect(key)
			f.pass(5*time.Minute).end(key, keyspace.Deleted)
		}, incident.HolderGone, []string{"until 03:15:10", "deleted without the message of a release, 54 m 50 before its deadline"}, nil},
		{"killed, and still held", func(f *film) {
			f.acquire(key, "worker-7", time.Hour).pass(10 * time.Second).disconnect(key).pass(5 * time.Minute)
		}, incident.HolderGone, []string{"until the last frame at 03:15:11", "give the lock a deadline"}, nil},
		{"killed, and gone when nobody looked", func(f *film) {
			f.acquire(key, "worker-7", time.Hour).pass(10 * time.Second).disconnect(key).pass(20 * time.Second)
			delete(f.locks, key)
			f.at = f.at.Add(30 * time.Second)
			f.b.State(keyspace.Snapshot{At: f.at})
			f.frame = f.at.Add(time.Second)
		}, incident.HolderGone, []string{"stayed held until 03:11:00 at the latest.", "had ended | 50s | at most: the lock may", "03:11:00 gone: its end, after 03:10:11, and the reason were not seen"}, nil},
		{"killed, and found", func(f *film) {
			f.acquire(key, "worker-7", time.Hour).change(key, func(l *keyspace.Lock) { l.Holders[0].Since, l.TTLSet = f.at.Add(-time.Minute), time.Hour }).events = nil
			f.pass(10 * time.Second).disconnect(key).pass(20 * time.Second)
		}, incident.HolderGone, []string{"03:09:00 worker-7 acquired it, at 03:10:00 at the latest: TTL 1 h, never renewed"}, nil},
		{"a client whose clock is wrong", func(f *film) { // a token may have its time
			f.acquire(key, "worker-7", 10*time.Second)
			f.change(key, func(l *keyspace.Lock) { l.Holders[0].Since = f.at.Add(-18001 * time.Minute) }).events = nil
			f.emit(keyspace.Acquired, f.locks[key], f.locks[key].Holders[0])
			f.pass(11 * time.Second)
		}, incident.Expired, []string{"03:10:00 worker-7 acquired it: TTL 10 s"}, nil},
		{"no TTL and killed", func(f *film) {
			f.acquire(key, "worker-7", 0).wait(key, 3).pass(10 * time.Second).disconnect(key).pass(5 * time.Minute)
		}, incident.NeverExpires, []string{"no TTL", "SET NX PX", "give the lock a deadline", "3 clients waited for 15 m"}, nil},
		{"no TTL, killed and deleted", func(f *film) {
			f.acquire(key, "worker-7", 0).pass(10 * time.Second).disconnect(key).pass(5 * time.Minute)
			f.end(key, keyspace.Deleted).pass(time.Second)
		}, incident.NeverExpires, []string{"until 03:15:10"}, []string{"give the lock a deadline"}},
		{"frozen with a watchdog", func(f *film) {
			f.acquire(key, "worker-7", 30*time.Second).wait(key, 4).keep(key, 6)
			f.pass(30*time.Second).acquire(key, "worker-2", 30*time.Second)
		}, incident.ExpiredConnected, []string{"until its lease ran out at 03:11:30, 30 s after its last renewal: a connection with its name was not seen to end.", "4 clients waited for at most 2 m 00", "its last renewal; a connection with its name, 10.2.3.4:52312, was not seen to end | 30s | at most: it may have worked",
			"worker-2 acquired it, while worker-7 may have worked"}, []string{"ended by", "froze", "would have"}},
		{"frozen without a watchdog", func(f *film) {
			f.healthy(key, 20, 2*time.Second).acquire(key, "worker-7", 60*time.Second).wait(key, 1)
			f.pass(61 * time.Second)
		}, incident.ExpiredConnected, []string{"1 m 00 after the hold began", "half of the holds are over in 2.0 s", "1 client waited for at most 59 s"}, nil},
		{"renewals stopped", func(f *film) {
			f.acquire(key, "?7", 30*time.Second).wait(key, 4).keep(key, 6).pass(31 * time.Second)
		}, incident.RenewalsStopped, []string{"did not renew it after 03:11:00: its lease expired", "no connection with the name ?7 was seen. CLIENT SETNAME gives it one, and"}, []string{"froze", "it ended"}},
		{"renewals stopped, and another process has the name", func(f *film) {
			f.acquire(key, "*7", 30*time.Second).wait(key, 4).keep(key, 6).pass(31 * time.Second)
		}, incident.RenewalsStopped, []string{"did not renew it after 03:11:00: its lease expired"}, []string{"froze", "it ended", "10.2.3.4", "no connection with the name"}},
		{"a failover", func(f *film) {
			f.acquire(key, "worker-7", 60*time.Second).pass(10 * time.Second)
			f.tell(keyspace.ServerFailover, "another server has taken its place; its uptime is 3 d")
			f.end(key, keyspace.Lost).pass(2*time.Second).acquire(key, "worker-2", 60*time.Second)
		}, incident.Failover, []string{"A failover lost job:nightly at 03:10:10", "lost by the server, 50 s before its deadline", "server 10.0.0.5:6379: another server",
			"worker-2 acquired it: both had a lease until 03:11:00", "WAIT"}, nil},
		{"a restart after an outage", func(f *film) {
			f.acquire(key, "worker-7", 60*time.Second).pass(10 * time.Second)
			f.tell(keyspace.ServerLost, "connection refused").pass(5 * time.Second)
			f.tell(keyspace.ServerBack, "it was restarted")
			f.notice[0].Change = keyspace.ServerRestarted
			f.end(key, keyspace.Lost)
		}, incident.Restart, []string{"A restart of the server lost", "it cannot be read: connection refused", "it answers again: it was restarted"}, nil},
		{"a master that becomes a replica", func(f *film) {
			f.acquire(key, "worker-7", 60*time.Second).pass(10 * time.Second)
			f.tell(keyspace.ServerFlushed, "a database was emptied").end(key, keyspace.Lost).pass(time.Second)
			f.tell(keyspace.ServerFailover, "the server is a replica now")
		}, incident.Failover, []string{"the server is a replica now"}, []string{"emptied"}},
		{"a restart", func(f *film) {
			f.acquire(key, "worker-7", 60*time.Second).pass(10 * time.Second)
			f.tell(keyspace.ServerRestarted, "it was restarted").end(key, keyspace.Lost)
		}, incident.Restart, []string{"A restart of the server lost", "it was restarted"}, []string{"both had"}},
		{"a restart or a failover", func(f *film) {
			f.acquire(key, "worker-7", 60*time.Second).pass(10*time.Second).end(key, keyspace.Lost)
		}, incident.Lost, []string{"A failover or a restart lost"}, nil},
		{"an eviction", func(f *film) {
			f.policy = "allkeys-lru"
			f.acquire(key, "worker-7", 60*time.Second).pass(10*time.Second).end(key, keyspace.Evicted)
			f.acquire(key, "worker-2", 60*time.Second)
		}, incident.Evicted, []string{"evicted job:nightly at 03:10:10", "evicted (maxmemory-policy allkeys-lru), 50 s before", "noeviction", "both had a lease"}, nil},
		{"a flush", func(f *film) {
			f.acquire(key, "worker-7", 60*time.Second).pass(10 * time.Second)
			f.tell(keyspace.ServerFlushed, "a database was emptied").end(key, keyspace.Flushed).pass(time.Second)
			f.tell(keyspace.ServerFlushed, "a database was emptied again and again")
			f.notice[0].Text = "a database was emptied"
		}, incident.Flushed, []string{"The database was emptied at 03:10:10", "FLUSHDB", "03:10:10 server 10.0.0.5:6379: a database"}, []string{"03:10:11"}},
		{"a deadline that a person moves", func(f *film) {
			f.healthy(key, 20, time.Second).acquire(key, "worker-5", 60*time.Second).pass(6*time.Second).set(key, time.Second).pass(10 * time.Second)
		}, incident.Expired, []string{"worker-5 held job:nightly until it expired at 03:10:28: by 03:10:28 its deadline was moved from 03:11:21 to 03:10:28.", "worker-5 acquired it: TTL 1 m, never renewed",
			"who set the deadline earlier: Redis does not record it"}, []string{"would have", "TTL 7", "not seen to end", "lease ran out"}},
		{"a deadline that a person removes", func(f *film) {
			f.healthy(key, 6, time.Second).acquire(key, "worker-6", 8*time.Second).pass(2*time.Second).set(key, 0).pass(10*time.Second).disconnect(key).pass(12*time.Second).end(key, keyspace.Released)
		}, incident.NeverExpires, []string{"By 03:10:09 its deadline, 03:10:14, was removed.", "worker-6 acquired it: TTL 8 s", "03:10:30 released or deleted | ", "whether worker-6 released it, or another client deleted it", "Find out who removed the deadline"},
			[]string{"no TTL", "would have ended", "03:10:30 worker-6 released", "SET NX PX"}},
		{"a lock that is kept for a minimum time", func(f *film) {
			for range 8 {
				f.acquire(key, "worker-1", 20*time.Second).pass(1400*time.Millisecond).set(key, 600*time.Millisecond).pass(time.Second)
			}
		}, incident.Expired, []string{"8 holds of job:nightly ended at a deadline that was set earlier, or with a new value: so does a release that keeps the lock for a minimum time.", "Nothing, if worker-1 releases the lock so"},
			[]string{"may have worked", "too short"}},
		{"a client that writes a new value to release", func(f *film) {
			for range 8 {
				f.acquire(key, "worker-1", 20*time.Second).pass(500*time.Millisecond).end(key, keyspace.Replaced).acquire(key, "worker-1", 1500*time.Millisecond).pass(1800 * time.Millisecond)
			}
			f.acquire(key, "worker-1", time.Second).pass(time.Second)
		}, incident.Expired, []string{"8 holds of job:nightly ended at a deadline that was set earlier, or with a new value, and 1 more by expiry", "03:10:00 worker-1 wrote a new value into it: TTL 1.5 s"},
			[]string{"may have worked", "too short", "03:10:00 worker-1 acquired it: TTL 1.5 s"}},
		{"a client that releases and acquires at once", func(f *film) {
			f.acquire(key, "worker-1", 20*time.Second).pass(500*time.Millisecond).end(key, keyspace.Released).acquire(key, "worker-1", 1500*time.Millisecond).pass(1600 * time.Millisecond)
		}, incident.Expired, []string{"03:10:00 worker-1 acquired it: TTL 1.5 s"}, []string{"new value"}},
		{"a key that is renamed", func(f *film) {
			l := f.acquire("job:old", "worker-1", 30*time.Second).pass(4 * time.Second).locks["job:old"]
			f.emit(keyspace.Released, l, l.Holders[0])
			delete(f.locks, l.Key)
			l.Key = key
			f.locks[key] = l
			f.emit(keyspace.Acquired, l, l.Holders[0])
			f.pass(27 * time.Second)
		}, incident.Expired, []string{"03:10:04 worker-1 has it, with the value and the deadline of job:old, never renewed", "longer than the TTL, renew"}, []string{"acquired it", "TTL 2"}},
		{"a node that cannot be read for a while", func(f *film) {
			l := f.acquire(key, "worker-1", 30*time.Second).pass(10 * time.Second).locks[key]
			delete(f.locks, key)
			f.nodes = []keyspace.Node{{Server: keyspace.Server{Addr: l.Node}}}
			f.pass(5 * time.Second).b.State(keyspace.Snapshot{At: f.at, Nodes: f.nodes}) // a segment begins
			f.locks[key], f.nodes = l, nil
			f.pass(17 * time.Second)
		}, incident.Expired, []string{"03:10:00 worker-1 acquired it: TTL 30 s, never renewed"}, []string{"again", "value"}},
		{"a deadline that passes while the server cannot be read", func(f *film) {
			f.healthy(key, 5, time.Second).acquire(key, "worker-7", 60*time.Second).wait(key, 1).pass(10 * time.Second).disconnect(key).pass(49 * time.Second)
			l := f.locks[key]
			f.emit(keyspace.Expired, l, l.Holders[0]).Possible = []keyspace.EventKind{keyspace.Expired, keyspace.Released}
			delete(f.locks, key)
		}, incident.HolderGone, []string{"at the latest. It held", "and the reason were not seen"}, []string{"expired; no release"}},
		{"a hold that is found and renewed", func(f *film) {
			f.acquire(key, "?7", 5*time.Second).events = nil
			f.pass(time.Second).renew(key, 30*time.Second).pass(31 * time.Second)
		}, incident.RenewalsStopped, []string{"?7 acquired it, renewed once"}, []string{"TTL 30", "TTL 5"}},
		{"a value that is restored", func(f *film) {
			f.acquire(key, "?7", 20*time.Second).pass(3*time.Second).end(key, keyspace.Released).pass(2 * time.Second)
			f.tokens--
			f.acquire(key, "?7", 20*time.Second).pass(21 * time.Second)
		}, incident.Expired, []string{"03:10:05 ?7 has it again, with the value of the last hold: TTL 20 s"}, []string{"acquired it"}},
		{"an outage of the server", func(f *film) {
			for i := range 4 {
				f.acquire(key, fmt.Sprint("worker-", i), 10*time.Second).pass(5*time.Second).tell(keyspace.ServerLost, "timeout").pass(5100 * time.Millisecond)
			}
		}, incident.Expired, []string{"whether worker-0 could reach the server (03:10:05: it cannot be read: timeout)"}, []string{"too short"}},
		{"a client that gets its lock again", func(f *film) {
			for range 6 {
				f.acquire(key, "worker-1", 10*time.Second).pass(10100 * time.Millisecond)
			}
		}, incident.TTLTooShort, []string{"each time the same client acquired the lock again", "worker-1 acquired it again", "on purpose: no hold was released"}, []string{"other clients", "may have worked"}},
		{"a hold that is renewed while clients wait", func(f *film) {
			f.acquire(key, "worker-z", 30*time.Second).wait(key, 5).keep(key, 8)
		}, incident.Overdue, []string{"worker-z has held job:nightly for 1 m 21, renewed 8 times, while up to 5 clients waited. 5 clients waited for 6 m 4", "how long a hold usually takes: fewer than five"}, []string{"half of"}},
		{"deleted by hand", func(f *film) {
			f.acquire(key, "worker-7", 60*time.Second).pass(10*time.Second).end(key, keyspace.Deleted)
			f.pass(time.Second).acquire(key, "worker-2", 60*time.Second)
		}, incident.Deleted, []string{"A client deleted job:nightly at 03:10:10 while worker-7 held it", "both had a lease until 03:11:00", "which client deleted it"}, []string{"worker-7 released it"}},
		{"stolen", func(f *film) {
			f.acquire(key, "worker-7", 60*time.Second).pass(10 * time.Second)
			l := f.locks[key]
			was := l.Holders[0]
			f.acquire(key, "thief", 60*time.Second)
			f.events[0] = keyspace.Event{At: f.at, Kind: keyspace.Stolen, Lock: f.locks[key], Holder: was, Held: 10 * time.Second}
			f.locks[key].Holders[0].Since = f.at.Add(-8 * time.Millisecond) // by its clock
			f.emit(keyspace.Acquired, f.locks[key], f.locks[key].Holders[0])
		}, incident.Stolen, []string{"taken without a release, 50 s before its deadline | 0s | \n03:10:10 thief acquired it", "thief took job:nightly at 03:10:10 from worker-7", "token"}, nil},
		{"TTL too short", func(f *film) {
			for i := range 220 { // more than are kept
				f.acquire(key, fmt.Sprint("worker-", i), 10*time.Second).pass(10100 * time.Millisecond)
			}
		}, incident.TTLTooShort, []string{"The TTL of job:nightly, 10 s, is too short, or its clients do not release it: at least 219 holds", "TTL of at least 20 s", "worker-2 acquired it, while worker-1 may have worked", "how long the work takes"}, nil},
		{"TTL too short once", func(f *film) {
			f.acquire(key, "worker-7", 10*time.Second).pass(10100 * time.Millisecond)
			f.acquire(key, "worker-2", 10*time.Second).pass(time.Second).end(key, keyspace.Released)
		}, incident.TTLTooShort, []string{"1 hold ended by expiry, and worker-2 acquired the lock while worker-7 may have worked."}, []string{"other clients"}},
		{"TTL too short, unknown connections", func(f *film) {
			for i := range 6 {
				f.acquire(key, fmt.Sprint("?", i), 10*time.Second).pass(10100 * time.Millisecond)
			}
		}, incident.TTLTooShort, []string{"is too short, or its clients do not release it: 6 holds"}, nil},
		{"TTL too short for some", func(f *film) {
			for i := range 30 {
				f.acquire(key, fmt.Sprint("worker-", i%3), 10*time.Second)
				if i%5 == 4 {
					f.pass(10100 * time.Millisecond)
					continue
				}
				f.pass(time.Duration(5+i%4)*time.Second).end(key, keyspace.Released).pass(50 * time.Millisecond)
			}
			f.acquire(key, "worker-1", 10*time.Second)
		}, incident.TTLTooShort, []string{"6 holds ended by expiry", "TTL of at least 20 s"}, nil},
		{"one expiry", func(f *film) {
			f.acquire(key, "?7", 10*time.Second).pass(11 * time.Second)
		}, incident.Expired, []string{"?7 held job:nightly and did not release it", "whether ?7 still worked at 03:10:10, hung or had ended: no connection with the name ?7"}, []string{"shorter than"}},
		{"one expiry of a holder without a name", func(f *film) {
			f.acquire(key, "?7", 10*time.Second)
			f.change(key, func(l *keyspace.Lock) { l.Holders[0].Label = "" }).events = nil
			f.emit(keyspace.Acquired, f.locks[key], f.locks[key].Holders[0])
			f.pass(11 * time.Second)
		}, incident.Expired, []string{"the value of the lock names no client. If the value is the client's name and a token"}, []string{"no connection with"}},
		{"pollers too slow", func(f *film) {
			for i := range 5 {
				f.acquire(key, fmt.Sprint("worker-", i), 60*time.Second).wait(key, 3).pass(2 * time.Second)
				f.end(key, keyspace.Released).pass(20 * time.Second)
			}
			f.acquire(key, "worker-9", 60*time.Second)
		}, incident.SlowHandOff, []string{"was free 5 times for up to 20 s", "worker-1 acquired it: 3 clients waited and did not poll earlier | 20s | a client that is notified", "poll at least every 2.0 s"}, []string{"froze"}},
		{"one lost wake-up", func(f *film) {
			f.healthy(key, 10, 5*time.Second).acquire(key, "worker-1", 60*time.Second).wait(key, 2)
			f.pass(5*time.Second).end(key, keyspace.Released).pass(30 * time.Second)
			f.acquire(key, "worker-2", 60*time.Second)
		}, incident.SlowHandOff, []string{"Nobody held job:nightly from", "2 clients waited for 1 m 00"}, nil},
		{"waiters that give up", func(f *film) {
			f.acquire(key, "worker-1", 60*time.Second).wait(key, 2).pass(5*time.Second).end(key, keyspace.Released)
			f.pass(10 * time.Second)
			delete(f.locks, key)
			f.pass(time.Hour).acquire(key, "worker-2", 60*time.Second).pass(time.Second).end(key, keyspace.Released)
		}, incident.SlowHandOff, []string{"Nobody held job:nightly from 03:10:05 to 03:10:16", "2 clients waited until now: they gave up, or their holds were too short to be seen | 11s"}, []string{"worker-2 acquired it"}},
		{"waiters of a free lock, to the end", func(f *film) {
			f.acquire(key, "worker-1", 60*time.Second).wait(key, 2).pass(5*time.Second).end(key, keyspace.Released)
			f.pass(30 * time.Second)
		}, incident.SlowHandOff, []string{"still free at the last frame, and 2 clients waited | 31s"}, nil},
		{"a deadlock of three", func(f *film) {
			f.deadlock(":1").pass(60 * time.Second)
		}, incident.Deadlock, []string{"was in a deadlock of 3 owners from 03:10:0", "until 03:10:59, with other:a and other:b: each owner waited for the next one",
			"-050403020100:1 waits for other:a, which 1f0e0d0c-0b0a-0908-0706-050403020100:1 holds | 0s | \n", "waits for job:nightly, which 0f0e0d0c-0b0a-0908-0706-050403020100:1 holds | 56s",
			"acquire job:nightly, other:a and other:b in the same order", "3 clients waited for 2 m 51 in all"}, []string{"froze", "possible only", "To end it now"}},
		{"a deadlock of three that lasts", func(f *film) {
			f.deadlock(":1").pass(20 * time.Second)
		}, incident.Deadlock, []string{"until the last frame at 03:10:2", "the deadlock lasts at the last frame", "To end it now, end one of its owners"}, []string{"last time"}},
		{"a deadlock of three processes", func(f *film) {
			f.deadlock("").pass(60 * time.Second)
		}, incident.PossibleDeadlock, []string{"was in a possible deadlock of 3 owners from 03:10:0", "the deadlock is possible only", "3 clients waited for 2 m 51 in all"}, nil},
		{"a slow holder", func(f *film) {
			f.healthy(key, 30, time.Second).acquire(key, "worker-7", 5*time.Minute).wait(key, 5).pass(2 * time.Minute)
			f.end(key, keyspace.Released)
		}, incident.Overdue, []string{"worker-7 held job:nightly for 2 m 00, where half of its holds are over in 1.0 s", "5 clients waited for 9 m 54", "Do not force-release"}, []string{"expired"}},
		{"a slow holder that renews", func(f *film) {
			f.healthy(key, 30, time.Second).acquire(key, "worker-7", 30*time.Second).wait(key, 1).keep(key, 20)
		}, incident.Overdue, []string{"has held job:nightly for 3 m 20", "renewed 20 times"}, nil},
		{"a slow holder before the usual ones", func(f *film) {
			f.acquire(key, "worker-7", 5*time.Minute).wait(key, 1).pass(2*time.Minute).end(key, keyspace.Released)
			f.acquire(key, "waiter-2", 10*time.Second).pass(time.Second).end(key, keyspace.Released)
			f.healthy(key, 30, time.Second)
		}, incident.Overdue, []string{"worker-7 held job:nightly for 2 m 00"}, nil},
		{"a slow holder that was found", func(f *film) {
			f.acquire(key, "worker-7", time.Hour).change(key, func(l *keyspace.Lock) { l.Holders[0].Since = f.at.Add(-time.Minute) }).events = nil
			f.wait(key, 1).pass(10*time.Second).end(key, keyspace.Released).acquire(key, "waiter-2", 10*time.Second).pass(time.Second).end(key, keyspace.Released)
			f.healthy(key, 30, time.Second)
		}, incident.Overdue, []string{"worker-7 held job:nightly for at most 1 m 10", "1 client waited for at most"}, nil},
		{"a permit that expires, and another one that is acquired", func(f *film) {
			f.acquire(key, "worker-7", 10*time.Second).change(key, func(l *keyspace.Lock) { l.Kind = keyspace.Semaphore }).events = nil
			f.emit(keyspace.Acquired, f.locks[key], f.locks[key].Holders[0])
			f.pass(10100*time.Millisecond).acquire(key, "worker-2", 10*time.Second).pass(time.Second).end(key, keyspace.Released)
		}, incident.Expired, []string{"03:10:10 expired; no release"}, []string{"worker-2"}},
		{"a hot lock", func(f *film) {
			f.wait(key, 3).healthy(key, 60, time.Second)
		}, incident.Contended, []string{"is only contended: nothing failed", "3.0 clients waited on average", "99 % in 1.2 s"}, []string{"longest"}},
		{"a hot lock with some long holds", func(f *film) {
			f.wait(key, 3)
			for range 8 {
				f.healthy(key, 10, 200*time.Millisecond).healthy(key, 1, 6*time.Second)
			}
		}, incident.Contended, []string{"88 holds until", "99 % in 200 ms, without the 8 longest"}, nil},
	}
}

func TestTheCauseOfEachStagedIncidentIsNamed(t *testing.T) {
	named := make(map[incident.Cause]bool)
	for _, tt := range incidents() {
		t.Run(tt.name, func(t *testing.T) {
			f := newFilm()
			tt.play(f)
			all := f.stories(t)
			mine := slices.DeleteFunc(slices.Clone(all), func(s incident.Story) bool { return s.Lock.Key != key })
			check.Require(t, len(mine) == 1 && mine[0].Cause == tt.cause, "%d stories, want one of %s: %+v", len(mine), tt.cause, all)
			if strings.HasSuffix(string(tt.cause), "deadlock") {
				check.Equal(t, len(all), 1, "stories of one deadlock")
			}
			named[tt.cause] = true
			got := text(mine[0])
			for _, want := range tt.says {
				check.True(t, strings.Contains(got, want), "no %q in:\n%s", want, got)
			}
			for _, no := range tt.never {
				check.True(t, !strings.Contains(got, no), "%q in:\n%s", no, got)
			}
		})
	}
	causes := make(map[incident.Cause]bool)
	for _, p := range keyspace.Causes() {
		causes[incident.Cause(p.ID)] = true
	}
	check.True(t, maps.Equal(causes, named) || t.Failed(), "the problems that are a cause are %v, and the staged causes %v", causes, named)
}

func TestEqualIncidentsAreToldInTheOrderOfTheirKeys(t *testing.T) {
	keys := []string{"job:c", "job:a", "job:d", "job:b"}
	f := newFilm()
	for _, key := range keys {
		f.acquire(key, "worker-7", time.Minute).wait(key, 2).disconnect(key)
	}
	f.pass(61 * time.Second)
	for range 50 { // the locks are in a map
		var told []string
		for _, s := range f.b.Stories() {
			check.Equal(t, s.Blocked, 2*time.Minute, "the cost of %s", s.Lock.Key)
			told = append(told, s.Lock.Key)
		}
		check.Equal(t, strings.Join(told, " "), "job:a job:b job:c job:d", "the order of the stories")
	}
}

// What may be how clients release a lock comes after the other incidents.
func TestWhatMayBeOnPurposeComesLast(t *testing.T) {
	f := newFilm()
	for range 4 {
		f.acquire("job:kept", "worker-1", time.Minute).pass(time.Second).set("job:kept", 20*time.Second).acquire("job:window", "?2", 20*time.Second).pass(20100 * time.Millisecond)
	}
	f.acquire("job:gone", "worker-7", time.Hour).disconnect("job:gone").pass(time.Minute)
	told := ""
	for _, s := range f.stories(t) {
		told += fmt.Sprintf("%s %s\n", s.Lock.Key, s.Cause)
	}
	check.Equal(t, told, "job:gone holder-gone\njob:kept expired\njob:window ttl-too-short\n")
}

func TestHealthyHoldsAreNoIncident(t *testing.T) {
	release := func(kind keyspace.EventKind) func(*film, int) {
		return func(f *film, i int) {
			f.acquire(key, fmt.Sprint("worker-", i%7), 30*time.Second)
			f.pass(time.Duration(200+i*37%1900)*time.Millisecond).end(key, kind)
			f.pass(time.Duration(i%3) * 20 * time.Millisecond)
		}
	}
	for name, play := range map[string]func(f *film, i int){
		"released":                       release(keyspace.Released),
		"handed over":                    release(keyspace.HandedOver),
		"replaced, as between two polls": release(keyspace.Replaced),
		"not seen":                       release(keyspace.Vanished),
		"renewed, with a waiter for a short time": func(f *film, i int) {
			if i < 3 {
				f.acquire(key, "worker-1", 30*time.Second).wait(key, 1).pass(10*time.Second).renew(key, 30*time.Second).pass(10*time.Second).end(key, keyspace.Released)
				f.change(key, func(l *keyspace.Lock) { l.Waiters = nil })
			}
		},
		"renewed": func(f *film, i int) {
			f.acquire(key, fmt.Sprint("worker-", i%7), 3*time.Second)
			for range 1 + i%4 {
				f.pass(time.Second).renew(key, 3*time.Second)
			}
			f.end(key, keyspace.Released)
		},
		"with a waiter each": func(f *film, i int) {
			f.acquire(key, fmt.Sprint("worker-", i), 30*time.Second).wait(key, i%2).pass(time.Second)
			f.end(key, keyspace.HandedOver).pass(5 * time.Millisecond)
			f.change(key, func(l *keyspace.Lock) { l.Waiters = nil })
		},
		"of a client that reconnects": func(f *film, i int) {
			f.acquire(key, fmt.Sprint("worker-", i), 30*time.Second).disconnect(key).pass(2 * time.Second)
			f.renew(key, 30*time.Second).pass(6*time.Second).end(key, keyspace.Released)
		},
		"on a node that changes, by resharding": func(f *film, i int) {
			f.acquire(key, fmt.Sprint("worker-", i), 30*time.Second).pass(time.Second)
			f.change(key, func(l *keyspace.Lock) { l.Node = fmt.Sprintf("10.0.0.%d:6379", i%3) })
			f.pass(time.Second).end(key, keyspace.Released)
		},
		"between pauses in which nobody waits": func(f *film, i int) {
			f.acquire(key, fmt.Sprint("worker-", i), 30*time.Second).pass(time.Second).end(key, keyspace.Released)
			f.pass(time.Minute)
		},
		"that a few take longer": func(f *film, i int) {
			f.acquire(key, fmt.Sprint("worker-", i), 5*time.Minute).pass(time.Second)
			if i%20 == 7 {
				f.pass(15 * time.Second)
			}
			f.end(key, keyspace.Released)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFilm()
			for i := range 100 {
				play(f, i)
			}
			for _, s := range f.stories(t) {
				t.Errorf("%s is invented: %s", s.Cause, text(s))
			}
		})
	}
}
