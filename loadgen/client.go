package loadgen

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"locktop/lock"
)

// A client whose attempts end in errors pauses, longer each time, so that a
// server in trouble is not hit harder than one in good health.
const (
	minBackoff = 50 * time.Millisecond
	maxBackoff = time.Second
)

// releaseWithin bounds a release, also after the client was told to go.
const releaseWithin = 2 * time.Second

// client is one simulated client of a fleet. It goes round: arrive, acquire,
// work, release, think.
type client struct {
	number  int
	fleet   *fleet
	session session
	planner planner
	faults  *pendingFaults

	wire      *network      // the client's own; nil: shared with others
	absence   time.Duration // after a crash; 0 = for ever
	forgotten []lease
}

// run lives until stay ends, and returns the error that kept its last lease from
// being released, if one did. The end of stay is a request to go: the client
// finishes what it holds, but waits and thinks no longer. The end of halt, the
// parent of stay, cuts the work short as well.
func (c *client) run(halt, stay context.Context) error {
	var unreleased error
	failures := 0
	pause(stay, c.fleet.scenario.Load().firstThink(c.number))
	for stay.Err() == nil {
		if err := c.applyFaults(stay); err != nil {
			unreleased = err
			break
		}
		came, open := c.fleet.schedule.next(stay)
		if stay.Err() != nil {
			if open {
				c.fleet.schedule.giveBack(came)
			}
			break
		}
		if !open {
			came = arrival{due: time.Now()}
		}
		s := c.fleet.scenario.Load()
		next := c.planner.next(s, c.fleet.picker)
		how, err := c.round(halt, stay, next, came)
		unreleased = nil
		switch how {
		case unconfirmed:
			unreleased = err
			failures++
		case failed:
			failures++
		case crashed:
			c.die(stay)
		default:
			failures = 0
		}
		c.think(stay, next.think, backoff(failures), open)
	}
	return errors.Join(unreleased, c.recall(halt), c.session.close())
}

// think lets time pass before the next round. Who comes by a schedule does not
// think, and who is greedy neither.
func (c *client) think(stay context.Context, d, rest time.Duration, open bool) {
	if open || c.faults.isGreedy(time.Now()) {
		d = 0
	}
	pause(stay, max(d, rest))
}

// round goes from the arrival to the release, and returns how it ended.
func (c *client) round(halt, stay context.Context, next iteration, came arrival) (outcome, error) {
	f, due := c.fleet, came.due
	asked := time.Now()
	f.recorder.arrive(c.number, due, came.late)
	f.note(Event{At: due, Kind: Arrived, Key: f.keys[next.key], Client: c.number + 1, Shared: next.shared})
	f.janitor.touch(stay, next.key)
	ctx, cancel := c.patient(stay)
	defer cancel()
	f.oracle.waiterAdded(next.key, &attempt{client: c.number, asked: asked, ctx: ctx})
	l, how, err := c.acquire(stay, ctx, next)
	now := time.Now()
	if err != nil {
		f.oracle.waiterGone(next.key, c.number, now)
		f.recorder.giveUp(c.number, now, how, err)
		c.note(how, next, Event{At: now, Took: now.Sub(due)}, nil, err)
		return how, err
	}
	who := participant{client: c.number, token: l.Token(), fence: l.Fence(), shared: next.shared, flaw: f.flaw, asked: asked}
	visit := f.oracle.enter(next.key, who, l, now)
	f.recorder.acquire(c.number, now, now.Sub(due))
	c.note(acquired, next, Event{At: now, Took: now.Sub(due), Deadline: l.Deadline()}, l, nil)
	f.history.acquired(visit, asked, now)
	fate := c.work(halt, l, visit, next.hold)
	return c.end(halt, l, visit, next, fate)
}

// end goes from the end of the work to the release.
func (c *client) end(halt context.Context, l lease, v *occupancy, next iteration, fate workResult) (outcome, error) {
	f := c.fleet
	kept := l.Valid()
	if inner, ok := l.(interface{ unwind() bool }); ok && fate != workCrashed && fate != workLeaked {
		kept = inner.unwind() && kept
	}
	left := time.Now()
	if fate != workCrashed && fate != workLeaked {
		polite := fate != workUnchecked && f.sound
		f.oracle.write(v, polite, left)
	}
	f.oracle.leave(v, left)
	deadline, told := l.Deadline(), time.Time{}
	if f.sound && !kept && fate != workCrashed {
		if told = whenTold(l); told.IsZero() {
			f.oracle.untold(v, left)
		}
	}
	how, err := outcome(abandoned), error(nil)
	switch fate {
	case workCrashed:
		how = crashed
	case workLeaked:
		c.forgotten = append(c.forgotten, l)
	default:
		how, err = c.release(halt, l, v, kept)
	}
	if (how == lost || how == expired) && f.renewed {
		f.oracle.lost(v, left)
	}
	now := time.Now()
	f.history.ended(v, left, now, how)
	f.recorder.end(c.number, how, left.Sub(v.began), err)
	c.note(how, next, Event{At: now, Took: left.Sub(v.began), Deadline: deadline, Told: told}, l, err)
	return how, err
}

// tellWithin is how long a lease that is over may take to tell its holder, which
// asks: the holder's timers may be late, but not for long once it runs.
const tellWithin = time.Second

// whenTold returns when a lease that is over tells its holder, who asks from now on;
// zero if it does not.
func whenTold(l lease) time.Time {
	soon := time.NewTimer(tellWithin)
	defer soon.Stop()
	select {
	case <-l.Context().Done():
	case <-soon.C:
	}
	if l.Context().Err() == nil {
		return time.Time{}
	}
	return time.Now()
}

// note puts the end of an attempt or of a hold into the journal.
func (c *client) note(how outcome, next iteration, e Event, l lease, err error) {
	if e.Kind = how.event(); e.Kind == "" {
		return
	}
	e.Key, e.Client, e.Shared = c.fleet.keys[next.key], c.number+1, next.shared
	if l != nil {
		e.Token, e.Fence = l.Token(), l.Fence()
	}
	if err != nil && (how == failed || how == unconfirmed) {
		e.Text = err.Error()
	}
	c.fleet.note(e)
}

// patient returns a context that ends when the client waits for a key no longer.
func (c *client) patient(stay context.Context) (context.Context, context.CancelFunc) {
	if patience := c.fleet.scenario.Load().Patience; patience > 0 {
		return context.WithTimeout(stay, patience)
	}
	return stay, func() {}
}

// acquire waits for a key until ctx ends, which is when the client's patience does,
// or its stay. The outcome says why there is no lease, if there is none.
func (c *client) acquire(stay, ctx context.Context, next iteration) (lease, outcome, error) {
	l, err := c.session.lock(ctx, c.fleet.keys[next.key], next.shared)
	switch {
	case err == nil:
		return l, acquired, nil
	case errors.Is(err, errDead):
		return nil, crashed, err
	case stay.Err() != nil:
		return nil, calledOff, err
	case ctx.Err() != nil && errors.Is(err, context.DeadlineExceeded):
		return nil, timedOut, err
	case errors.Is(err, lock.ErrHeld):
		return nil, refused, err
	}
	return nil, failed, err
}

// workResult is how work ends.
type workResult uint8

const (
	workOK        workResult = iota // it looks at its lease before it writes
	workUnchecked                   // it writes without another look
	workCrashed                     // it never writes, and does not release
	workLeaked                      // it does not release
)

// work stays inside for a while, or until the lease or the run is over.
func (c *client) work(halt context.Context, l lease, v *occupancy, hold time.Duration) workResult {
	var worked <-chan time.Time
	if hold > 0 {
		timer := time.NewTimer(hold)
		defer timer.Stop()
		worked = timer.C
	}
	var over <-chan struct{}
	for {
		if f, strikes := c.faults.take(c.hitsInHold); strikes {
			if fate := c.applyInHold(halt, v, f); fate != workOK {
				return fate
			}
		}
		if hold <= 0 {
			return workOK
		}
		if over == nil { // which costs a channel, that who does not stay can do without
			over = l.Context().Done()
		}
		select {
		case <-worked:
			return workOK
		case <-over:
			return workOK
		case <-halt.Done():
			return workOK
		case <-c.faults.notify:
		}
	}
}

// release unlocks, whether the lease was kept or not: that is what users do,
// and a sound lock leaves a lost one alone. It goes on when the run is over.
func (c *client) release(halt context.Context, l lease, v *occupancy, kept bool) (outcome, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(halt), releaseWithin)
	defer cancel()
	decided := time.Now()
	err := l.Unlock(ctx)
	now := time.Now()
	if slow, ok := l.(interface{ decided() time.Time }); ok && slow.decided().After(decided) {
		decided = slow.decided()
	}
	switch {
	case err == nil:
		c.fleet.oracle.unlocked(v, decided, now)
		c.fleet.recorder.serve(now.Sub(decided))
	case errors.Is(err, errDead):
		return crashed, err
	}
	switch {
	case !kept && !now.Before(l.Deadline()):
		return expired, err
	case !kept || errors.Is(err, lock.ErrLost):
		return lost, err
	case err != nil:
		return unconfirmed, err
	}
	return released, nil
}

// recall releases what was forgotten, when the client goes.
func (c *client) recall(halt context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(halt), releaseWithin)
	defer cancel()
	for _, l := range c.forgotten {
		if err := l.Unlock(ctx); err != nil && !errors.Is(err, lock.ErrLost) {
			return err
		}
	}
	return nil
}

// pause lets time pass until d is over or the client is asked to go.
func pause(stay context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	over := time.NewTimer(d)
	defer over.Stop()
	select {
	case <-over.C:
	case <-stay.Done():
	}
}

// backoff returns how long to pause after so many failures in a row. It doubles,
// and half of it is left to chance: not to the client's own choices, which must
// not depend on what happens to it.
func backoff(failures int) time.Duration {
	if failures == 0 {
		return 0
	}
	most := maxBackoff
	if failures < 6 {
		most = min(minBackoff<<(failures-1), maxBackoff)
	}
	return most/2 + rand.N(most/2)
}
