package lock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/lock"
)

// lossTimes describes how a holder lost its lock, with times of one clock.
type lossTimes struct {
	deadline time.Time // the last deadline of the holder
	ended    time.Time // the end of its context
	valid    time.Time // the last check that returned true
	invalid  time.Time // the first check that returned false
	asked    time.Time // another client asked for the lock …
	got      time.Time // … and acquired it
	untold   bool      // the context had not ended by then
}

// stalled reports whether the machine delayed the process: it could not check every
// millisecond.
func (l lossTimes) stalled() bool { return l.invalid.Sub(l.deadline) > 5*time.Millisecond }

// lateBy returns how long the context outlived the deadline.
func (l lossTimes) lateBy() time.Duration { return l.ended.Sub(l.deadline) }

// aheadBy returns how long no client had the lock.
func (l lossTimes) aheadBy() time.Duration { return l.asked.Sub(l.ended) }

// holderTTL is the TTL of the holders that lose their locks; its allowance for drift
// is 12 ms.
const holderTTL = time.Second

// faults are the ways in which holders lose their locks.
var faults = []struct {
	name   string
	befall func(*rig, *server.Child, *lock.Lease) error
}{
	{"cut off", func(r *rig, _ *server.Child, _ *lock.Lease) error {
		r.link.Freeze()
		return nil
	}},
	{"without a connection", func(r *rig, _ *server.Child, _ *lock.Lease) error {
		r.link.Refuse(errors.New("no route"))
		r.link.Cut()
		return nil
	}},
	{"with a server that is stopped", func(_ *rig, child *server.Child, lease *lock.Lease) error {
		if err := child.Freeze(); err != nil {
			return err
		}
		<-lease.Context().Done()
		time.Sleep(rand.N(holderTTL / 10))
		return child.Continue()
	}},
}

// lose makes a holder lose its lock by a fault at some moment. Another client then
// acquires the lock as soon as possible.
func lose(r *rig, child *server.Child, befall func(*rig, *server.Child, *lock.Lease) error) (l lossTimes, err error) {
	ours, theirs := r.open(r.via, lock.Config{Owner: "holder"}), r.open(r.rdb, lock.Config{Owner: "next"})
	r.Cleanup(func() { ours.Close(); theirs.Close() })
	lease, err := ours.Mutex("orders", lock.Options{TTL: holderTTL}).Lock(ctx)
	if err != nil {
		return l, err
	}
	var watchers sync.WaitGroup
	watchers.Go(func() {
		<-lease.Context().Done()
		l.ended = time.Now()
	})
	watchers.Go(func() { l.valid, l.invalid = askUntilInvalid(lease) })
	time.Sleep(rand.N(3 * holderTTL / 2))
	if err := befall(r, child, lease); err != nil {
		return l, err
	}
	var next *lock.Lease
	if next, l.asked, l.got, err = takeOver(r.rdb, theirs.Mutex("orders", lock.Options{TTL: time.Minute})); err != nil {
		return l, err
	}
	l.untold = lease.Context().Err() == nil
	if lease.Valid() {
		return l, errors.New("the lease is valid although another client has the lock")
	}
	watchers.Wait()
	l.deadline = lease.Deadline()
	if cause := context.Cause(lease.Context()); !errors.Is(cause, lock.ErrLost) {
		return l, fmt.Errorf("the context ended with %w, want ErrLost", cause)
	}
	r.link.Refuse(nil)
	r.link.Thaw()
	return l, next.Unlock(ctx)
}

// askUntilInvalid checks a lease every millisecond. It returns when the last check
// that returned true began, and when the first one that returned false ended.
func askUntilInvalid(lease *lock.Lease) (yes, no time.Time) {
	for {
		began := time.Now()
		if !lease.Valid() {
			return yes, time.Now()
		}
		yes = began
		time.Sleep(time.Millisecond)
	}
}

// takeOver acquires a lock as soon as its key is gone. It returns when the successful
// request was sent and answered.
func takeOver(rdb *redis.Client, l lock.Locker) (lease *lock.Lease, asked, got time.Time, err error) {
	const near = 8 * time.Millisecond
	for {
		if left := rdb.PTTL(ctx, "orders").Val(); left > near {
			time.Sleep(left - near)
			continue
		}
		asked = time.Now()
		if lease, err = l.TryLock(ctx); !errors.Is(err, lock.ErrHeld) {
			return lease, asked, time.Now(), err
		}
	}
}

// check returns an error if the holder noticed the loss too late or too early.
func (l lossTimes) check() error {
	switch {
	case l.valid.After(l.deadline):
		return fmt.Errorf("it was valid %v after its deadline", l.valid.Sub(l.deadline))
	case l.invalid.Before(l.deadline.Add(-time.Millisecond)): // the wall clock may run faster
		return fmt.Errorf("it was not valid %v before its deadline", l.deadline.Sub(l.invalid))
	case !l.deadline.Before(l.got):
		return fmt.Errorf("another client had the lock %v before its deadline", l.deadline.Sub(l.got))
	case proving() && l.lateBy() > 20*time.Millisecond && !l.stalled():
		return fmt.Errorf("its context ended %v after its deadline", l.lateBy())
	}
	return nil
}

// Scenarios 52, 59 and 60 on real servers, at random moments: if a holder is cut off,
// or its server stops, its context ends before another client has the lock, and its
// lease is valid until its deadline and no longer.
//
// Promise P2.
func TestALeaseEndsBeforeAnotherClientGetsTheLock(t *testing.T) {
	testtier.Long(t, "servers stand still for longer than leases")
	t.Parallel()
	const servers = 16
	rounds := 3 // per server
	spared := 1 // a busy machine may stop the process at the critical moment
	if proving() {
		rounds, spared = 60, 0
	}
	var mu sync.Mutex
	losses := make([][]lossTimes, len(faults))
	var all errgroup.Group
	for s := range servers {
		child := servertest.RedisForTest(t)
		all.Go(func() error {
			for i := range rounds {
				kind := (s + i) % len(faults)
				r := newRig(t, child.Addr(), redis.NewDialer(&redis.Options{}))
				l, err := lose(r, child, faults[kind].befall)
				if err := errors.Join(err, l.check()); err != nil {
					return fmt.Errorf("a holder %s: %w", faults[kind].name, err)
				}
				mu.Lock()
				losses[kind] = append(losses[kind], l)
				mu.Unlock()
			}
			return nil
		})
	}
	check.ErrorIs(t, all.Wait(), nil)
	for i, f := range faults {
		tell(t, f.name, losses[i])
		for _, l := range losses[i] {
			if l.untold && !l.stalled() {
				spared--
				t.Logf("a holder %s learned it %v after another client had its lock", f.name, l.ended.Sub(l.got))
			}
		}
	}
	check.AtLeast(t, spared, 0, "contexts ended too late")
}

// tell logs how much earlier the holders noticed the loss.
func tell(t *testing.T, name string, losses []lossTimes) {
	t.Helper()
	var late, ahead []time.Duration
	for _, l := range losses {
		if !l.stalled() {
			late, ahead = append(late, l.lateBy()), append(ahead, l.aheadBy())
		}
	}
	if len(late) < len(losses)/2 || len(late) == 0 {
		t.Logf("%s: in %d of %d losses the machine stood still", name, len(losses)-len(late), len(losses))
		return
	}
	slices.Sort(late)
	slices.Sort(ahead)
	t.Logf("%d holders %s, and %d while the machine stalled: their contexts ended %v to %v after their deadlines, half within %v; another client acquired the lock %v to %v later, half after %v",
		len(late), name, len(losses)-len(late), late[0], late[len(late)-1], late[len(late)/2], ahead[0], ahead[len(ahead)-1], ahead[len(ahead)/2])
}
