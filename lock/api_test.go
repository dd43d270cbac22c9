package lock_test

import (
	"context"
	"errors"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/lock"
)

type contextKey struct{}

func TestDoRunsWithTheLockAndReleasesIt(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(lock.Config{})
		m := c.Mutex("orders", lock.Options{TTL: time.Second})
		valued := context.WithValue(ctx, contextKey{}, "traced")
		broken := errors.New("broken")
		err := lock.Do(valued, m, func(ctx context.Context) error {
			check.True(r, ctx.Value(contextKey{}) == "traced" && ctx.Err() == nil && r.rdb.Exists(ctx, "orders").Val() == 1,
				"not within the lock, or without the caller's values")
			return broken
		})
		check.ErrorIs(r, err, broken)
		r.holds("orders", "")

		// The lease is lost: the function and the caller learn it.
		err = lock.Do(ctx, m, func(ctx context.Context) error {
			r.must(r.rdb.Set(ctx, "orders", "stranger", time.Minute).Err())
			<-ctx.Done()
			return context.Cause(ctx)
		})
		check.ErrorIs(r, err, lock.ErrLost)
		r.holds("orders", "stranger")
		r.must(r.rdb.Del(ctx, "orders").Err())

		// The caller's context ends: the lock is released anyway.
		err = lock.Do(r.soon(10*time.Second), m, func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		check.ErrorIs(r, err, context.DeadlineExceeded)
		r.holds("orders", "")

		func() {
			defer func() { _ = recover() }()
			_ = lock.Do(ctx, m, func(context.Context) error { panic("no more") })
		}()
		r.holds("orders", "")

		held := r.lock(m)
		short := r.soon(10 * time.Millisecond)
		err = lock.Do(short, c.Mutex("orders", lock.Options{}), func(context.Context) error {
			r.Error("run without the lock")
			return nil
		})
		check.True(r, errors.Is(err, context.DeadlineExceeded) && errors.Is(err, lock.ErrHeld),
			"got %v, want the deadline's error and ErrHeld", err)
		r.must(held.Unlock(ctx))
	})
}

// Scenario 65: a lease that is dropped ends. A leader checks only the context.
func TestALeaseIsKeptAliveForItsContexts(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(lock.Config{})
		lead := func(key string) *lock.Lease {
			return r.lock(c.Mutex(key, lock.Options{TTL: time.Second}))
		}
		plain := lead("plain").Context()
		derived, cancel := context.WithCancel(lead("derived").Context())
		defer cancel()
		merged := lead("merged").ContextFrom(context.WithValue(ctx, contextKey{}, 1))
		dropped := map[string]string{"dropped": lead("dropped").Token()}
		for name, use := range map[string]func(*lock.Lease) context.Context{
			"dropped with its context": (*lock.Lease).Context,
			"dropped with a context from another": func(lease *lock.Lease) context.Context {
				return lease.ContextFrom(ctx)
			},
			"dropped with a context from its own": func(lease *lock.Lease) context.Context {
				return lease.ContextFrom(lease.Context())
			},
			"dropped with a context that has ended": func(lease *lock.Lease) context.Context {
				ended, cancel := context.WithCancel(ctx)
				defer cancel()
				return lease.ContextFrom(ended)
			},
		} {
			lease := lead(name)
			use(lease)
			dropped[name] = lease.Token()
		}
		for range 10 {
			runtime.GC()
			time.Sleep(time.Second)
			synctest.Wait()
		}
		for name, ctx := range map[string]context.Context{"plain": plain, "derived": derived, "merged": merged} {
			check.True(r, ctx.Err() == nil, "%s has ended: %v", name, context.Cause(ctx))
		}
		for name, token := range dropped {
			check.True(r, r.rdb.Get(ctx, name).Val() != token, "%s: an unreachable lease is renewed", name)
		}
		runtime.KeepAlive(plain)
		runtime.KeepAlive(derived)
		runtime.KeepAlive(merged)
	})
}

func TestAContextFromAnotherEndsWithEither(t *testing.T) {
	inBubble(t, func(r *rig) {
		m := r.client(lock.Config{}).Mutex("orders", lock.Options{})
		lease := r.lock(m)
		parent, cancel := context.WithCancelCause(ctx)
		why := errors.New("enough")
		ofParent, ofLease := lease.ContextFrom(parent), lease.ContextFrom(ctx)
		cancel(why)
		check.True(r, context.Cause(ofParent) == why && ofLease.Err() == nil,
			"%v, %v; want the first one ended with its parent", context.Cause(ofParent), context.Cause(ofLease))
		r.must(lease.Unlock(ctx))
		<-ofLease.Done()
		check.ErrorIs(r, context.Cause(ofLease), lock.ErrClosed, "ended with")
	})
}

// A leader derives a context for each request.
func TestALeaseKeepsNoContextThatHasEnded(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(lock.Config{})
		for name, l := range map[string]lock.Locker{"mutex": c.Mutex("mutex", lock.Options{}), "reentrant": c.Reentrant("reentrant", lock.Options{})} {
			lease := r.locked(l)
			var values []weak.Pointer[[64]byte]
			for range 100 {
				value := new([64]byte)
				values = append(values, weak.Make(value))
				request, cancel := context.WithCancel(context.WithValue(ctx, contextKey{}, value))
				lease.ContextFrom(request)
				cancel()
			}
			synctest.Wait()
			runtime.GC()
			kept := 0
			for _, value := range values {
				if value.Value() != nil {
					kept++
				}
			}
			check.AtMost(r, kept, 1, "%s: of %d contexts are kept after their end", name, len(values)) // the compiler may keep the last one
			r.must(lease.Unlock(ctx))
		}
	})
}

func TestHolderDoesNotAcquire(t *testing.T) {
	inBubble(t, func(r *rig) {
		c, o := r.client(lock.Config{Owner: "us"}), lock.Options{TTL: time.Minute}
		rw := c.RW("rw", o)
		for key, of := range map[string]lock.Locker{
			"mutex": c.Mutex("mutex", o), "fair": c.Fair("fair", o), "reentrant": c.Reentrant("reentrant", o),
			"rw": rw.Writer(), "rw, reading": rw.Reader(),
		} {
			if held, err := of.Holder(ctx); held != nil || err != nil {
				r.Errorf("%s is free, and the holder is %v, %v", key, held, err)
			}
			lease := r.locked(of)
			held := check.Must(of.Holder(ctx))(r)
			if held == nil || held.Token != lease.Token() || held.Owner() != "us" || held.TTL < 59*time.Second || held.TTL > time.Minute {
				r.Errorf("%s: the holder is %+v", key, held)
			}
			r.must(lease.Unlock(ctx))
		}
	})
	nodesInBubble(t, 3, func(r *nodes) {
		l := r.quorum(lock.QuorumConfig{}).Redlock("orders", lock.Options{})
		held, err := l.Holder(ctx)
		check.True(r, held == nil && err == nil, "it is free, and the holder is %v, %v", held, err)
		lease := r.lock(l)
		time.Sleep(time.Millisecond)
		if held, err := l.Holder(ctx); err != nil || held == nil || held.Token != lease.Token() {
			r.Errorf("the holder is %v, %v", held, err)
		}
		r.down(0, 1)
		check.ErrorIs(r, tried(l.Holder(ctx)), lock.ErrNoQuorum)
		r.up()
	})
}

// docs/library.md has a table of the options that do not apply to all kinds.
func TestTheTableOfOptionsIsTrue(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{})
	defer rdb.Close()
	c := check.Must(lock.New(rdb, lock.Config{}))(t)
	q := check.Must(lock.NewQuorum([]*redis.Client{rdb}, lock.QuorumConfig{}))(t)
	defer c.Close()
	defer q.Close()
	rw := func(key string, o lock.Options) (lock.Locker, error) {
		reader, _, err := c.RW(key, o)
		return reader, err
	}
	all := func(key string, o lock.Options) (lock.Locker, error) { return c.All([]string{key}, o) }
	semaphore := func(key string, o lock.Options) (lock.Locker, error) { return c.Semaphore(key, 1, o) }
	table := "| option | Mutex | Reentrant | Fair | RW | All | Semaphore | Redlock |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n"
	set := map[string]lock.Options{
		"TTL":            {TTL: time.Minute},
		"Delay":          {Delay: time.Second},
		"Renew":          {Renew: lock.Renew{MaxHold: time.Hour}},
		"Wait":           {Wait: lock.Wait{Poll: time.Second}},
		"Fence":          {Fence: true},
		"Replicas":       {Replicas: 1},
		"ReplicaTimeout": {}, // goes with Replicas
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[lock.Options]()) {
		o, known := set[field.Name]
		check.True(t, known, "Options.%s is not tested", field.Name)
		row, everywhere := "| `"+field.Name+"` |", true
		for i, kind := range []func(string, lock.Options) (lock.Locker, error){c.Mutex, c.Reentrant, c.Fair, rw, all, semaphore, q.Redlock} {
			_, err := kind("orders", o)
			if err == nil {
				row += " yes |"
				continue
			}
			row, everywhere = row+" no |", false
			check.True(t, errors.Is(err, lock.ErrArgument) && strings.Contains(err.Error(), "Options."+field.Name+" does not apply"),
				"kind %d: got %v, want the name of the option %s", i, err, field.Name)
		}
		if !everywhere {
			table += row + "\n"
		}
	}
	page := check.Must(os.ReadFile("../docs/library.md"))(t)
	check.True(t, strings.Contains(string(page), "\n"+table+"\n"), "docs/library.md lacks this table:\n%s", table)
}

// A zero value, or a constructor without a client, says what is wrong and does not panic.
func TestZeroValuesSayWhatIsWrong(t *testing.T) {
	var c lock.Client
	var q lock.Quorum
	var s lock.Semaphore
	_, _, rwErr := c.As("other").RW("orders", lock.Options{})
	_, _, permitsErr := s.Permits(ctx)
	for what, err := range map[string]error{
		"New(nil)": tried(lock.New(nil, lock.Config{})), "New of a nil client": tried(lock.New((*redis.Client)(nil), lock.Config{})),
		"New of a nil cluster": tried(lock.New((*redis.ClusterClient)(nil), lock.Config{})),
		"New of a ring":        tried(lock.New(&redis.Ring{}, lock.Config{})),
		"NewQuorum of nil":     tried(lock.NewQuorum([]*redis.Client{nil}, lock.QuorumConfig{})),
		"Client.Mutex":         tried(c.Mutex("orders", lock.Options{})), "Client.Fair": tried(c.Fair("orders", lock.Options{})),
		"Client.Reentrant": tried(c.Reentrant("orders", lock.Options{})), "Client.RW": rwErr, "Client.Close": c.Close(),
		"Client.All": tried(c.All([]string{"orders"}, lock.Options{})), "Client.Semaphore": tried(c.Semaphore("orders", 1, lock.Options{})),
		"Quorum.Redlock": tried(q.As("other").Redlock("orders", lock.Options{})), "Quorum.Close": q.Close(),
		"Semaphore.TryLock": tried(s.TryLock(ctx)), "Semaphore.Lock": tried(s.Lock(ctx)), "Semaphore.Holder": tried(s.Holder(ctx)),
		"Semaphore.SetLimit": s.SetLimit(ctx, 0), "Semaphore.Permits": permitsErr,
	} {
		check.ErrorIs(t, err, lock.ErrArgument, "%s", what)
	}
	check.True(t, c.Stats().Leases == 0, "the zero client has leases")
}

func TestStatsAndEventsReportFailures(t *testing.T) {
	check.Equal(t, lock.EventKind(200).String(), "unknown")
	inBubble(t, func(r *rig) {
		var d eventRecorder
		c := r.client(lock.Config{Observe: d.write})
		m := c.Mutex("orders", lock.Options{TTL: time.Second})
		lease := r.lock(m)
		err := within(100*time.Millisecond, c.As("other").Mutex("orders", lock.Options{}).Lock)
		check.Require(r, err != nil, "two hold it")
		if s := c.Stats(); s.Leases != 1 || s.Waiting != 0 || s.Events[lock.Acquired] != 1 || s.Events[lock.Contended] != 1 || s.Events[lock.GaveUp] != 1 {
			r.Errorf("%+v", s)
		}
		r.link.FreezeReplies()
		time.Sleep(900 * time.Millisecond)
		brief := r.soon(10 * time.Millisecond)
		check.ErrorIs(r, tried(c.Mutex("others", lock.Options{}).TryLock(brief)), context.DeadlineExceeded)
		<-lease.Context().Done()
		r.link.Thaw()
		time.Sleep(time.Second)
		s := c.Stats()
		check.True(r, s.Events[lock.Failed] == 1 && s.Events[lock.NotRenewed] >= 2 && s.Events[lock.Expired] == 1 && s.Events[lock.Undone] == 1 && s.Leases == 0, "%+v", s)
		for kind, count := range s.Events {
			check.Equal(r, int64(d.count(kind)), count, "the count of events that say %v", kind)
		}
	})
}
