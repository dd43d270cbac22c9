package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"locktop/internal/check"
	"locktop/internal/testtier"
	"locktop/lock"
)

// elected is a call of Elect in progress.
type elected struct {
	terms chan context.Context // of each call of the function
	end   chan error           // what the function returns; it also returns at the end of its context
	err   error                // of Elect; valid after done
	done  chan struct{}
}

// elect calls Elect in a goroutine.
func elect(ctx context.Context, l lock.Locker) *elected {
	e := &elected{terms: make(chan context.Context, 100), end: make(chan error), done: make(chan struct{})}
	go func() {
		defer close(e.done)
		e.err = lock.Elect(ctx, l, func(ctx context.Context) error {
			e.terms <- ctx
			select {
			case err := <-e.end:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	return e
}

func TestALeaderThatResignsIsSucceededAtOnce(t *testing.T) {
	onBoth(t, func(r *rig) {
		a, _ := r.process("a")
		b, _ := r.process("b")
		first := elect(ctx, a.Mutex("orders", lock.Options{Fence: true}))
		term := <-first.terms
		second := elect(ctx, b.Mutex("orders", lock.Options{Fence: true}))
		r.registered(1)
		check.True(t, lock.LeaseFrom(term).Valid() && len(second.terms) == 0, "want one leader, with a valid lease")
		failed := errors.New("enough")
		first.end <- failed
		<-first.done
		check.ErrorIs(t, first.err, failed)
		<-term.Done()
		check.ErrorIs(t, context.Cause(term), lock.ErrClosed, "the term ended with")
		next := <-second.terms
		was, is := fenceOf(lock.LeaseFrom(term)), fenceOf(lock.LeaseFrom(next))
		check.True(t, is > was, "fence %d after %d", is, was)
		second.end <- nil
		<-second.done
		r.must(second.err)
		r.holds("orders", "")
	})
}

// A leader that the server cannot reach any more loses its term by its own clock, before
// the next one leads. That is at most 1 s after the TTL.
func TestALeaderThatIsCutOffIsSucceededAfterItsTTL(t *testing.T) {
	inBubble(t, func(r *rig) {
		a, link := r.process("a")
		b, _ := r.process("b")
		o := lock.Options{TTL: 10 * time.Second}
		first := elect(ctx, a.Mutex("orders", o))
		term := <-first.terms
		second := elect(ctx, b.Mutex("orders", o))
		r.registered(1)
		time.Sleep(time.Minute) // renewed all the time
		link.Freeze()
		time.Sleep(o.TTL / 2) // a renewal that was on its way has arrived
		freeAt := time.Now().Add(r.rdb.PTTL(ctx, "orders").Val())
		<-term.Done()
		if cause := context.Cause(term); !errors.Is(cause, lock.ErrLost) || len(second.terms) > 0 {
			t.Errorf("the term ended with %v, and %d others lead", cause, len(second.terms))
		}
		next := <-second.terms
		check.AtMost(t, time.Since(freeAt), time.Second, "the next leader leads after the TTL")
		link.Thaw()
		synctest.Wait()
		check.AtMost(t, len(first.terms), 0, "two lead")
		second.end <- nil
		<-second.done
		r.must(errors.Join(second.err, (<-first.terms).Err())) // campaigns again
		check.True(t, next.Err() != nil, "the term goes on after the resignation")
		first.end <- nil
		<-first.done
		r.must(first.err)
	})
}

func TestElectEndsWithItsContextTheClientAndAFailure(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(lock.Config{})
		o := lock.Options{TTL: time.Second}
		short, cancel := context.WithCancel(ctx)
		e := elect(short, c.Mutex("orders", o))
		<-e.terms
		waiting := elect(short, c.As("other").Mutex("orders", o))
		synctest.Wait()
		cancel()
		<-e.done
		<-waiting.done
		for doing, err := range map[string]error{"lead": e.err, "wait for": waiting.err} {
			check.True(t, errors.Is(err, context.Canceled) && strings.HasPrefix(err.Error(), "lock: "+doing+` "orders": `),
				"got %v, want context.Canceled and the name of the lock", err)
		}
		synctest.Wait() // for the undo of an attempt that was in flight
		r.holds("orders", "")

		failed := errors.New("disk full")
		err := lock.Elect(ctx, c.Mutex("orders", o), func(ctx context.Context) error {
			r.rdb.Del(ctx, "orders")
			<-ctx.Done()
			return fmt.Errorf("flush: %w", failed)
		})
		check.ErrorIs(t, err, failed, "after the loss of the lease")

		func() {
			defer func() {
				check.True(t, recover() != nil, "no panic")
			}()
			_ = lock.Elect(ctx, c.Mutex("orders", o), func(context.Context) error { panic("bug") })
		}()
		r.holds("orders", "")

		other := c.As("closed")
		e = elect(ctx, other.Mutex("orders", o))
		<-e.terms
		r.must(other.Close())
		<-e.done
		check.ErrorIs(t, e.err, lock.ErrClosed)
	})
}

// An outage ends a term, and not Elect. Before the first reply it is an error at once.
func TestElectOutlivesAnOutage(t *testing.T) {
	inBubble(t, func(r *rig) {
		c, link := r.process("a")
		refused := errors.New("connection refused")
		link.Refuse(refused)
		link.Cut()
		check.True(t, lock.Elect(ctx, c.Mutex("orders", lock.Options{}), func(context.Context) error { return nil }) != nil,
			"want an error if the server cannot be reached at the beginning")
		link.Refuse(nil)
		e := elect(ctx, c.Mutex("orders", lock.Options{TTL: time.Second}))
		term := <-e.terms
		link.Refuse(refused)
		link.Cut()
		<-term.Done()
		time.Sleep(time.Minute)
		link.Refuse(nil)
		began := time.Now()
		<-e.terms
		check.AtMost(t, time.Since(began), 2*time.Second, "it leads again after the outage")
		e.end <- nil
		<-e.done
		r.must(e.err)
	})
}

// With MaxHold the callers lead in the order in which they began to wait. The end of a hold is no
// undone attempt, and may hand the lock over.
func TestLeadersTakeTurns(t *testing.T) {
	o := lock.Options{TTL: time.Minute, Renew: lock.Renew{MaxHold: 200 * time.Millisecond}}
	for _, kind := range []string{"mutex", "reentrant", "fair", "writer", "semaphore", "all"} {
		sub(t, kind, inBubble, func(r *rig) {
			end, stop := context.WithCancel(ctx)
			order := make(chan int, 1000)
			var clients []*client
			for i := range 3 {
				c, link := r.process(fmt.Sprint(i))
				clients = append(clients, c)
				link.Delay(func() time.Duration { return time.Duration(i+1) * time.Millisecond })
				go func() {
					_ = lock.Elect(end, kinds[kind](c, "orders", o), func(ctx context.Context) error {
						order <- i
						<-ctx.Done()
						return ctx.Err()
					})
				}()
			}
			seconds := testtier.Size(2, 6, 6)
			time.Sleep(time.Duration(seconds) * time.Second)
			for _, c := range clients {
				s := c.Stats().Events
				check.True(r, s[lock.Undone] == 0 && (s[lock.HandedOver] > 0 || kind == "writer" || kind == "all"), "%+v", s)
			}
			stop()
			synctest.Wait()
			close(order)
			var leaders []int
			for i := range order {
				leaders = append(leaders, i)
			}
			for i := 3; i < len(leaders); i++ {
				check.Require(r, leaders[i] == leaders[i-3] && leaders[i] != leaders[i-1], "they do not take turns: %v", leaders)
			}
			check.AtLeast(r, len(leaders), 4*seconds, "leaders in %d s", seconds)
		})
	}
}

// A release does not hand the lock to these; the caller leads all the same.
func TestElectWorksWithEveryKind(t *testing.T) {
	nodesInBubble(t, 1, func(r *nodes) {
		var clients [2]*client
		var quorums [2]*quorum
		for i := range clients {
			clients[i], quorums[i] = r.over(r.via[0], lock.Config{}), r.quorum(lock.QuorumConfig{})
		}
		for kind, of := range map[string]func(i int, o lock.Options) lock.Locker{
			"reader":  func(i int, o lock.Options) lock.Locker { return clients[i].RW("orders", o).Reader() },
			"redlock": func(i int, o lock.Options) lock.Locker { return quorums[i].Redlock("orders", o) },
			"several slots": func(i int, o lock.Options) lock.Locker {
				return lock.Scatter(clients[i].All([]string{"orders", "bills"}, o))
			},
			"polls": func(i int, o lock.Options) lock.Locker {
				o.Wait.Poll = 100 * time.Millisecond
				return clients[i].Mutex("orders", o)
			},
		} {
			other := lock.Locker(clients[0].RW("orders", lock.Options{}).Writer())
			if kind != "reader" {
				other = of(0, lock.Options{})
			}
			lease := r.lock(other)
			e := elect(ctx, of(1, lock.Options{}))
			time.Sleep(10 * time.Second)
			check.AtMost(r, len(e.terms), 0, "%s: it leads too early", kind)
			r.must(lease.Unlock(ctx))
			<-e.terms
			e.end <- nil
			<-e.done
			r.must(e.err)
		}
	})
}

// A function that unlocks the lease ends Elect, unless the lease was lost before.
func TestALeaderMayResignByUnlock(t *testing.T) {
	onBoth(t, func(r *rig) {
		failed := errors.New("disk full")
		resign := func(ctx context.Context) {
			r.must(lock.LeaseFrom(ctx).Unlock(context.WithoutCancel(ctx)))
			<-ctx.Done()
		}
		for name, of := range map[string]struct {
			f    func(ctx context.Context) error
			want error
		}{
			"nil":             {func(ctx context.Context) error { resign(ctx); return nil }, nil},
			"that of Unlock":  {func(ctx context.Context) error { return lock.LeaseFrom(ctx).Unlock(ctx) }, nil},
			"of its context":  {func(ctx context.Context) error { resign(ctx); return ctx.Err() }, nil},
			"the cause of it": {func(ctx context.Context) error { resign(ctx); return context.Cause(ctx) }, nil},
			"another one":     {func(ctx context.Context) error { resign(ctx); return failed }, failed},
		} {
			c := r.client(lock.Config{})
			for kind, l := range map[string]lock.Locker{"mutex": c.Mutex("mutex", lock.Options{}), "reentrant": c.Reentrant("reentrant", lock.Options{})} {
				terms := 0
				err := lock.Elect(ctx, l, func(ctx context.Context) error {
					if terms++; terms > 1 {
						return errors.New("elected again")
					}
					return of.f(ctx)
				})
				check.Equal(r, err, of.want, "%s, error %s", kind, name)
			}
		}
		terms := 0
		r.must(lock.Elect(ctx, r.client(lock.Config{}).Mutex("lost", lock.Options{TTL: 100 * time.Millisecond, Renew: lock.Renew{Off: true}}), func(ctx context.Context) error {
			if terms++; terms == 1 {
				<-ctx.Done()
				_ = lock.LeaseFrom(ctx).Unlock(ctx)
			}
			return nil
		}))
		check.True(r, terms >= 2, "%d terms; on a busy machine the second lease may be lost, too", terms)
	})
}
