package inspect

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/keyspace"
)

// log records the events of a watcher with their times.
type log struct {
	mu      sync.Mutex
	events  []reportedEvent
	notices []keyspace.Notice
	follow  keyspace.WatchStatus
	scanned bool // all keys: a new lock was acquired now
	failed  bool // a snapshot, because the server does not answer
}

type reportedEvent struct {
	keyspace.Event
	heard time.Time
}

// started runs a watcher with pushes until the test ends. It returns when the
// first pass has ended and the server sends invalidations.
func started(t testing.TB, rdb *redis.Client, o ScanOptions) *log {
	t.Helper()
	l := &log{}
	do(t, rdb, "SET", "lock:standing", "token:standing") // its prefix is what the server is asked to track
	live := inBackground(t, rdb, o)
	untilTheEnd(t, func(ctx context.Context) {
		s, err := live.Snapshot(ctx)
		if err == nil {
			l.take(s)
		} else {
			l.mu.Lock()
			l.failed = true
			l.mu.Unlock()
		}
		time.Sleep(time.Millisecond)
	})
	l.wait(t, "push", func() bool { return l.follow.Mode == keyspace.Push && l.scanned })
	return l
}

// listened runs a watcher as the command watch does, with a callback. It
// returns when the server sends invalidations.
func listened(t testing.TB, rdb *redis.Client, o ScanOptions) *log {
	t.Helper()
	l := &log{}
	do(t, rdb, "SET", "lock:standing", "token:standing")
	f := watch(t, rdb, o)
	for deadline, complete := time.Now().Add(30*time.Second), false; l.follow.Mode != keyspace.Push || !complete; {
		_, _, err := f.Next(t.Context())
		check.NoError(t, err)
		s, err := f.Snapshot(t.Context())
		check.Require(t, err == nil && !time.Now().After(deadline), "no push: %v, %+v", err, l.follow)
		l.follow, complete = s.Watch, s.Complete
	}
	untilTheEnd(t, func(ctx context.Context) {
		events, notices, _ := f.Next(ctx)
		l.take(keyspace.Snapshot{Events: events, Notices: notices, Watch: l.follow})
	})
	return l
}

// untilTheEnd calls f again and again until the test ends.
func untilTheEnd(t testing.TB, f func(ctx context.Context)) {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			f(ctx)
		}
	}()
	t.Cleanup(func() { stop(); <-done })
}

func (l *log) take(s keyspace.Snapshot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for _, e := range s.Events {
		if e.Lock.Key == "lock:standing" {
			continue
		}
		l.events = append(l.events, reportedEvent{e, now})
	}
	l.notices = append(l.notices, s.Notices...)
	l.follow, l.scanned = s.Watch, s.Complete
}

// wait waits until a condition holds, for at most 30 s.
func (l *log) wait(t testing.TB, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; {
		l.mu.Lock()
		ok := so()
		l.mu.Unlock()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			l.mu.Lock()
			defer l.mu.Unlock()
			t.Fatalf("waited for %s; %d events, followed %+v", what, len(l.events), l.follow)
		}
		time.Sleep(time.Millisecond)
	}
}

// all returns the events reported so far.
func (l *log) all() []reportedEvent {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.events)
}

// has returns a condition: an event was reported.
func (l *log) has(kind keyspace.EventKind, key string) func() bool {
	return func() bool {
		return slices.ContainsFunc(l.events, func(e reportedEvent) bool { return e.Kind == kind && e.Lock.Key == key })
	}
}

// step is one change made by the load.
type step struct{ kind, holder string }

// reported returns whether a change was reported.
func (l *log) reported(c step) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.events, func(e reportedEvent) bool { return c == step{string(e.Kind), e.Holder.ID} })
}

// dies is how long the lock of a dead holder lasts.
const dies = time.Second

// worker acquires, renews and releases a lock of its own in some rounds, and records each change with its
// time. A state that is shorter than a read cannot be reported, so it waits until its last change was.
func worker(ctx context.Context, rdb *redis.Client, l *log, n, rounds int, done map[step]time.Time) error {
	key := fmt.Sprintf("lock:%d", n)
	do := func(kind, holder string, late time.Duration, argv ...any) error {
		at, err := timed(context.WithoutCancel(ctx), rdb, argv...)
		if err != nil {
			return err
		}
		c := step{kind, holder}
		done[c] = at.Add(late)
		for again := true; again; again = !l.reported(c) {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(2 * time.Millisecond):
			}
		}
		return nil
	}
	for round := range rounds {
		holder := fmt.Sprintf("token:%d.%d", n, round)
		if err := do("acquired", holder, 0, "SET", key, holder, "NX", "PX", 60_000); err != nil {
			return err
		}
		if err := do("renewed", holder, 0, "PEXPIRE", key, 90_000); err != nil {
			return err
		}
		var err error
		if (n+round)%4 == 3 { // the holder dies, and the lock expires
			err = do("expired", holder, dies, "PEXPIRE", key, dies.Milliseconds())
		} else {
			err = do("released", holder, 0, "DEL", key)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// timed sends a command and returns when the server executed it, by the server's clock.
func timed(ctx context.Context, rdb *redis.Client, argv ...any) (time.Time, error) {
	const script = "redis.call(unpack(ARGV)) local t = redis.call('TIME') return t[1] * 1000000 + t[2]"
	us, err := rdb.Eval(ctx, script, nil, argv...).Int64()
	return time.UnixMicro(us), err
}

// With the server's default configuration, no event is lost, reported twice,
// late, or reported with the wrong reason.
func TestEveryChangeIsReportedOnceAndAtOnce(t *testing.T) {
	t.Parallel()
	child := servertest.RedisForTest(t)
	rdb := connect(t, redis.Options{Addr: child.Addr(), PoolSize: 64})
	l := listened(t, connect(t, redis.Options{Addr: child.Addr()}), justTokens())

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	changesOf := make([]map[step]time.Time, testtier.Size(20, 100, 100))
	var wg sync.WaitGroup
	for n := range changesOf {
		changesOf[n] = make(map[step]time.Time)
		wg.Go(func() {
			err := worker(ctx, rdb, l, n, testtier.Size(2, 4, 4), changesOf[n])
			check.True(t, err == nil || ctx.Err() != nil, "%v", err)
		})
	}
	wg.Wait()
	all := make(map[step]time.Time)
	for _, d := range changesOf {
		for k, at := range d {
			all[k] = at
		}
	}
	last := step{"acquired", "token:last"} // unexpected events come before it
	at := check.Must(timed(t.Context(), rdb, "SET", "lock:last", last.holder, "PX", 60_000))(t)
	all[last] = at
	l.wait(t, "the last change", l.has(keyspace.Acquired, "lock:last"))
	compareChanges(t, l, all)
}

func compareChanges(t *testing.T, l *log, all map[step]time.Time) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var late []time.Duration
	for _, e := range l.events {
		d := step{string(e.Kind), e.Holder.ID}
		at, done := all[d]
		if !done {
			t.Errorf("reported and not done, or reported twice: %v", d)
			continue
		}
		delete(all, d)
		late = append(late, e.heard.Sub(at))
	}
	for d := range all {
		t.Errorf("done and not reported: %v %v", d, all[d])
	}
	slices.Sort(late)
	t.Logf("%d events, late by p50 %v, p99 %v, at most %v", len(late), late[len(late)/2], late[len(late)*99/100], late[len(late)-1])
}

// Names that begin with a random part have the rest in common. When this pattern is learnt, their
// holds are reported like all others, however short they are.
func TestHoldsUnderNamesOfOnePatternAreSeen(t *testing.T) {
	testtier.Long(t, "it watches a server for seconds")
	t.Parallel()
	rdb := realServer(t)
	for i := range 1000 {
		do(t, rdb, "SET", fmt.Sprintf("cache:%d", i), "x")
	}
	l := listened(t, rdb, justTokens())
	name := func(i int) string { return fmt.Sprintf("%x:lock", 0xabcdef*(i%1000+1)) }
	hold := func(i int, lasts time.Duration) string {
		token := fmt.Sprintf("token:%d", i)
		do(t, rdb, "SET", name(i), token, "PX", lasts.Milliseconds())
		return token
	}
	for i := range 20 {
		hold(i, time.Hour)
	}
	for i, inARow := 2000, 0; inARow < 5; i++ { // until the pattern is learnt
		check.Require(t, i != 2100, "it does not learn the shape")
		token := hold(i, 300*time.Millisecond)
		time.Sleep(300 * time.Millisecond)
		inARow++
		if !l.acquired(token) {
			inARow = 0
		}
	}
	const holds = 100
	seen := 0
	for round := 0; round < 10 && seen < holds*95/100; round++ { // a busy machine delays the reads of a round
		var tokens []string
		for i := range holds {
			tokens = append(tokens, hold(5000+7*(round*holds+i), 300*time.Millisecond))
			time.Sleep(30 * time.Millisecond)
		}
		time.Sleep(300 * time.Millisecond)
		seen = 0
		for _, token := range tokens {
			if l.acquired(token) {
				seen++
			}
		}
		t.Logf("%d of %d were seen", seen, holds)
	}
	check.AtLeast(t, seen, holds*95/100, "holds that were seen in the last round")
}

// acquired reports whether a hold with this token was reported.
func (l *log) acquired(token string) bool {
	return slices.ContainsFunc(l.all(), func(e reportedEvent) bool { return e.Kind == keyspace.Acquired && e.Holder.ID == token })
}

// A watcher that a lost connection wakes finds it closed, and replaces it at once: without that, short holds are missed.
func TestALostConnectionWakesItsWatcherWhenItIsKnown(t *testing.T) {
	rdb := realServer(t)
	for range 20 {
		wake := make(chan struct{}, 1)
		c := dialInvalidations(rdb.Options(), []string{"lock:"}, nil, wake)
		<-c.ready
		<-wake
		check.NoError(t, rdb.ClientKillByFilter(t.Context(), "SKIPME", "yes").Err())
		<-wake
		_, closed := c.closedWith()
		check.Require(t, closed, "the connection wakes the watcher before it is known as closed")
	}
}

// A scan over a slow network reads what is reported meanwhile, between its stages.
func TestAScanOverASlowNetworkReadsTheReports(t *testing.T) {
	rdb := realServer(t)
	do(t, rdb, "SET", "lock:standing", "token:standing")
	do(t, rdb, "HSET", "huge", "field", strings.Repeat("x", maxElementBytes))
	do(t, rdb, "HSET", "small", "field", "x")
	hashes := keyspace.Format{About: keyspace.About{Name: "hashes"}, Type: "hash", Decode: func(keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
		return keyspace.Lock{}, keyspace.No
	}}
	w := pushing(t, rdb, ScanOptions{Formats: []keyspace.Format{tokens(), hashes}})
	p := check.Must(w.scanner.startPass(t.Context(), w.possible))(t)
	known, pauses := lockSet{}, 0
	p.budget = NewBudget(0.99) // a worker at a time
	p.filter.known, p.pause = known, func(context.Context) error {
		pauses++
		known["lock:standing"] = w.locks.known["lock:standing"]
		return nil
	}
	found := check.Must(p.step(t.Context()))(t)
	check.AtLeast(t, pauses, 2, "pauses of a step, before the types and before the values,")
	check.True(t, len(known) == 1 && len(found) == 0, "what became known between two stages is read again: %+v", found)
	for network, reads := range map[time.Duration]bool{0: false, 50 * time.Millisecond: true} {
		key := fmt.Sprint("lock:", network)
		w.scan.pass, w.scan.next = nil, time.Time{}
		check.NoError(t, w.scanSome(t.Context(), time.Now()))
		check.Require(t, w.scan.pass.pause != nil, "a scan is never interrupted")
		do(t, rdb, "SET", key, "token:new")
		for c, reported := w.tracking.conn, false; !reported; time.Sleep(time.Millisecond) {
			c.mu.Lock()
			reported = c.changes.reports(key) > 0 && len(w.tracking.wake) > 0
			c.mu.Unlock()
		}
		w.scan.pass.networkTime = network
		check.NoError(t, w.scan.pass.pause(t.Context()))
		clear(w.locks.ignored)
		for _, key := range []string{"huge", "small", "gone"} {
			w.tracking.pending.add(key, change{since: time.Now()})
		}
		got := make(map[string]candidate)
		for range 2 {
			check.NoError(t, w.reader.conn.pipelined(t.Context(), "another request", func(redis.Pipeliner) {}))
		}
		for key, c := range w.ahead.of {
			got[key] = *c.ahead
		}
		check.False(t, got["huge"].light || got["huge"].entry != nil, "with a network time of %v, a key that is too large is read ahead", network)
		check.Equal(t, got["small"].light && got["small"].entry != nil, reads, "with a network time of %v, a small key is read ahead", network)
		check.Equal(t, got["gone"].absent, reads, "with a network time of %v, a key that is gone is known to be", network)
		check.Equal(t, w.locks.known[key] != nil, reads, "with a network time of %v, a lock that is reported is read during a scan", network)
		check.NoError(t, w.cycle(t.Context(), false))
	}
}
