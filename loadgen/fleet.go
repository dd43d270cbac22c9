package loadgen

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"locktop/loadgen/oracle"
	"locktop/lock"
)

// fleet is the set of clients of a run from one start to one stop, with the oracle and
// the metrics. It is used once. All methods are safe for concurrent use.
type fleet struct {
	scenario atomic.Pointer[Scenario] // current
	servers  Servers
	keys     []string
	picker   *picker
	promise  promise
	sessions baseSessions
	commands atomic.Int64

	oracle   *oracle.Oracle
	recorder *recorder
	journal  *eventRing
	schedule *schedule
	history  *oracle.History
	janitor  *janitor
	numbers  map[string]int // key numbers by name

	disturbances disturbances

	ctx     context.Context // ends with stop
	cancel  context.CancelFunc
	clients errgroup.Group
	tasks   sync.WaitGroup // other goroutines

	mu      sync.Mutex
	stopped bool
	slots   []*slot // by client number; nil = free
	faults  []strikes
	random  *rand.Rand
}

// promise is what a kind of lock promises to its holders.
type promise struct {
	sound   bool   // the lock notifies its holder at the end of the lease
	renewed bool   // a lease lasts as long as the work of its holder
	inOrder bool   // the lock serves waiters in order of arrival
	flaw    string // the cause of violations if the lock is not sound
}

func (l Lock) promise() promise {
	p := promise{
		sound: l.Kind.Sound(), renewed: l.Kind.Sound() && !l.Renew.Off && l.Renew.Max == 0, inOrder: l.Kind == Fair,
	}
	if !p.sound {
		p.flaw = string(l.Kind)
	}
	return p
}

// baseSessions are the sessions that clients share: one per connection.
type baseSessions struct {
	open func(sessionConfig) (session, error)

	mu    sync.Mutex
	roots []session // opened on demand
}

// slot is the place of a client in a fleet.
type slot struct {
	leave   context.CancelFunc
	leaving bool // told to leave, but may still hold a lock
	client  *client
}

// fleetConfig is the configuration of a fleet besides its scenario.
type fleetConfig struct {
	servers Servers
	open    func(sessionConfig) (session, error)
	tell    func(Event)
	history *oracle.History
	shared  bool   // others may use keys of the same names
	over    func() // called once, at the end of the duration
}

// newFleet starts a fleet.
func newFleet(s Scenario, c fleetConfig) (*fleet, error) {
	ctx, cancel := context.WithCancel(context.Background())
	now := time.Now()
	f := &fleet{
		servers:  c.servers,
		keys:     s.Keys.names(),
		picker:   newPicker(s.Keys),
		promise:  s.Lock.promise(),
		recorder: newRecorder(now),
		journal:  newEventRing(c.tell),
		schedule: newSchedule(s.Rate, now, s.spacing()),
		history:  c.history,
		ctx:      ctx,
		cancel:   cancel,
		random:   rand.New(rand.NewPCG(s.Seed, 1<<63)),
	}
	f.sessions.open = c.open
	f.scenario.Store(&s)
	f.faults = make([]strikes, len(s.Faults))
	f.oracle = oracle.New(oracle.Config{
		Keys: f.keys, Patience: 3 * s.Lock.TTL, InOrder: f.promise.inOrder, Numbered: s.Lock.Fence,
		Report: f.violated, Handoff: f.recorder.handOver,
	})
	f.disturbances.aftermath = max(s.Lock.TTL, placeLife) + 500*time.Millisecond
	f.numbers = make(map[string]int, len(f.keys))
	for i, key := range f.keys {
		f.numbers[key] = i
	}
	f.janitor = newJanitor(s, c.servers, f.oracle)
	if c.shared {
		f.janitor.spare()
		if err := f.janitor.claim(ctx); err != nil {
			cancel()
			return nil, err
		}
	}
	f.tasks.Go(func() { f.janitor.work(ctx) })
	f.tasks.Go(func() { f.watch(ctx) })
	if err := f.resize(s.Clients); err != nil {
		return nil, errors.Join(err, f.stop())
	}
	f.tasks.Go(func() { f.runSteps(c.over) })
	return f, nil
}

// spacing returns the random source of the arrivals, nil if they are even.
func (s *Scenario) spacing() *rand.Rand {
	if s.Arrivals != Poisson {
		return nil
	}
	return rand.New(rand.NewPCG(s.Seed, 1<<62))
}

// warm ends the warm-up: it resets the metrics.
func (f *fleet) warm() {
	f.recorder.reset(time.Now())
	f.commands.Store(0)
	f.janitor.restart()
	f.oracle.Restart()
}

// open returns the base session of a network.
func (f *fleet) open(w *network) (session, error) {
	return f.sessions.open(sessionConfig{f.servers, *f.scenario.Load(), w, f.observe})
}

// placeLife is how long a silent client keeps its place in the queue of a fair lock.
const placeLife = 6 * time.Second

// observe handles the events of package lock.
func (f *fleet) observe(e lock.Event) {
	switch e.Kind {
	case lock.Contended:
		if key, known := f.numbers[e.Key]; known && f.promise.inOrder {
			f.oracle.Queued(key, numberOf(e.Owner), e.At)
		}
	case lock.Acquired, lock.GaveUp:
		f.recorder.attempts.Add(int64(e.Attempts))
	case lock.Renewed:
		f.recorder.renew(e.Late)
	}
}

// baseSession returns the session with the connection that a client uses. The sessions
// of smaller numbers must be open.
func (f *fleet) baseSession(number int) (session, error) {
	f.sessions.mu.Lock()
	defer f.sessions.mu.Unlock()
	number %= f.scenario.Load().Conns
	for number >= len(f.sessions.roots) {
		root, err := f.open(newNetwork(&f.commands))
		if err != nil {
			return nil, err
		}
		f.sessions.roots = append(f.sessions.roots, root)
	}
	return f.sessions.roots[number], nil
}

// note records an event.
func (f *fleet) note(e Event) { f.journal.note(e) }

// settle decides about the suspects of the oracle up to until.
func (f *fleet) settle(until time.Time) { f.oracle.Settle(until, f.disturbances.explain) }

// violated records a violation as an event.
func (f *fleet) violated(e oracle.Evidence) {
	side := e.First
	if e.Violation == oracle.Overlapped || e.Violation == oracle.WorkOverlapped || e.Violation == oracle.NumberFell {
		side = e.Second
	}
	f.note(Event{
		At: e.At, Kind: EventKind(e.Violation), Key: e.Key, Client: side.Client, Token: side.Token,
		Fence: side.Fence, Shared: side.Reader, Took: e.Length, Text: e.Cause,
	})
}

// resize starts clients, or tells those with the highest numbers to leave, until n
// stay. It does not wait for them. It does nothing after stop.
func (f *fleet) resize(n int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopped {
		return nil
	}
	staying := 0
	for _, s := range f.slots {
		if s != nil && !s.leaving {
			staying++
		}
	}
	for number := 0; staying < n; number++ {
		if number == len(f.slots) {
			f.slots = append(f.slots, nil)
		}
		if f.slots[number] == nil {
			if err := f.admit(number); err != nil {
				return err
			}
			staying++
		}
	}
	for number := len(f.slots) - 1; staying > n; number-- {
		if s := f.slots[number]; s != nil && !s.leaving {
			s.leaving = true
			s.leave()
			staying--
		}
	}
	return nil
}

// admit starts a client. f.mu must be held.
func (f *fleet) admit(number int) error {
	s := f.scenario.Load()
	c := &client{
		number:  number,
		fleet:   f,
		planner: newPlanner(s.Seed, number),
		faults:  newPendingFaults(),
	}
	root, err := f.baseSession(number)
	if err != nil {
		return err
	}
	c.session = root.as(c.identity())
	if number < s.victims() {
		if err := c.dedicateConn(); err != nil {
			return err
		}
	}
	stay, leave := context.WithCancel(f.ctx)
	f.slots[number] = &slot{leave: leave, client: c}
	f.recorder.join(number)
	f.clients.Go(func() error {
		defer f.freeSlot(number)
		return c.run(f.ctx, stay)
	})
	return nil
}

// victims returns how many clients need their own connections, because a fault of the
// scenario breaks them.
func (s *Scenario) victims() int {
	n := 0
	for _, f := range s.Faults {
		if f.needsWire() {
			n = max(n, f.Clients, f.Client)
		}
	}
	return n
}

// freeSlot frees the slot of a client that has ended.
func (f *fleet) freeSlot(number int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.recorder.part(number)
	f.slots[number].leave()
	f.slots[number] = nil
}

// apply changes clients and rate without a stop.
func (f *fleet) apply(s Scenario) error {
	f.scenario.Store(&s)
	f.schedule.set(s.Rate, time.Now())
	return f.resize(s.Clients)
}

// closeAsync closes a session without a working network in the background.
func (f *fleet) closeAsync(i session) {
	f.tasks.Go(func() {
		_ = i.close() // no goroutine needs the error
	})
}

// stop ends all clients, waits for them, and deletes the keys of the run. It returns
// the first error that prevented a release.
func (f *fleet) stop() error {
	f.mu.Lock()
	f.stopped = true
	f.mu.Unlock()
	now := time.Now()
	f.cancel()
	f.schedule.set(0, now) // no more arrivals
	err := f.clients.Wait()
	f.recorder.stop(time.Now())
	for _, due := range f.schedule.unserved(now) {
		f.recorder.unserved(now.Sub(due))
	}
	f.tasks.Wait()
	f.settle(time.Now())
	f.recorder.spent(f.janitor.spent())
	err = cmp.Or(err, f.hangUp())
	f.janitor.clean()
	return err
}

// hangUp closes the shared sessions.
func (f *fleet) hangUp() error {
	f.sessions.mu.Lock()
	defer f.sessions.mu.Unlock()
	var errs []error
	for _, root := range f.sessions.roots {
		errs = append(errs, root.close())
	}
	return errors.Join(errs...)
}

func (f *fleet) metrics() Metrics {
	now := time.Now()
	m := f.recorder.metrics(now)
	m.Cost.Commands = f.commands.Load()
	now = m.Began.Add(m.Elapsed)
	backlog, oldest := f.schedule.backlog(now)
	m.Backlog = backlog
	m.Fairness.Starved = max(m.Fairness.Starved, now.Sub(oldest))
	m.Violations = f.oracle.Violations(now)
	m.Utilisation, m.Fairness.Streak = f.oracle.Usage(m.Elapsed, now)
	f.disturbances.judge(&m)
	m.Faults = f.outcomes()
	return m
}

// victimsOf picks the clients that a fault affects. If the fault breaks connections, it
// prefers clients with their own connections.
func (f *fleet) victimsOf(fault Fault) []*client {
	f.mu.Lock()
	defer f.mu.Unlock()
	var own, others []*client
	prepared := f.scenario.Load().victims()
	for number, s := range f.slots {
		switch {
		case s == nil || s.leaving:
		case fault.Client == number+1:
			return []*client{s.client}
		case fault.needsWire() && number < prepared:
			own = append(own, s.client)
		default:
			others = append(others, s.client)
		}
	}
	if fault.Client > 0 {
		return nil
	}
	for _, group := range [][]*client{own, others} {
		f.random.Shuffle(len(group), func(i, j int) { group[i], group[j] = group[j], group[i] })
	}
	all := slices.Concat(own, others)
	return all[:min(fault.Clients, len(all))]
}
