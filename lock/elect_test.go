package lock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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
		if !lock.LeaseFrom(term).Valid() || len(second.terms) > 0 {
			t.Error("want one leader, with a valid lease")
		}
		failed := errors.New("enough")
		first.end <- failed
		<-first.done
		if !errors.Is(first.err, failed) {
			t.Errorf("got %v, want the error of the function", first.err)
		}
		if cause := context.Cause(term); !errors.Is(cause, lock.ErrReleased) {
			t.Errorf("the term ended with %v", cause)
		}
		next := <-second.terms
		if was, is := lock.LeaseFrom(term).Fence(), lock.LeaseFrom(next).Fence(); is <= was {
			t.Errorf("fence %d after %d", is, was)
		}
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
		if late := time.Since(freeAt); late > time.Second {
			t.Errorf("the next leader leads %v after the TTL", late)
		}
		link.Thaw()
		synctest.Wait()
		if len(first.terms) > 0 {
			t.Error("two lead")
		}
		second.end <- nil
		<-second.done
		r.must(errors.Join(second.err, (<-first.terms).Err())) // campaigns again
		if next.Err() == nil {
			t.Error("the term goes on after the resignation")
		}
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
		if !errors.Is(e.err, context.Canceled) || !errors.Is(waiting.err, context.Canceled) {
			t.Errorf("got %v and %v, want context.Canceled", e.err, waiting.err)
		}
		r.holds("orders", "")

		failed := errors.New("disk full")
		err := lock.Elect(ctx, c.Mutex("orders", o), func(ctx context.Context) error {
			r.rdb.Del(ctx, "orders")
			<-ctx.Done()
			return fmt.Errorf("flush: %w", failed)
		})
		if !errors.Is(err, failed) {
			t.Errorf("after the loss of the lease got %v, want the error of the function", err)
		}

		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			_ = lock.Elect(ctx, c.Mutex("orders", o), func(context.Context) error { panic("bug") })
		}()
		r.holds("orders", "")

		other := c.As("closed")
		e = elect(ctx, other.Mutex("orders", o))
		<-e.terms
		r.must(other.Close())
		<-e.done
		if !errors.Is(e.err, lock.ErrClosed) {
			t.Errorf("got %v, want ErrClosed", e.err)
		}
	})
}

// An outage ends a term, and not Elect. Before the first reply it is an error at once.
func TestElectOutlivesAnOutage(t *testing.T) {
	inBubble(t, func(r *rig) {
		c, link := r.process("a")
		refused := errors.New("connection refused")
		link.Refuse(refused)
		link.Cut()
		if err := lock.Elect(ctx, c.Mutex("orders", lock.Options{}), func(context.Context) error { return nil }); err == nil {
			t.Error("want an error if the server cannot be reached at the beginning")
		}
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
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("it leads again %v after the outage", took)
		}
		e.end <- nil
		<-e.done
		r.must(e.err)
	})
}

// With a longest hold, no caller leads twice while others wait, whatever the kind.
func TestCallersWithALongestHoldTakeTurns(t *testing.T) {
	inBubble(t, func(r *rig) {
		o := lock.Options{TTL: time.Second, Renew: lock.Renew{MaxHold: 200 * time.Millisecond}}
		for kind, of := range map[string]func(c *lock.Client) lock.Locker{
			"mutex": func(c *lock.Client) lock.Locker { return c.Mutex("mutex", o) },
			"fair":  func(c *lock.Client) lock.Locker { return c.Fair("fair", o) },
		} {
			short, cancel := context.WithTimeout(ctx, 20*time.Second)
			var order serviceOrder
			var all sync.WaitGroup
			for _, name := range []string{"a", "b", "c"} {
				c, link := r.process(name)
				link.Delay(func() time.Duration { return time.Millisecond })
				all.Go(func() {
					_ = lock.Elect(short, of(c), func(ctx context.Context) error {
						order.add(name)
						<-ctx.Done()
						return ctx.Err()
					})
				})
			}
			all.Wait()
			cancel()
			terms := map[string]int{}
			for i, name := range order.names {
				terms[name]++
				if i > 0 && name == order.names[i-1] {
					r.Errorf("%s: %s leads twice: %q", kind, name, order.names)
					break
				}
			}
			if len(terms) < 3 || len(order.names) < 30 {
				r.Errorf("%s: the terms are %v", kind, terms)
			}
		}
	})
}

// A function that unlocks its lease resigns.
func TestALeaderThatUnlocksItsLeaseResigns(t *testing.T) {
	inBubble(t, func(r *rig) {
		m := r.client(lock.Config{}).Mutex("orders", lock.Options{})
		failed := errors.New("disk full")
		for _, returns := range []error{nil, context.Canceled, failed} {
			terms := 0
			err := lock.Elect(ctx, m, func(term context.Context) error {
				terms++
				r.must(lock.LeaseFrom(term).Unlock(ctx))
				return returns
			})
			if terms != 1 || errors.Is(err, failed) != (returns == failed) || returns != failed && err != nil {
				r.Errorf("the function ran %d times and returned %v: got %v", terms, returns, err)
			}
		}
		r.holds("orders", "")
	})
}
