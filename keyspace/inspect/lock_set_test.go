package inspect

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/netfault"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/keyspace"
)

// found returns a lock that was read under its own key.
func found(l keyspace.Lock) candidate { return candidate{name: l.Key, lock: &l} }

// With 100,000 locks, a second copy would take 30 MB.
func TestALockSetSharesItsLocksWithSnapshots(t *testing.T) {
	set := make(lockSet)
	set.add([]candidate{found(keyspace.Lock{Key: "b"}), found(keyspace.Lock{Key: "a"})})
	locks := set.locks()
	check.Require(t, len(locks) == 2 && set["a"].lock == locks[0] && set["b"].lock == locks[1], "%v is not made of %v", set, locks)
	set.put(found(keyspace.Lock{Key: "a", Fence: 7}))
	d, _ := set.get("a")
	check.True(t, d.lock.Fence == 7 && locks[0].Fence == 0, "a snapshot has changed, or the set has not: %v, %v", d.lock, locks[0])
	d, ok := set.get("c")
	check.True(t, !ok && d.lock.Key == "", "there is no c: %v", d)
}

// A snapshot after some changes is the same as one that sorts all locks again.
func TestALockTableKeepsItsLocksInOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	table := newLockTable()
	for step := range 2000 {
		key := fmt.Sprintf("lock:%d", random.IntN(40))
		was, known := table.known.get(key)
		switch {
		case known && random.IntN(3) == 0:
			table.remove(key)
		case known && random.IntN(3) == 0:
			l := *was.lock
			l.Fence = int64(step)
			table.replace(key, l)
		default:
			now := found(keyspace.Lock{Key: key, Node: fmt.Sprintf("node-%d", random.IntN(2)), Fence: int64(step)})
			if random.IntN(3) == 0 { // a queue, whose key may look like a lock itself
				now.companions = []keyspace.Companion{{Key: fmt.Sprintf("lock:%d", random.IntN(40))}}
			}
			table.put(was, now, time.Time{})
		}
		if random.IntN(4) > 0 {
			continue
		}
		before := slices.Clone(table.sorted)
		shown := table.sorted
		got := table.inOrder()
		check.Require(t, slices.EqualFunc(before, shown, sameFence), "a snapshot has changed")
		var want []*keyspace.Lock
		for key, d := range table.known {
			if table.companions[key] == "" {
				want = append(want, d.lock)
			}
		}
		slices.SortFunc(want, func(a, b *keyspace.Lock) int { return a.ID().Compare(b.ID()) })
		check.Require(t, slices.EqualFunc(got, want, sameFence), "step %d: %v, want %v", step, got, want)
		for i := range got {
			check.Require(t, table.known[got[i].Key].lock == got[i], "step %d: a second copy of %q", step, got[i].Key)
		}
	}
}

func sameFence(a, b *keyspace.Lock) bool { return a.ID() == b.ID() && a.Fence == b.Fence }

// A queue returns each lock once, at its last time, whatever times it had before: also one of a
// deadline that is too far away to count in nanoseconds.
func TestADeadlineQueueReturnsLocksAtTheirLastTime(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	start := time.Unix(1_700_000_000, 0)
	table, want := newLockTable(), make(map[string]time.Time)
	table.put(none, found(keyspace.Lock{Key: "far"}), time.UnixMilli(math.MaxInt64/1000))
	for now := range 500 {
		key := fmt.Sprint(random.IntN(30))
		at := start.Add(time.Duration(now+random.IntN(40)) * time.Second)
		switch _, known := table.known[key]; {
		case !known:
			table.put(none, found(keyspace.Lock{Key: key}), at)
			want[key] = at
		case random.IntN(8) == 0:
			table.remove(key)
			delete(want, key)
		case random.IntN(8) == 0:
			table.readAgain(key, time.Time{})
			delete(want, key)
		default:
			table.readAgain(key, at)
			want[key] = at
		}
		var due []string
		for key, at := range want {
			if !at.After(start.Add(time.Duration(now) * time.Second)) {
				due = append(due, key)
				delete(want, key)
			}
		}
		got := table.deadlines.popDue(start.Add(time.Duration(now) * time.Second))
		slices.Sort(due)
		slices.Sort(got)
		check.Require(t, slices.Equal(got, due), "after %d s %q are due, want %q", now, got, due)
		first, _ := table.deadlines.first()
		for _, at := range want {
			check.Require(t, !at.Before(first), "the first lock is due at %v, but one is at %v", first, at)
		}
	}
}

// A step forward of the server's clock makes no renewal late.
func TestARenewalIsAsLongAgoAsBeforeAStepOfTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, now := Watcher{locks: newLockTable()}, time.Now()
		w.locks.known.put(candidate{lock: &keyspace.Lock{Key: "a", Observed: keyspace.Observed{Renewed: now}}})
		for _, read := range []time.Time{now.Add(time.Millisecond), now.Add(5 * time.Second), now.Add(4 * time.Second), {}} { // the third one is late
			w.followClock(read, time.Hour)
		}
		renewed := w.locks.known["a"].lock.Renewed.Sub(now)
		check.True(t, w.times.clockOffset == 5*time.Second && renewed == 4999*time.Millisecond, "%v ahead, renewed at %v", w.times.clockOffset, renewed)
	})
}

// farFrom sets 10,000 keys, 100 of them locks, on a server, and returns a
// client with the given round trip time.
func farFrom(t *testing.T, roundTrip time.Duration) *redis.Client {
	t.Helper()
	link := netfault.New(func(ctx context.Context, network, addr string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, addr)
	})
	rdb := redis.NewClient(&redis.Options{Addr: servertest.RedisForTest(t).Addr(), Dialer: link.Dial, PipelinePoolSize: -1})
	t.Cleanup(func() { rdb.Close() })
	check.Must(rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for i := range 10_000 {
			if i%100 == 0 {
				p.Set(t.Context(), fmt.Sprintf("lock:%d", i), "token:a", time.Hour)
			} else {
				p.Set(t.Context(), fmt.Sprintf("user:%d", i), "ann", 0)
			}
		}
		return nil
	}))(t)
	link.Delay(func() time.Duration { return roundTrip / 2 })
	return rdb
}

// A scan of a distant server reads one page while it requests the next, so each
// step covers several pages.
func TestAFarServerIsScannedInStepsOfSeveralPages(t *testing.T) {
	testtier.Long(t, "its network is slow")
	t.Parallel()
	steps := func(roundTrip time.Duration) (n int) {
		o := justTokens()
		o.Budget, o.Progress = NewBudget(DefaultShare), func(keyspace.Snapshot) { n++ }
		snap, err := NewScanner(farFrom(t, roundTrip), o).Scan(t.Context())
		check.Require(t, err == nil && len(snap.Locks) == 100 && snap.Complete, "%d locks, %v", len(snap.Locks), err)
		return n
	}
	check.AtMost(t, steps(50*time.Millisecond), 17, "steps, which would be 22 with one page per step,")
	check.AtLeast(t, steps(0), 8, "steps for a server that is near, where a step of several pages is beyond the budget")
}
