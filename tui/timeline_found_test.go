package tui

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/keyspace"
)

// A lane that is made when it is drawn, or when the first thing happens to its lock, is the same
// as one that exists since the lock was found.
func TestALaneThatIsMadeLaterIsTheSame(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var late, early timeline
	s := state{}
	var was keyspace.Snapshot
	lazy := 0
	for step := range 2000 {
		now := keyspace.Snapshot{At: after(time.Duration(step) * time.Second), Complete: random.IntN(2) == 0}
		for i := range 8 {
			l := randomLock(random, fmt.Sprintf("lock:%05d", i+step/10*8), was, now.At) // other locks after 10 s
			if len(l.Holders)+len(l.Waiters) > 0 {
				now.Locks = append(now.Locks, &l)
			}
		}
		now = keyspace.CarryOver(was, now)
		change := keyspace.DeltaOf(was, now)
		events := change.Diff(was)
		late.add(change, events)
		if early.lanes == nil {
			early.lanes, early.owners = map[keyspace.ID]*lane{}, map[string]int{}
		}
		for i := range events {
			if e := &events[i]; e.Kind == keyspace.Discovered {
				early.owner(e.Holder.ID)
				early.lane(&e.Lock, e.At).begin(early.hold(&e.Lock, &e.Holder, e.At))
			}
		}
		early.add(change, events)
		s.timeline, s.live, was = late, &viewModel{snap: now}, now
		for _, l := range now.Locks {
			if late.of(l.ID()) == nil {
				lazy++
			}
			got, _ := s.lane(l.ID(), timeWindow{})
			want := early.of(l.ID())
			if want == nil || !slices.Equal(inOrder(got.holds), inOrder(want.holds)) || !slices.Equal(got.waits, want.waits) || !maps.Equal(got.waiting, want.waiting) {
				t.Fatalf("step %d: the lane of %s is %+v, want %+v", step, l.Key, got, want)
			}
		}
	}
	check.True(t, lazy >= 1000, "only %d lanes were made late", lazy)
}

// The holds of many locks take bounded memory. A lane says from when on it is whole, and that of a
// lock that is held for long is made again.
func TestATimelineKeepsABoundedNumberOfHolds(t *testing.T) {
	const locks, most = 100, 300
	c := timeline{most: most}
	s := state{}
	at := func(second int) time.Time { return after(time.Duration(second) * time.Second) }
	held := func(key string, since int) *keyspace.Lock {
		return &keyspace.Lock{Key: key, Holders: []keyspace.Holder{{ID: fmt.Sprint(key, " since ", since), Count: 1, Since: at(since)}}}
	}
	acquire := func(l *keyspace.Lock, ended ...keyspace.Holder) {
		now := l.Holders[0].Since
		events := []keyspace.Event{{At: now, Kind: keyspace.Acquired, Lock: *l, Holder: l.Holders[0]}}
		for _, h := range ended {
			events = slices.Insert(events, 0, keyspace.Event{At: now, Kind: keyspace.Released, Lock: *l, Holder: h, Held: now.Sub(h.Since)})
		}
		c.add(keyspace.Delta{Snapshot: keyspace.Snapshot{At: now, Locks: []*keyspace.Lock{l}}}, events)
	}
	quiet := held("quiet", 0)
	acquire(quiet)
	now := make(map[string]*keyspace.Lock)
	for second := 1; second <= 20*locks; second++ {
		key := fmt.Sprint("busy:", second%locks)
		l := held(key, second)
		if was := now[key]; was != nil {
			acquire(l, was.Holders...)
		} else {
			acquire(l)
		}
		now[key] = l
	}
	kept := 0
	for _, n := range c.lanes {
		kept += len(n.holds)
		check.True(t, len(n.letters) <= len(n.holds), "%d letters for %d holds", len(n.letters), len(n.holds))
	}
	check.True(t, kept <= most && kept >= most/2, "%d holds are kept, want at most %d", kept, most)
	n := c.of(now["busy:0"].ID())
	last := n.holds[len(n.holds)-1]
	check.True(t, last.holder == "busy:0 since 2000" && n.whole.Equal(n.holds[0].from),
		"the last hold is that of %s; whole since %v, the first hold begins at %v", last.holder, n.whole, n.holds[0].from)
	s.timeline, s.live = c, &viewModel{snap: keyspace.Snapshot{At: at(20 * locks), Locks: []*keyspace.Lock{quiet}}}
	check.True(t, c.of(quiet.ID()) == nil, "a lock of which nothing happens has a lane for ever")
	again, _ := s.lane(quiet.ID(), timeWindow{})
	check.True(t, len(again.holds) == 1 && again.holds[0].from.Equal(at(0)) && again.whole.After(at(0)), "its lane is %+v", again)
}

// randomLock returns a lock as it was, or with other holders and waiters: every other key is a
// semaphore.
func randomLock(random *rand.Rand, key string, was keyspace.Snapshot, at time.Time) keyspace.Lock {
	if i := slices.IndexFunc(was.Locks, func(l *keyspace.Lock) bool { return l.Key == key }); i >= 0 && random.IntN(4) > 0 {
		return *was.Locks[i]
	}
	l := keyspace.Lock{Key: key, Kind: keyspace.Mutex, Confidence: keyspace.Certain}
	most := 1
	if key[len(key)-1]%2 == 0 {
		l.Kind, most = keyspace.Semaphore, 3
	}
	for owner := range random.IntN(most + 1) {
		h := keyspace.Holder{ID: fmt.Sprint("owner-", owner+random.IntN(2)*3), Count: 1}
		if random.IntN(8) == 0 {
			h.ID = fmt.Sprint("since-", at.Unix(), "-", owner) // with its begin
			h.Since = at.Add(-time.Duration(random.IntN(5)) * time.Second / 2)
		}
		l.Holders = append(l.Holders, h)
	}
	if random.IntN(5) == 0 {
		l.Waiters = []keyspace.Waiter{{ID: "waiter"}}
	}
	return l
}

// inOrder returns holds in an order that does not depend on when they were added, without the
// numbers of owners, which are in that order.
func inOrder(holds []timelineHold) []timelineHold {
	holds = slices.Clone(holds)
	for i := range holds {
		holds[i].owner, holds[i].letter = 0, 0
	}
	slices.SortFunc(holds, func(a, b timelineHold) int {
		return cmp.Or(a.from.Compare(b.from), strings.Compare(a.holder, b.holder))
	})
	return holds
}
