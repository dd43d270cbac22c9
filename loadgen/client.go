package loadgen

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"locktop/loadgen/oracle"
	"locktop/lock"
)

// Bounds of the pause after a failed attempt. It grows with each failure, to spare a
// server in trouble.
const (
	minBackoff = 50 * time.Millisecond
	maxBackoff = time.Second
)

// releaseWithin bounds a release, also after the run has ended.
const releaseWithin = 2 * time.Second

// client is one simulated client of a fleet. Its loop is: arrive, acquire, work,
// release, think.
type client struct {
	number  int // unique in the run; see [Run.Join]
	place   int // in the fleet, from 0
	fleet   *fleet
	session session
	random  *rand.Rand // of its choices
	faults  *pendingFaults

	network      *network      // its own connections; nil: shared with other clients
	replaceAfter time.Duration // after a crash; 0 = until the end of the run
	leaked       []leak

	stay    context.Context // ends when the client shall leave; then it may still hold a lock
	dismiss func()          // ends stay
}

// leak is a lease that a fault made a client forget until a time.
type leak struct {
	*lease
	until time.Time
}

// run runs the client until its stay ends. It returns the error that prevented the release
// of its last lease, if there is one. When its stay ends, the client stops waiting and
// thinking, but finishes its hold. When the fleet stops, the client also ends its work.
func (c *client) run() error {
	var unreleased error
	failures := 0
	<-c.fleet.greeted
	pause(c.stay, c.fleet.scenario.Load().firstThink(c.place))
	for c.stay.Err() == nil {
		if err := c.applyFaults(); err != nil {
			unreleased = err
			break
		}
		arrived, open := c.fleet.schedule.next(c.stay)
		if !open {
			if c.stay.Err() != nil {
				break
			}
			arrived = arrival{due: time.Now()}
		}
		s := c.fleet.scenario.Load()
		next := choose(c.random, s, c.fleet.keys.picker)
		how, err := c.round(next, arrived)
		unreleased = nil
		switch how {
		case unconfirmed:
			unreleased = err
			failures++
		case failed:
			failures++
		case crashed, died:
			c.waitReplacement()
		default:
			failures = 0
		}
		think := next.think
		if open || time.Now().UnixNano() < c.faults.greedyUntil.Load() { // the client is greedy
			think = 0
		}
		pause(c.stay, max(think, backoff(failures)))
	}
	return errors.Join(unreleased, c.releaseLeaked(time.Now().Add(maxTime)), c.session.close())
}

// keySet is the set of keys of a fleet.
type keySet struct {
	names   []string // by key number; the first ones follow the last one again
	numbers map[string]int
	ring    []int // the number of each name in names
	span    int   // number of keys of a hold
	picker  *picker
}

func newKeySet(k Keys, span int) keySet {
	s := keySet{k.names(), make(map[string]int, k.N), nil, span, newPicker(k)}
	for i, name := range s.names {
		s.numbers[name] = i
		s.ring = append(s.ring, i)
	}
	s.names, s.ring = append(s.names, s.names[:span-1]...), append(s.ring, s.ring[:span-1]...)
	return s
}

// of returns the names and the numbers of the keys of a hold: the picked one and the
// next ones. Clients that pick neighbours name keys in opposite orders.
func (s *keySet) of(picked int) (names []string, numbers []int) {
	return s.names[picked : picked+s.span], s.ring[picked : picked+s.span]
}

// round is what the observers of a client see of one round, from the arrival to the release. A
// field is known from the step on that its comment names.
type round struct {
	client int // number
	iteration
	arrival
	names []string // of the keys
	keys  []int    // their numbers
	asked time.Time
	stay  context.Context // ends when the client must not wait any more
	ctx   context.Context // the same, or when its patience ends
	at    time.Time       // of the step

	hold  *oracle.Hold // the oracle makes it
	lease *lease       // entered
	seen  string       // entered: the ID of the hold on the witness, "" if it has not seen it

	fault    Fault     // struck
	unaware  bool      // done: the client does not check its lease before it writes
	kept     bool      // left: the client still had the lock, as far as it knew
	left     time.Time // left
	deadline time.Time // left: of the lease
	told     time.Time // freed: when the lease notified the client of its end
	untold   bool      // freed: it did not
	decided  time.Time // freed: when the client decided to release; zero if it does not
	how      outcome   // acquired until it gives up, or until a fault or the release ends the hold
	err      error     // gaveUp and freed
}

// step is what happens in a round.
type step uint8

const (
	asked   step = iota // the client arrives and asks for its locks
	gaveUp              // it waits no longer, and has none
	entered             // it has got them, and is inside
	struck              // a fault affects it inside
	done                // its work is over
	left                // it has left, and is about to release
	freed               // it has released, or never will
)

// released reports whether the release succeeded, also of a lock that was lost before.
func (r *round) released() bool { return !r.decided.IsZero() && r.err == nil }

// tell tells all observers of a step.
func (f *fleet) tell(s step, r *round) {
	for _, observe := range f.observers {
		observe(s, r)
	}
}

// round runs a round and returns its outcome.
func (c *client) round(next iteration, a arrival) (outcome, error) {
	r := &round{client: c.number, iteration: next, arrival: a, asked: time.Now(), stay: c.stay, ctx: c.stay}
	r.names, r.keys = c.fleet.keys.of(next.key)
	if patience := c.fleet.scenario.Load().Patience; patience > 0 {
		var cancel context.CancelFunc
		r.ctx, cancel = context.WithTimeout(c.stay, patience)
		defer cancel()
	}
	c.fleet.tell(asked, r)
	c.acquire(r)
	if r.err != nil {
		c.fleet.tell(gaveUp, r)
		return r.how, r.err
	}
	c.fleet.tell(entered, r)
	_ = c.releaseLeaked(r.at) // late: a sound lock says that it is lost
	c.climb(r)
	c.work(r)
	c.fleet.tell(done, r)
	c.leave(r)
	c.fleet.tell(left, r)
	c.free(r)
	c.fleet.tell(freed, r)
	return r.how, r.err
}

// climb enters the lock again with the pauses of [Scenario.Apart], as often as an entry succeeds. The
// client leaves as slowly.
func (c *client) climb(r *round) {
	s, l := c.fleet.scenario.Load(), r.lease
	if s.Apart == 0 {
		return
	}
	ctx, cancel := context.WithCancel(l.Context())
	defer context.AfterFunc(c.fleet.ctx, cancel)()
	counted := func() {
		c.fleet.events.note(Event{At: time.Now(), Kind: Counted, Key: r.names[0], Client: r.client + 1, Token: l.token, Shared: r.shared, Depth: 1 + len(l.inner)})
	}
	l.left = func() {
		counted()
		pause(c.fleet.ctx, s.Apart)
	}
	for range s.Depth - 1 {
		pause(ctx, s.Apart)
		inner, err := l.again(ctx)
		if err != nil {
			return // the release reports a lock that is lost
		}
		l.inner = append(l.inner, inner)
		counted()
	}
}

// leave leaves the further entries of the lock, which is the end of the time inside.
func (c *client) leave(r *round) {
	l := r.lease
	r.kept = l.kept()
	if len(l.inner) > 0 && r.how == acquired {
		ctx, cancel := context.WithTimeout(l.Context(), releaseWithin+time.Duration(len(l.inner))*c.fleet.scenario.Load().Apart)
		defer cancel()
		r.kept = (l.leave(ctx) == nil || l.kept()) && r.kept
	}
	r.left, r.deadline = time.Now(), l.Deadline()
}

// free ends the hold of a client that has left: with a release, unless a fault prevents it. Before, a
// lease that is over must notify its holder, within 1 s, because the timers of the holder may be late.
func (c *client) free(r *round) {
	if c.fleet.promise.sound && !r.kept && r.how != crashed {
		select {
		case <-r.lease.Context().Done():
			r.told = time.Now()
		case <-time.After(time.Second):
			r.kept = r.lease.kept() // a report of a renewal may be late, too
			r.untold = !r.kept
		}
	}
	switch r.at = time.Now(); r.how {
	case acquired:
		c.release(r)
	case abandoned:
		c.leaked = append(c.leaked, leak{r.lease, r.at.Add(cmp.Or(r.fault.For, maxTime))})
	}
}

// acquire waits for the locks. Without a lease, the outcome is the reason.
func (c *client) acquire(r *round) {
	r.lease, r.err = c.session.lock(r.ctx, r.names, r.shared)
	if r.err == nil {
		if s := c.fleet.scenario.Load(); s.Apart == 0 {
			r.err = r.lease.enter(r.ctx, s)
		}
	}
	r.at = time.Now()
	switch {
	case r.err == nil:
		r.how = acquired
	case errors.Is(r.err, errDead):
		r.how = died
	case r.stay.Err() != nil:
		r.how = calledOff
	case r.ctx.Err() != nil && errors.Is(r.err, context.DeadlineExceeded):
		r.how = timedOut
	case errors.Is(r.err, lock.ErrHeld):
		r.how = refused
	default:
		r.how = failed
	}
}

// work stays in the critical section for the time of the round, at most until the lease or the
// run ends. A fault may also end the hold, and so does a new length of holds that is shorter.
func (c *client) work(r *round) {
	var worked <-chan time.Time
	began, length := time.Now(), r.drawn
	if r.work > 0 {
		worked = time.After(r.work)
	}
	var over <-chan struct{}
	for {
		// A fault of the network waits until the client has its own connections.
		hits := func(f Fault) bool { return f.Waits() && (c.network != nil || !f.needsOwnConns()) }
		if f, found := c.faults.take(hits); found && c.applyInHold(r, f) || r.work <= 0 {
			return
		}
		if now := c.fleet.scenario.Load().Hold; now != length && now.Typical() < r.work {
			length, worked = now, time.After(now.Typical()-time.Since(began))
		}
		if over == nil { // Done allocates a channel: avoid it for a hold without a duration
			over = r.lease.Context().Done()
		}
		select {
		case <-worked:
			return
		case <-over:
			return
		case <-c.fleet.ctx.Done():
			return
		case <-c.faults.notify:
		}
	}
}

// release unlocks, even if the lease is lost: users do so, too, and a sound lock leaves
// the lock of another client alone. It continues after the end of the run.
func (c *client) release(r *round) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.fleet.ctx), releaseWithin)
	defer cancel()
	l := r.lease
	r.decided = time.Now()
	r.err = l.release(ctx)
	r.at = time.Now()
	if l.decided != nil && l.decided().After(r.decided) {
		r.decided = l.decided()
	}
	switch {
	case errors.Is(r.err, errDead):
		r.how = crashed
	case !r.kept && !r.at.Before(l.Latest()):
		r.how = expired
	case !r.kept || errors.Is(r.err, lock.ErrLost):
		r.how = lost
	case r.err != nil:
		r.how = unconfirmed
	default:
		r.how = released
	}
}

// releaseLeaked releases the leases that a fault made the client forget until now.
func (c *client) releaseLeaked(now time.Time) (unreleased error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.fleet.ctx), releaseWithin)
	defer cancel()
	c.leaked = slices.DeleteFunc(c.leaked, func(l leak) bool {
		late := !now.Before(l.until)
		if late {
			if err := l.release(ctx); !errors.Is(err, lock.ErrLost) {
				unreleased = cmp.Or(unreleased, err)
			}
		}
		return late
	})
	return unreleased
}

// pause waits until d is over or stay ends.
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

// backoff returns the pause after this number of failures in a row. It doubles each
// time. Half of it is random, but does not use the random source of the choices: the
// choices of a client must not depend on failures.
func backoff(failures int) time.Duration {
	if failures == 0 {
		return 0
	}
	most := min(minBackoff<<min(failures-1, 5), maxBackoff)
	return most/2 + rand.N(most/2)
}

// observe handles the events of package lock.
func (f *fleet) observe(e lock.Event) {
	switch e.Kind {
	case lock.Contended:
		if key, known := f.keys.numbers[e.Key]; known && f.promise.inOrder {
			f.oracle.Queued(key, numberOf(e.Owner), e.At)
		}
	case lock.Acquired, lock.GaveUp:
		f.recorder.attempts.Add(int64(e.Attempts))
	case lock.Renewed:
		f.recorder.update(func(m *Metrics) {
			m.Cost.Renewals++
			f.recorder.renewLate.add(e.Elapsed)
		})
		if e.Key != "" { // a client process does not name it
			f.events.note(Event{At: e.At, Kind: Renewed, Key: e.Key, Client: numberOf(e.Owner) + 1, Token: e.Token})
		}
	}
}

// judge is the observer for the oracle.
func (f *fleet) judge(s step, r *round) {
	o, v := f.oracle, r.hold
	switch s {
	case asked:
		r.hold = o.Ask(oracle.Hold{Client: r.client, Shared: r.shared, Flaw: f.promise.flaw, Asked: r.asked, Ctx: r.ctx}, r.keys...)
	case gaveUp:
		o.GiveUp(v, r.at)
	case entered:
		v.Token, v.Fence, v.First, v.Lease = r.lease.token, r.lease.fence, r.lease.first, r.lease
		o.Enter(v, r.at)
	case struck:
		o.Faulted(v, string(r.fault.Kind))
	case left:
		if r.how == acquired {
			o.Write(v, !r.unaware && f.promise.sound, r.left)
		}
		o.Leave(v, r.left)
	case freed:
		f.judgeEnd(r)
	}
}

// judgeEnd tells the oracle how a hold has ended.
func (f *fleet) judgeEnd(r *round) {
	o, v := f.oracle, r.hold
	if r.untold {
		o.Unnotified(v, r.left)
	}
	if r.released() {
		o.Unlocked(v, r.decided, r.at)
	}
	if (r.how == lost || r.how == expired) && f.promise.renewed {
		found := r.left
		if r.kept { // the release found it: a fault may have struck meanwhile
			found = r.at
		}
		o.Lost(v, found)
	}
	switch r.how {
	case lost:
		o.Removed(v, r.at)
	case abandoned:
		o.Forgotten(v)
		o.LeftBehind(v, r.left, true)
	case crashed:
		o.LeftBehind(v, r.left, false)
	}
}

// show is the observer for the witness. Its replies are the first and the last of a work, also after
// the end of the run.
func (f *fleet) show(s step, r *round) {
	switch {
	case s == entered:
		r.seen = f.witness.Enter(context.Background(), r.client+1, r.names, r.shared)
	case s == done && r.how == acquired:
		f.witness.Leave(context.Background(), r.seen, r.lease.Valid)
	}
}
