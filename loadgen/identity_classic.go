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

// persona is who an identity is: a name, and for the historic forms a clock and
// a weak moment between two commands.
type persona struct {
	owner   string
	ahead   func() time.Duration // of true time
	between func(ctx context.Context, next string) error
}

// historic is an identity that locks with a form of package classic. These do
// not wait: it polls.
type historic struct {
	rdb      redis.UniversalClient
	form     classic.Form
	scenario Scenario
	who      persona
	owns     bool // the first one, which hangs up
}

func openClassic(o opening) (identity, error) {
	o.wire.pool = 1 // those who share it take turns
	rdb, err := o.wire.over(o.servers.Redis)
	if err != nil {
		return nil, err
	}
	return historic{rdb: rdb, form: o.scenario.Lock.Kind.form(), scenario: o.scenario, owns: true}, nil
}

func (h historic) as(who persona) identity {
	h.who, h.owns = who, false
	return h
}

// close leaves held what is held: nobody takes it back, that is how they are.
func (h historic) close() error {
	if h.owns {
		return h.rdb.Close()
	}
	return nil
}

func (h historic) lock(ctx context.Context, key string, shared bool) (lease, error) {
	g := &grant{ahead: h.ahead(), ctx: context.WithoutCancel(ctx)}
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

func (h historic) ahead() time.Duration {
	if h.who.ahead == nil {
		return 0
	}
	return h.who.ahead()
}

// view is the lock as one client sees it.
func (h historic) view(key string, shared bool, g *grant) classic.Lock {
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

func (h historic) renewals() int {
	if h.scenario.Lock.Renew.Off {
		return -1
	}
	return h.scenario.Lock.Renew.Max
}

// wait asks until the lock is free.
func (h historic) wait(ctx context.Context, view classic.Lock) (classic.Hold, error) {
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

// grant is a lease of a historic form: nobody tells its holder when it is over.
type grant struct {
	holds   []classic.Hold // as often as it was entered
	ahead   time.Duration  // the holder's clock
	resumed atomic.Int64   // when the holder last went on after a weak moment, Unix nanoseconds
	ctx     context.Context
}

func (g *grant) Context() context.Context { return g.ctx }
func (g *grant) Token() string            { return "" }
func (g *grant) Fence() int64             { return 0 }

// Deadline implements validity, in true time.
func (g *grant) Deadline() time.Time { return g.holds[0].Deadline().Add(-g.ahead) }

// Valid implements validity.
func (g *grant) Valid() bool { return time.Now().Before(g.Deadline()) }

// decided returns when the holder last looked at the lock before it deleted it.
func (g *grant) decided() time.Time {
	if at := g.resumed.Load(); at != 0 {
		return time.Unix(0, at)
	}
	return time.Time{}
}

// Unlock implements lease.
func (g *grant) Unlock(ctx context.Context) error {
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
