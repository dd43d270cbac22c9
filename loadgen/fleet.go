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

	"locktop/lock"
)

// fleet is the clients of a run from one start to one stop, with the oracle and
// the figures of that time. It is used once. All methods may be called from any
// goroutine.
type fleet struct {
	scenario atomic.Pointer[Scenario] // as it is now
	servers  Servers
	opener   func(sessionConfig) (session, error)
	keys     []string
	picker   *picker
	sound    bool   // the lock tells its holder when its time is up
	renewed  bool   // a lease lasts as long as its holder works
	flaw     string // what to blame otherwise
	commands atomic.Int64

	oracle   *oracle
	recorder *recorder
	journal  *eventRing
	schedule *schedule
	history  *History
	janitor  *janitor
	numbers  map[string]int // of keys, by name

	disturbances disturbances

	ctx     context.Context // ends when the fleet is stopped
	cancel  context.CancelFunc
	clients errgroup.Group
	tasks   sync.WaitGroup // everything else that runs

	opening sync.Mutex
	roots   []session // one for each connection, as far as they are needed

	mu      sync.Mutex
	stopped bool
	slots   []*slot // by client number; nil is free
	faults  []strikes
	random  *rand.Rand
}

// slot is a client's place in a fleet.
type slot struct {
	leave   context.CancelFunc
	leaving bool // asked to, but perhaps still holding something
	client  *client
}

// fleetConfig is what a fleet needs besides its scenario.
type fleetConfig struct {
	servers Servers
	open    func(sessionConfig) (session, error)
	tell    func(Event)
	history *History
	shared  bool   // the keys may be somebody else's, too
	over    func() // called once, when the scenario has run its time
}

// newFleet lets a fleet begin.
func newFleet(s Scenario, c fleetConfig) (*fleet, error) {
	ctx, cancel := context.WithCancel(context.Background())
	now := time.Now()
	f := &fleet{
		servers:  c.servers,
		opener:   c.open,
		keys:     s.Keys.names(),
		picker:   newPicker(s.Keys),
		sound:    s.Lock.Kind.Sound(),
		renewed:  s.Lock.Kind.Sound() && !s.Lock.Renew.Off && s.Lock.Renew.Max == 0,
		recorder: newRecorder(now),
		journal:  newEventRing(c.tell),
		schedule: newSchedule(s.Rate, now, s.spacing()),
		history:  c.history,
		ctx:      ctx,
		cancel:   cancel,
		random:   rand.New(rand.NewPCG(s.Seed, 1<<63)),
	}
	if !f.sound {
		f.flaw = string(s.Lock.Kind)
	}
	f.scenario.Store(&s)
	f.faults = make([]strikes, len(s.Faults))
	f.oracle = newOracle(f.keys, 3*s.Lock.TTL)
	f.oracle.report = f.violated
	f.oracle.handoff = f.recorder.handOver
	f.oracle.inOrder = s.Lock.Kind == Fair
	f.oracle.numbered = s.Lock.Fence
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

// spacing is the source of chance of the arrivals, nil if they come evenly.
func (s *Scenario) spacing() *rand.Rand {
	if s.Arrivals != Poisson {
		return nil
	}
	return rand.New(rand.NewPCG(s.Seed, 1<<62))
}

// warm begins the figures: those up to now are of the warm-up.
func (f *fleet) warm() {
	f.recorder.reset(time.Now())
	f.commands.Store(0)
	f.janitor.restart()
	f.oracle.restart()
}

// open returns a first identity over a wire.
func (f *fleet) open(w *network) (session, error) {
	return f.opener(sessionConfig{f.servers, *f.scenario.Load(), w, f.observe})
}

// placeLife is for how long a client that gives no sign of life keeps its place in
// the queue of a fair lock.
const placeLife = 6 * time.Second

// observe takes in what package lock tells.
func (f *fleet) observe(e lock.Event) {
	switch e.Kind {
	case lock.Contended:
		if key, known := f.numbers[e.Key]; known && f.oracle.inOrder {
			f.oracle.queued(key, numberOf(e.Owner), e.At)
		}
	case lock.Acquired:
		f.recorder.attempts.Add(int64(e.Attempts))
	case lock.Renewed:
		f.recorder.renew(e.Late)
	}
}

// baseSession returns the identity that a client's own is made from: it has a connection.
// Those before it have been asked for already.
func (f *fleet) baseSession(number int) (session, error) {
	f.opening.Lock()
	defer f.opening.Unlock()
	number %= f.scenario.Load().Conns
	for number >= len(f.roots) {
		root, err := f.open(newNetwork(&f.commands))
		if err != nil {
			return nil, err
		}
		f.roots = append(f.roots, root)
	}
	return f.roots[number], nil
}

// note puts an event into the journal.
func (f *fleet) note(e Event) { f.journal.note(e) }

// settle decides what is suspected of the lock up to a moment.
func (f *fleet) settle(until time.Time) { f.oracle.settle(until, f.disturbances.explain) }

// violated puts a violation into the journal.
func (f *fleet) violated(e Evidence) {
	side := e.First
	if e.Violation == Overlapped || e.Violation == WorkOverlapped || e.Violation == NumberFell {
		side = e.Second
	}
	f.note(Event{
		At: e.At, Kind: e.Violation, Key: e.Key, Client: side.Client, Token: side.Token,
		Fence: side.Fence, Shared: side.Reader, Took: e.Length, Text: e.Cause,
	})
}

// resize adds clients, or asks those with the highest numbers to leave, until n
// stay. It waits for none of them, and does nothing once the fleet is stopped.
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

// admit lets a client begin. The fleet's mutex must be held.
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

// victims returns how many clients need connections of their own, because a
// fault of the scenario will cut them.
func (s *Scenario) victims() int {
	n := 0
	for _, f := range s.Faults {
		if f.needsWire() {
			n = max(n, f.Clients, f.Client)
		}
	}
	return n
}

// freeSlot frees the seat of a client that has ended.
func (f *fleet) freeSlot(number int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.recorder.part(number)
	f.slots[number].leave()
	f.slots[number] = nil
}

// apply changes what can be changed without a stop.
func (f *fleet) apply(s Scenario) error {
	f.scenario.Store(&s)
	f.schedule.set(s.Rate, time.Now())
	return f.resize(s.Clients)
}

// closeAsync ends an identity that has lost its network. It may take a while.
func (f *fleet) closeAsync(i session) {
	f.tasks.Go(func() {
		_ = i.close() // whatever it says, there is nobody left to do it
	})
}

// stop ends all clients, waits for them, removes the keys of the run, and
// returns the first error that kept a lease from being released.
func (f *fleet) stop() error {
	f.mu.Lock()
	f.stopped = true
	f.mu.Unlock()
	now := time.Now()
	f.cancel()
	f.schedule.set(0, now) // nobody arrives any more
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

// hangUp ends what the clients share.
func (f *fleet) hangUp() error {
	f.opening.Lock()
	defer f.opening.Unlock()
	var errs []error
	for _, root := range f.roots {
		errs = append(errs, root.close())
	}
	return errors.Join(errs...)
}

func (f *fleet) metrics() Metrics {
	now := time.Now()
	m := f.recorder.metrics(now)
	m.Commands = f.commands.Load()
	now = m.Began.Add(m.Elapsed)
	backlog, oldest := f.schedule.backlog(now)
	m.Backlog = backlog
	m.Fairness.Starved = max(m.Fairness.Starved, now.Sub(oldest))
	f.oracle.fill(&m, now)
	f.disturbances.judge(&m)
	m.Faults = f.outcomes()
	return m
}

// victimsOf picks the clients that a fault strikes: those with connections of
// their own first, if the fault breaks connections.
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
