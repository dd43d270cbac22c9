package oracle

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"locktop/internal/check"
)

// clock is the clock of a replayed history.
type clock struct{ now time.Time }

// leaseUntil is a lease that ends at its deadline, by the clock of a history.
type leaseUntil struct {
	clock    *clock
	deadline time.Time
}

func (t leaseUntil) Valid() bool         { return t.clock.now.Before(t.deadline) }
func (t leaseUntil) Deadline() time.Time { return t.deadline }
func (t leaseUntil) Latest() time.Time   { return t.deadline }

// enter lets a client ask for keys and enter them, at the same moment unless h says when it asked.
func enter(o *Oracle, h Hold, now time.Time, keys ...int) *Hold {
	h.Asked = cmp.Or(h.Asked, now)
	v := o.Ask(h, keys...)
	o.Enter(v, now)
	return v
}

// interval is one hold of a history, in microseconds. Its lease ends at the
// deadline; 0 means much later than everything else.
type interval struct{ key, began, left, deadline int }

// end returns the end of the hold: when the client left or the lease ended.
func (s interval) end() int {
	if s.deadline > 0 {
		return min(s.left, s.deadline)
	}
	return s.left
}

// overlaps is what an oracle reports about overlaps.
type overlaps struct {
	count   int64
	longest time.Duration
}

func overlapsOf(o *Oracle) overlaps {
	overlap := o.Violations(time.Time{}).Overlap
	return overlaps{overlap.Count, overlap.Longest}
}

// replay replays a history to an oracle of a lock that admits limit holders, and
// returns what the oracle reports.
func replay(history []interval, limit int) overlaps {
	type step struct {
		at, hold int
		enter    bool
	}
	var steps []step
	keys := 0
	for i, s := range history {
		steps = append(steps, step{s.began, i, true}, step{s.left, i, false})
		keys = max(keys, s.key+1)
	}
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(a.at, b.at) })

	zero := time.Unix(0, 0)
	clock := &clock{zero}
	at := func(us int) time.Time { return zero.Add(time.Duration(us) * time.Microsecond) }
	o := New(Config{Keys: make([]string, keys), Limit: limit, Patience: time.Hour})
	visits := make([]*Hold, len(history))
	for _, s := range steps {
		clock.now = at(s.at)
		if !s.enter {
			o.Leave(visits[s.hold], clock.now)
			continue
		}
		h := history[s.hold]
		visits[s.hold] = enter(o, Hold{Lease: leaseUntil{clock, at(cmp.Or(h.deadline, 1<<40))}}, clock.now, h.key)
	}
	return overlapsOf(o)
}

// bruteForce finds the overlaps of a history by comparing every hold with every other.
func bruteForce(history []interval, limit int) overlaps {
	var sum overlaps
	for _, h := range history {
		var ends []int // of the holds that are inside when h begins
		for _, g := range history {
			if g.key == h.key && g.began < h.began && h.began < min(g.end(), h.end()) {
				ends = append(ends, min(g.end(), h.end()))
			}
		}
		if len(ends) >= limit {
			slices.Sort(ends)
			sum.count++
			sum.longest = max(sum.longest, time.Duration(ends[len(ends)-limit]-h.began)*time.Microsecond)
		}
	}
	return sum
}

// Order is judged only for locks that keep one, and fences only for one holder that has them.
func TestWhatTheOracleDoesNotJudgeIsUnknown(t *testing.T) {
	for _, c := range []struct {
		config           Config
		overtaken, fence bool
	}{{Config{}, true, true}, {Config{InOrder: true}, false, true}, {Config{InOrder: true, Claimed: true}, true, true}, {Config{Numbered: true}, true, false}, {Config{Numbered: true, Limit: 2}, true, true}} {
		v := New(c.config).Violations(time.Unix(0, 0))
		check.True(t, v.Overtaken.Unknown == c.overtaken && v.FenceOrder.Unknown == c.fence && !v.Overlap.Unknown, "%+v: %+v", c.config, v)
	}
}

// A few histories, for which both ways of counting are checked by hand; random ones follow.
func TestKnownOverlapsAreCountedExactly(t *testing.T) {
	us := time.Microsecond
	for _, c := range []struct {
		name    string
		limit   int
		history []interval
		want    overlaps
	}{
		{"50 µs", 1, []interval{{0, 0, 1000, 0}, {0, 950, 2000, 0}}, overlaps{1, 50 * us}},
		{"three at once", 1, []interval{{0, 0, 1000, 0}, {0, 100, 900, 0}, {0, 200, 800, 0}}, overlaps{2, 800 * us}},
		{"different keys", 1, []interval{{0, 0, 1000, 0}, {1, 500, 1500, 0}}, overlaps{}},
		{"granted 50 µs before the lease was over", 1, []interval{{0, 0, 5000, 1000}, {0, 950, 2000, 0}}, overlaps{1, 50 * us}},
		{"a reply after the end of its lease", 1, []interval{{0, 0, 5000, 0}, {0, 1000, 2000, 900}}, overlaps{}},
		{"a third of two", 2, []interval{{0, 0, 1000, 0}, {0, 100, 900, 0}, {0, 200, 800, 0}}, overlaps{1, 600 * us}},
		{"a third beside one whose lease is over", 2, []interval{{0, 0, 1000, 150}, {0, 100, 900, 0}, {0, 200, 800, 0}}, overlaps{}},
	} {
		check.Equal(t, replay(c.history, c.limit), c.want, "%s", c.name)
		check.Equal(t, bruteForce(c.history, c.limit), c.want, "%s: the test itself is wrong", c.name)
	}
}

func TestOverlapsOfRandomHistoriesAreCountedExactly(t *testing.T) {
	t.Parallel()
	for limit := 1; limit <= 4; limit++ {
		testRandomHistories(t, limit)
	}
}

func testRandomHistories(t *testing.T, limit int) {
	total := 0
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		history := make([]interval, 150)
		for i := range history {
			s := &history[i]
			s.key = random.IntN(3)
			s.began = random.IntN(100_000)
			// The holds range from one after another to all at the same time.
			s.left = s.began + 1 + random.IntN(20<<(seed%10))
			if random.IntN(4) == 0 {
				s.deadline = s.began + 1 + random.IntN(20<<(seed%10))
			}
		}
		history = unambiguous(history)
		got, want := replay(history, limit), bruteForce(history, limit)
		check.Equal(t, got, want, "limit %d, seed %d", limit, seed)
		total += int(want.count)
	}
	check.AtLeast(t, total, 500, "limit %d: overlaps in all histories: they prove nothing", limit)
}

// unambiguous drops holds that begin or end at the microsecond of another's
// step, because their order is not defined.
func unambiguous(history []interval) []interval {
	taken := map[int]bool{}
	return slices.DeleteFunc(history, func(s interval) bool {
		if taken[s.began] || taken[s.left] || s.deadline > 0 && taken[s.deadline] {
			return true
		}
		taken[s.began], taken[s.left], taken[s.deadline] = true, true, true
		return false
	})
}

// always is a lease without an end.
type always struct{}

func (always) Valid() bool         { return true }
func (always) Deadline() time.Time { return time.Unix(1<<40, 0) }
func (always) Latest() time.Time   { return time.Unix(1<<40, 0) }

func TestOracleIsExactAmongGoroutines(t *testing.T) {
	const clients, rounds = 16, 500
	o := New(Config{Keys: make([]string, 2), Patience: time.Hour})
	var guard sync.Mutex // a sound lock, for key 0
	var all sync.WaitGroup
	var inside sync.WaitGroup
	inside.Add(clients)
	leave := make(chan struct{})
	for range clients {
		all.Go(func() {
			for range rounds {
				guard.Lock()
				v := enter(o, Hold{Lease: always{}}, time.Now(), 0)
				o.Leave(v, time.Now())
				guard.Unlock()
			}
			// Key 1 admits every client at once.
			v := enter(o, Hold{Lease: always{}}, time.Now(), 1)
			inside.Done()
			<-leave
			o.Leave(v, time.Now())
		})
	}
	inside.Wait()
	check.Equal(t, overlapsOf(o).count, clients-1, "%d clients at once: counted", clients)
	close(leave)
	all.Wait()
	check.Equal(t, len(o.sections[0].inside)+len(o.sections[1].inside), 0, "visits remain")
}

func BenchmarkOracle(b *testing.B) {
	for _, c := range []struct {
		name          string
		limit, inside int
	}{{"alone", 1, 0}, {"a semaphore", 10, 9}, {"a lock so broken that a thousand are inside", 1, 1000}} {
		b.Run(c.name, func(b *testing.B) {
			o := New(Config{Keys: make([]string, 1), Limit: c.limit, Patience: time.Hour})
			for range c.inside {
				enter(o, Hold{Lease: always{}}, time.Now(), 0)
			}
			for b.Loop() {
				o.Leave(enter(o, Hold{Lease: always{}}, time.Now(), 0), time.Now())
			}
			v := o.Violations(time.Now())
			check.True(b, (v.Harm() > 0) == (c.inside >= c.limit), "%v", v)
		})
	}
}
