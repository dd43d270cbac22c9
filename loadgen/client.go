package loadgen

import (
	"cmp"
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
	number   int
	identity identity
	choices  choices
	keys     []string
	patience time.Duration
	oracle   *oracle
	recorder *recorder
}

// run lives until stay ends, and returns the error that kept its last lease from
// being released, if one did. The end of stay is a request to go: the client
// finishes what it holds, but waits and thinks no longer. The end of halt, the
// parent of stay, cuts the work short as well.
func (c *client) run(halt, stay context.Context) error {
	var unreleased error
	failures := 0
	for stay.Err() == nil {
		next := c.choices.next()
		how, err := c.round(halt, stay, next)
		unreleased = nil
		switch how {
		case unconfirmed:
			unreleased = err
			failures++
		case failed:
			failures++
		default:
			failures = 0
		}
		pause(stay, max(next.think, backoff(failures)))
	}
	return cmp.Or(unreleased, c.identity.close())
}

// round goes from the arrival to the release, and returns how it ended.
func (c *client) round(halt, stay context.Context, next choice) (outcome, error) {
	arrived := time.Now()
	c.recorder.arrive(c.number)
	lease, how, err := c.acquire(stay, next.key)
	if err != nil {
		c.recorder.giveUp(c.number, how, err)
		return how, err
	}
	now := time.Now()
	visit := c.oracle.enter(next.key, lease, now)
	c.recorder.acquire(c.number, now, now.Sub(arrived))
	work(halt, lease, next.hold)
	kept := lease.Valid()
	c.oracle.leave(visit, time.Now())
	how, err = release(halt, lease, kept)
	c.recorder.end(c.number, how, err)
	return how, err
}

// acquire waits for a key for as long as the client stays and has patience. The
// outcome says why there is no lease, if there is none.
func (c *client) acquire(stay context.Context, key int) (lease, outcome, error) {
	ctx := stay
	if c.patience > 0 {
		patience, cancel := context.WithTimeout(stay, c.patience)
		defer cancel()
		ctx = patience
	}
	l, err := c.identity.lock(ctx, c.keys[key])
	switch {
	case err == nil:
		return l, acquired, nil
	case stay.Err() != nil:
		return nil, calledOff, err
	case ctx.Err() != nil && errors.Is(err, context.DeadlineExceeded):
		return nil, timedOut, err
	}
	return nil, failed, err
}

// work stays inside for a while, or until the lease or the run is over.
func work(halt context.Context, l lease, hold time.Duration) {
	if hold <= 0 {
		return
	}
	done := time.NewTimer(hold)
	defer done.Stop()
	select {
	case <-done.C:
	case <-l.Context().Done():
	case <-halt.Done():
	}
}

// release unlocks, whether the lease was kept or not: that is what users do,
// and a sound lock leaves a lost one alone. It goes on when the run is over.
func release(halt context.Context, l lease, kept bool) (outcome, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(halt), releaseWithin)
	defer cancel()
	err := l.Unlock(ctx)
	switch {
	case !kept || errors.Is(err, lock.ErrLost):
		return lost, err
	case err != nil:
		return unconfirmed, err
	}
	return released, nil
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
