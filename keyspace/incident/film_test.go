package incident_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"locktop/keyspace"
	"locktop/keyspace/incident"
)

// film makes the frames of a watch, one per second, from what clients do with locks.
type film struct {
	b      *incident.Builder
	at     time.Time
	frame  time.Time
	locks  map[string]keyspace.Lock
	last   keyspace.Snapshot
	events []keyspace.Event
	notice []keyspace.Notice
	policy string
	nodes  []keyspace.Node
	tokens int
}

var begin = time.Date(2026, 11, 24, 3, 10, 0, 0, time.Local)

func newFilm() *film {
	return &film{b: incident.NewBuilder(nil), at: begin, frame: begin, locks: make(map[string]keyspace.Lock)}
}

// pass lets time pass. Locks whose deadline passes expire.
func (f *film) pass(d time.Duration) *film {
	for end := f.at.Add(d); ; {
		next := end
		if f.frame.Before(next) {
			next = f.frame
		}
		for _, key := range f.keys() {
			if l := f.locks[key]; len(l.Holders) > 0 && !l.Expires.IsZero() && l.Expires.Before(next) {
				next = l.Expires
			}
		}
		f.at = next
		for _, key := range f.keys() {
			if l := f.locks[key]; len(l.Holders) > 0 && l.Expires.Equal(f.at) {
				f.end(key, keyspace.Expired)
			}
		}
		if f.at.Equal(f.frame) {
			f.shoot()
		}
		if f.at.Equal(end) {
			return f
		}
	}
}

func (f *film) keys() []string { return slices.Sorted(maps.Keys(f.locks)) }

// shoot adds a frame.
func (f *film) shoot() {
	s := keyspace.Snapshot{At: f.at, Complete: true, Server: keyspace.Server{Policy: f.policy}, Nodes: f.nodes}
	for _, key := range f.keys() {
		if l := f.locks[key]; len(l.Holders)+len(l.Waiters) > 0 {
			s.Locks = append(s.Locks, &l)
		}
	}
	d := keyspace.DeltaOf(f.last, s)
	d.Events, d.Notices = f.events, f.notice
	f.b.Add(d)
	f.last, f.events, f.notice = s, nil, nil
	f.frame = f.at.Add(time.Second)
}

func (f *film) emit(kind keyspace.EventKind, l keyspace.Lock, h keyspace.Holder) *keyspace.Event {
	l.Holders, l.Waiters = slices.Clone(l.Holders), slices.Clone(l.Waiters)
	f.events = append(f.events, keyspace.Event{At: f.at, Kind: kind, Lock: l, Holder: h})
	return &f.events[len(f.events)-1]
}

// acquire lets a client acquire a lock; ttl 0 means none. The client is connected unless its
// name begins with ?. If it begins with *, several connections of its host have it.
func (f *film) acquire(key, client string, ttl time.Duration) *film {
	f.tokens++
	h := keyspace.Holder{ID: fmt.Sprintf("token-%d", f.tokens), Label: client, Depth: 1, Since: f.at}
	switch client[0] {
	case '?':
	case '*':
		h.Addr = "10.2.3.4"
	default:
		h.Addr = "10.2.3.4:52312"
	}
	l := f.locks[key]
	l.Key, l.Kind, l.Format, l.Node = key, keyspace.Mutex, "test", "10.0.0.5:6379"
	l.Expires, l.Observed = time.Time{}, keyspace.Observed{TTLSet: ttl}
	if ttl > 0 {
		l.Expires = f.at.Add(ttl)
	}
	h.Expires = l.Expires
	l.Holders = []keyspace.Holder{h}
	l.Waiters = slices.DeleteFunc(slices.Clone(l.Waiters), func(w keyspace.Waiter) bool { return w.ID == client })
	f.locks[key] = l
	f.emit(keyspace.Acquired, l, h)
	return f
}

// change changes a lock.
func (f *film) change(key string, change func(l *keyspace.Lock)) *film {
	l := f.locks[key]
	l.Holders, l.Waiters = slices.Clone(l.Holders), slices.Clone(l.Waiters)
	change(&l)
	f.locks[key] = l
	return f
}

// renew sets a new deadline.
func (f *film) renew(key string, ttl time.Duration) *film {
	return f.change(key, func(l *keyspace.Lock) {
		l.Expires, l.Renewals, l.Renewed = f.at.Add(ttl), l.Renewals+1, f.at
		l.Holders[0].Expires = l.Expires
	})
}

// set sets a deadline that is no renewal; ttl 0 removes it.
func (f *film) set(key string, ttl time.Duration) *film {
	return f.change(key, func(l *keyspace.Lock) {
		if l.Expires = f.at.Add(ttl); ttl == 0 {
			l.Expires = time.Time{}
		}
		l.Holders[0].Expires, l.TTLSet = l.Expires, ttl
	})
}

// keep renews a lock n times, each time after 10 s and for 30 s.
func (f *film) keep(key string, n int) *film {
	for range n {
		f.pass(10*time.Second).renew(key, 30*time.Second)
	}
	return f
}

// end ends a hold. The lock remains if it has waiters.
func (f *film) end(key string, kind keyspace.EventKind) *film {
	l := f.locks[key]
	h := l.Holders[0]
	after := l
	after.Holders, after.Expires, after.Observed = nil, time.Time{}, keyspace.Observed{}
	seen := after
	if len(l.Waiters) == 0 {
		seen = l // it is gone, and the event has it as last seen
	}
	f.emit(kind, seen, h).Held = f.at.Sub(h.Since)
	f.locks[key] = after
	return f
}

// wait lets n more clients wait.
func (f *film) wait(key string, n int) *film {
	f.change(key, func(l *keyspace.Lock) {
		l.Key, l.Node, l.Format = key, "10.0.0.5:6379", "test"
		for range n {
			f.tokens++
			l.Waiters = append(l.Waiters, keyspace.Waiter{ID: fmt.Sprintf("waiter-%d", f.tokens), Since: f.at})
		}
	})
	f.emit(keyspace.WaiterJoined, f.locks[key], keyspace.Holder{})
	return f
}

// disconnect ends the connection of the holder.
func (f *film) disconnect(key string) *film {
	return f.change(key, func(l *keyspace.Lock) { l.Holders[0].DisconnectedAt = f.at })
}

// tell adds a notice of the server.
func (f *film) tell(kind keyspace.NoticeKind, text string) *film {
	f.notice = append(f.notice, keyspace.Notice{At: f.at, Kind: kind, Node: "10.0.0.5:6379", Text: text})
	return f
}

// healthy lets clients hold a lock n times for about hold.
func (f *film) healthy(key string, n int, hold time.Duration) *film {
	for i := range n {
		f.acquire(key, fmt.Sprintf("worker-%d", i%7), 10*hold).pass(hold * time.Duration(8+i%5) / 10)
		f.end(key, keyspace.Released).pass(50 * time.Millisecond)
	}
	return f
}

// stories returns the incidents.
func (f *film) stories(t *testing.T) []incident.Story {
	t.Helper()
	f.pass(time.Second)
	return f.b.Stories()
}

// deadlock lets three owners, whose names end with a thread or "", wait for the locks of each other.
func (f *film) deadlock(thread string) *film {
	owners := []string{"0f0e0d0c-0b0a-0908-0706-050403020100" + thread, "1f0e0d0c-0b0a-0908-0706-050403020100" + thread, "2f0e0d0c-0b0a-0908-0706-050403020100" + thread}
	keys := []string{key, "other:a", "other:b"}
	for i, k := range keys {
		f.acquire(k, owners[i], 60*time.Second)
		f.change(k, func(l *keyspace.Lock) { l.Holders[0].ID, l.Holders[0].Label = owners[i], "" })
	}
	f.events = nil
	for _, k := range keys {
		f.emit(keyspace.Acquired, f.locks[k], f.locks[k].Holders[0])
	}
	f.pass(2 * time.Second)
	for i, k := range keys {
		f.change(k, func(l *keyspace.Lock) { l.Waiters = []keyspace.Waiter{{ID: owners[(i+2)%3], Since: f.at}} })
	}
	return f
}
