package loadgen

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/lock"
	"locktop/lock/classic"
)

// clientIdentity identifies a client to its locks. The historic forms also use its
// clock, and call between before a command after which the client may be affected by a
// fault.
type clientIdentity struct {
	owner   string
	ahead   func() time.Duration // how far the clock is ahead of true time
	between func(ctx context.Context, next string) error
}

// flawedSession is a session of a form of package classic. These forms do not wait, so
// the session polls.
type flawedSession struct {
	rdb      redis.UniversalClient
	form     classic.Form
	scenario Scenario
	who      clientIdentity
	owns     bool // the base session, which closes the connection
}

func openClassic(o sessionConfig) (session, error) {
	o.wire.pool = 1 // clients that share the connection take turns
	rdb, err := o.wire.over(o.servers.Redis)
	if err != nil {
		return nil, err
	}
	return flawedSession{rdb: rdb, form: o.scenario.Lock.Kind.form(), scenario: o.scenario, owns: true}, nil
}

func (h flawedSession) as(who clientIdentity) session {
	h.who, h.owns = who, false
	return h
}

// close does not release held leases: the historic forms have no such function.
func (h flawedSession) close() error {
	if h.owns {
		return h.rdb.Close()
	}
	return nil
}

func (h flawedSession) lock(ctx context.Context, key string, shared bool) (lease, error) {
	g := &flawedLease{ahead: h.ahead(), ctx: context.WithoutCancel(ctx)}
	view := h.view(key, shared, g)
	hold, err := h.wait(ctx, view)
	if err != nil {
		return nil, err
	}
	g.holds = append(g.holds, hold)
	for range h.scenario.Depth - 1 {
		inner, err := view.TryLock(ctx)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("enter again: %w", err), g.Unlock(ctx))
		}
		g.holds = append(g.holds, inner)
	}
	return g, nil
}

func (h flawedSession) ahead() time.Duration {
	if h.who.ahead == nil {
		return 0
	}
	return h.who.ahead()
}

// view returns the lock for one acquire.
func (h flawedSession) view(key string, shared bool, g *flawedLease) classic.Lock {
	o := classic.Options{TTL: h.scenario.Lock.TTL, Renewals: h.renewals()}
	o.Hooks.Now = func() time.Time { return time.Now().Add(g.ahead) }
	if h.who.between != nil {
		o.Hooks.Between = func(ctx context.Context, next classic.Step) error {
			err := h.who.between(ctx, string(next))
			g.resumed.Store(time.Now().UnixNano())
			return err
		}
	}
	if shared && h.form.NewReader != nil {
		return h.form.NewReader(h.rdb, key, o)
	}
	return h.form.New(h.rdb, key, o)
}

func (h flawedSession) renewals() int {
	if h.scenario.Lock.Renew.Off {
		return -1
	}
	return h.scenario.Lock.Renew.Max
}

// wait polls until the lock is free.
func (h flawedSession) wait(ctx context.Context, view classic.Lock) (classic.Hold, error) {
	w := h.scenario.Lock.Wait
	for try := 1; ; try++ {
		hold, err := view.TryLock(ctx)
		if !errors.Is(err, classic.ErrHeld) {
			return hold, err
		}
		if try == w.Tries {
			return nil, fmt.Errorf("%w: asked %d times", lock.ErrHeld, try)
		}
		apart := w.Poll + time.Duration((2*rand.Float64()-1)*w.Jitter*float64(w.Poll))
		pause(ctx, apart)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

// flawedLease is a lease of a historic form, which does not notify its holder at the
// end.
type flawedLease struct {
	holds   []classic.Hold // one per entry
	ahead   time.Duration  // how far the holder's clock is ahead
	resumed atomic.Int64   // end of the newest call of between, in Unix nanoseconds
	ctx     context.Context
}

func (g *flawedLease) Context() context.Context { return g.ctx }
func (g *flawedLease) Token() string            { return "" }
func (g *flawedLease) Fence() int64             { return 0 }

// Deadline returns the deadline in true time.
func (g *flawedLease) Deadline() time.Time { return g.holds[0].Deadline().Add(-g.ahead) }

func (g *flawedLease) Valid() bool { return time.Now().Before(g.Deadline()) }

// decided returns when the holder last read the lock before it deleted it.
func (g *flawedLease) decided() time.Time {
	if at := g.resumed.Load(); at != 0 {
		return time.Unix(0, at)
	}
	return time.Time{}
}

func (g *flawedLease) Unlock(ctx context.Context) error {
	var errs []error
	for _, hold := range g.holds {
		err := hold.Unlock(ctx)
		if errors.Is(err, classic.ErrLost) {
			err = fmt.Errorf("%w: %w", lock.ErrLost, err)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
