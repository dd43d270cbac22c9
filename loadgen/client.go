package loadgen

import (
	"context"
	"errors"
	"math"
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
	planner planner
	faults  *pendingFaults

	network      *network      // its own connections; nil: shared with other clients
	replaceAfter time.Duration // after a crash; 0 = until the end of the run
	leaked       []*lease
}

// run runs the client until stay ends. It returns the error that prevented the release
// of its last lease, if there is one. When stay ends, the client stops waiting and
// thinking, but finishes its hold. When halt, the parent of stay, ends, the client also
// ends its work.
func (c *client) run(halt, stay context.Context) error {
	var unreleased error
	failures := 0
	if c.fleet.greeted != nil {
		<-c.fleet.greeted
	}
	pause(stay, c.fleet.scenario.Load().firstThink(c.place))
	for stay.Err() == nil {
		if err := c.applyFaults(); err != nil {
			unreleased = err
			break
		}
		arrived, open := c.fleet.schedule.next(stay)
		if stay.Err() != nil {
			if open {
				c.fleet.schedule.giveBack(arrived)
			}
			break
		}
		if !open {
			arrived = arrival{due: time.Now()}
		}
		s := c.fleet.scenario.Load()
		next := c.planner.next(s, c.fleet.keys.picker)
		how, err := c.round(halt, stay, next, arrived)
		unreleased = nil
		switch how {
		case unconfirmed:
			unreleased = err
			failures++
		case failed:
			failures++
		case crashed:
			c.waitReplacement(stay)
		default:
			failures = 0
		}
		think := next.think
		if open || time.Now().UnixNano() < c.faults.greedyUntil.Load() { // the client is greedy
			think = 0
		}
		pause(stay, max(think, backoff(failures)))
	}
	return errors.Join(unreleased, c.releaseLeaked(halt), c.session.close())
}

// round runs from the arrival to the release, and returns the outcome.
func (c *client) round(halt, stay context.Context, next iteration, arrived arrival) (outcome, error) {
	f, due := c.fleet, arrived.due
	asked := time.Now()
	f.recorder.arrive(c.number, due, arrived.late)
	names, numbers := f.keys.of(next.key)
	f.note(Event{At: due, Kind: Arrived, Key: names[0], More: names[1:], Client: c.number + 1, Shared: next.shared})
	ctx, cancel := c.withPatience(stay)
	defer cancel()
	for _, key := range numbers {
		if f.janitor.prepared != nil { // the first hold of a key waits until it is prepared
			f.janitor.prepared[key].Do(func() { f.janitor.prepareKey(stay, key) })
		}
		f.oracle.WaiterAdded(key, &oracle.Attempt{Client: c.number, Asked: asked, Ctx: ctx})
	}
	l, how, err := c.acquire(stay, ctx, next)
	now := time.Now()
	if err != nil {
		for _, key := range numbers {
			f.oracle.WaiterGone(key, c.number, now)
		}
		f.recorder.giveUp(c.number, now, how, err)
		c.note(how, next, Event{At: now, Took: now.Sub(due)}, nil, err)
		return how, err
	}
	hold := oracle.Hold{Client: c.number, Token: l.token, Fence: l.fence, Shared: next.shared, Flaw: f.promise.flaw, Asked: asked, First: l.first, Lease: l}
	visit := f.oracle.Enter(numbers[0], hold, now, numbers[1:]...)
	f.recorder.acquire(c.number, now, now.Sub(due))
	c.note(acquired, next, Event{At: now, Took: now.Sub(due), Deadline: l.Deadline()}, l, nil)
	f.history.Acquired(visit, asked, now)
	always := context.WithoutCancel(halt)
	seen := f.witness.Enter(always, c.number+1, names, next.shared)
	result := c.work(halt, l, visit, next.hold)
	if result != workCrashed && result != workLeaked {
		f.witness.Leave(always, seen, l.Valid)
	}
	return c.end(halt, l, visit, next, result)
}

// end runs from the end of the work to the release.
func (c *client) end(halt context.Context, l *lease, v *oracle.Hold, next iteration, result workResult) (outcome, error) {
	f := c.fleet
	keeps := l.Valid
	if l.kept != nil {
		keeps = l.kept
	}
	kept := keeps()
	if len(l.inner) > 0 && result != workCrashed && result != workLeaked {
		ctx, cancel := context.WithTimeout(l.Context(), releaseWithin)
		kept = (l.leave(ctx) == nil || keeps()) && kept
		cancel()
	}
	left := time.Now()
	if result != workCrashed && result != workLeaked {
		polite := result != workUnchecked && f.promise.sound
		f.oracle.Write(v, polite, left)
	}
	f.oracle.Leave(v, left)
	deadline, told := l.Deadline(), time.Time{}
	if f.promise.sound && !kept && result != workCrashed {
		if told = waitNotified(l); told.IsZero() {
			f.oracle.Unnotified(v, left)
		}
	}
	how, err := outcome(abandoned), error(nil)
	switch result {
	case workCrashed:
		how = crashed
	case workLeaked:
		c.leaked = append(c.leaked, l)
		f.oracle.Forgotten(v)
	default:
		how, err = c.release(halt, l, v, kept)
	}
	if (how == lost || how == expired) && f.promise.renewed {
		found := left
		if kept { // the release found it: a fault may have struck meanwhile
			found = time.Now()
		}
		f.oracle.Lost(v, found)
	}
	if how == lost {
		f.oracle.Removed(v, time.Now())
	}
	now := time.Now()
	f.history.Ended(v, left, how == released)
	f.recorder.end(c.number, how, left.Sub(v.Began), err)
	c.note(how, next, Event{At: now, Took: left.Sub(v.Began), Deadline: deadline, Told: told}, l, err)
	return how, err
}

// waitNotified waits until a lease that is over notifies its holder, and returns the time.
// It returns zero after notifyWithin.
func waitNotified(l *lease) time.Time {
	select {
	case <-l.Context().Done():
	case <-time.After(time.Second): // the timers of the holder may be late
	}
	if l.Context().Err() == nil {
		return time.Time{}
	}
	return time.Now()
}

// note records the end of an attempt or of a hold as an event.
func (c *client) note(how outcome, next iteration, e Event, l *lease, err error) {
	if e.Kind = eventOf[how]; e.Kind == "" {
		return
	}
	names, _ := c.fleet.keys.of(next.key)
	e.Key, e.More, e.Client, e.Shared = names[0], names[1:], c.number+1, next.shared
	if l != nil {
		e.Token, e.Fence = l.token, l.fence
	}
	if err != nil && (how == failed || how == unconfirmed) {
		e.Text = err.Error()
	}
	c.fleet.note(e)
}

// withPatience returns a context that ends when the client stops waiting for a key.
func (c *client) withPatience(stay context.Context) (context.Context, context.CancelFunc) {
	if patience := c.fleet.scenario.Load().Patience; patience > 0 {
		return context.WithTimeout(stay, patience)
	}
	return stay, func() {}
}

// acquire waits for a key until ctx ends: with the patience of the client, or with
// stay. Without a lease, the outcome is the reason.
func (c *client) acquire(stay, ctx context.Context, next iteration) (*lease, outcome, error) {
	names, _ := c.fleet.keys.of(next.key)
	l, err := c.session.lock(ctx, names, next.shared)
	if err == nil {
		err = l.enter(ctx, c.fleet.scenario.Load())
	}
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

// workResult is the result of work.
type workResult uint8

const (
	workOK        workResult = iota // checks its lease before it writes
	workUnchecked                   // writes without a check
	workCrashed                     // never writes, and does not release
	workLeaked                      // does not release
)

// work stays in the critical section for the time hold, at most until the lease or the
// run ends.
func (c *client) work(halt context.Context, l *lease, v *oracle.Hold, hold time.Duration) workResult {
	var worked <-chan time.Time
	if hold > 0 {
		timer := time.NewTimer(hold)
		defer timer.Stop()
		worked = timer.C
	}
	var over <-chan struct{}
	for {
		// A fault of the network waits until the client has its own connections.
		hits := func(f Fault) bool { return insideHold(f) && (c.network != nil || !f.needsOwnConns()) }
		if f, found := c.faults.take(hits); found {
			if result := c.applyInHold(halt, v, f); result != workOK {
				return result
			}
		}
		if hold <= 0 {
			return workOK
		}
		if over == nil { // Done allocates a channel: avoid it for a hold without a duration
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

// release unlocks, even if the lease is lost: users do so, too, and a sound lock leaves
// the lock of another client alone. It continues after the end of the run.
func (c *client) release(halt context.Context, l *lease, v *oracle.Hold, kept bool) (outcome, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(halt), releaseWithin)
	defer cancel()
	decided := time.Now()
	err := l.release(ctx)
	now := time.Now()
	if l.decided != nil && l.decided().After(decided) {
		decided = l.decided()
	}
	switch {
	case err == nil:
		c.fleet.oracle.Unlocked(v, decided, now)
		c.fleet.recorder.observe(c.fleet.recorder.release, now.Sub(decided))
	case errors.Is(err, errDead):
		return crashed, err
	}
	switch {
	case !kept && !now.Before(l.Latest()):
		return expired, err
	case !kept || errors.Is(err, lock.ErrLost):
		return lost, err
	case err != nil:
		return unconfirmed, err
	}
	return released, nil
}

// releaseLeaked releases the leases that a fault made the client forget.
func (c *client) releaseLeaked(halt context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(halt), releaseWithin)
	defer cancel()
	for _, l := range c.leaked {
		if err := l.release(ctx); err != nil && !errors.Is(err, lock.ErrLost) {
			return err
		}
	}
	return nil
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
// time. Half of it is random, but does not use the random source of the planner: the
// choices of a client must not depend on failures.
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

// planner makes the random choices of one client. They depend only on the scenario and
// the client number, never on the course of the run, so that a run can be repeated.
type planner struct {
	random *rand.Rand
}

// iteration is the set of choices for one round of a client.
type iteration struct {
	key         int
	shared      bool // for reading
	hold, think time.Duration
}

func newPlanner(seed uint64, client int) planner {
	return planner{rand.New(rand.NewPCG(seed, uint64(client)))}
}

// next makes the choices for a round of s.
func (c planner) next(s *Scenario, keys *picker) iteration {
	return iteration{
		key:    keys.pick(c.random),
		hold:   s.Hold.draw(c.random),
		think:  s.Think.draw(c.random),
		shared: s.Reads > 0 && c.random.Float64() < s.Reads,
	}
}

// picker picks key numbers, from 0. Safe for concurrent use.
type picker struct {
	keys       Keys
	cumulative []float64 // zipf: sum of the weights up to each key
}

func newPicker(k Keys) *picker {
	p := &picker{keys: k}
	if k.Pick != PickZipf {
		return p
	}
	sum := 0.0
	p.cumulative = make([]float64, k.N)
	for i := range p.cumulative {
		sum += math.Pow(float64(i+1), -k.Skew)
		p.cumulative[i] = sum
	}
	return p
}

func (p *picker) pick(r *rand.Rand) int {
	switch p.keys.Pick {
	case PickOne:
		return 0
	case PickHotspot:
		if p.keys.N == 1 || r.Float64() < p.keys.Skew {
			return 0
		}
		return 1 + r.IntN(p.keys.N-1)
	case PickZipf:
		key, _ := slices.BinarySearch(p.cumulative, r.Float64()*p.cumulative[p.keys.N-1])
		return key
	}
	return r.IntN(p.keys.N)
}
