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

	"locktop/loadgen/external"
	"locktop/loadgen/oracle"
	"locktop/loadgen/witness"
)

// fleet is the set of clients of a run from one start to one stop, with the oracle and
// the metrics. It is used once. All methods are safe for concurrent use.
type fleet struct {
	fleetConfig
	scenario atomic.Pointer[Scenario] // current
	keys     keySet
	promise  promise
	greeted  chan struct{} // closed when all client processes have started
	sessions baseSessions
	schedule *schedule

	oracle       *oracle.Oracle
	recorder     *recorder
	events       *eventRing
	janitor      *janitor
	disturbances disturbances
	faults       *faultLog
	observers    []func(step, *round) // of the steps of all clients; told in order, by the goroutine of the client

	ctx     context.Context // ends with stop
	cancel  context.CancelFunc
	clients clientPool
	tasks   sync.WaitGroup // goroutines that are not clients
}

// promise is what a kind of lock promises to its holders.
type promise struct {
	sound    bool   // the lock notifies its holder at the end of the lease
	renewed  bool   // a lease lasts as long as the work of its holder
	inOrder  bool   // the lock serves waiters in order of arrival
	numbered bool   // the lock has fences
	flaw     string // the cause of violations if the lock is not sound
}

// promise returns what the lock, or the hello of its client process, promises.
func (l Lock) promise(h external.Hello) promise {
	switch {
	case l.Kind == Exec:
		return promise{sound: h.Tells, renewed: h.Renews && !l.Renew.Off, inOrder: l.Order, numbered: h.Fences}
	case !l.Kind.Sound():
		return promise{flaw: string(l.Kind)}
	}
	return promise{sound: true, renewed: !l.Renew.Off && l.Renew.Max == 0, inOrder: l.Kind == Fair, numbered: l.Fence}
}

// baseSessions are the sessions that clients share: one per connection.
type baseSessions struct {
	commands atomic.Int64 // of all sessions of the fleet

	mu    sync.Mutex
	roots []session // opened on demand
}

// fleetConfig is the configuration of a fleet besides its scenario.
type fleetConfig struct {
	servers  Servers
	openBase func(sessionConfig) (session, error) // opens a base session
	tell     []func(Event)
	history  *oracle.History
	witness  *witness.Witness // nil: there is none
	role     role
	shared   bool            // the user chose the prefix: others may use keys of the same names
	hello    external.Hello  // of a client process; zero for all kinds but Exec
	closing  context.Context // its end cancels the start
	expired  func()          // called once, at the end of the duration
}

// newFleet starts a fleet.
func newFleet(s Scenario, c fleetConfig) (*fleet, error) {
	ctx, cancel := context.WithCancel(context.Background())
	now := time.Now()
	var distances *rand.Rand // of arrivals; nil: they are even
	if s.Arrivals == Poisson {
		distances = rand.New(rand.NewPCG(s.Seed, 1<<62+uint64(c.role.first())))
	}
	f := &fleet{
		fleetConfig: c,
		keys:        newKeySet(s.Keys, s.Lock.span()),
		promise:     s.Lock.promise(c.hello),
		greeted:     make(chan struct{}),
		recorder:    newRecorder(now, c.role),
		events:      &eventRing{tell: c.tell},
		schedule:    newSchedule(s.Rate, now, distances),
		faults:      newFaultLog(s.Faults),
		ctx:         ctx,
		cancel:      cancel,
	}
	f.clients.first = c.role.first()
	f.clients.random = rand.New(rand.NewPCG(s.Seed, 1<<63+uint64(f.clients.first)))
	f.scenario.Store(&s)
	checks := oracle.Config{
		Keys: f.keys.names[:s.Keys.N], Limit: s.Lock.Limit(), Sets: s.Lock.span() > 1, TTL: s.Lock.TTL, Patience: 3 * s.Lock.TTL, InOrder: f.promise.inOrder, Numbered: f.promise.numbered, Claimed: s.Lock.Kind == Exec,
		Report: f.violated, Handoff: func(gap time.Duration) { f.recorder.update(func(*Metrics) { f.recorder.handoff.add(gap) }) },
	}
	if s.Lock.Kind.Quorum() {
		checks.Servers = len(c.servers.all(s.Lock.Kind))
	}
	f.oracle = oracle.New(c.role.sees(checks))
	f.disturbances.oracle, f.disturbances.silent = f.oracle, make(map[int]*silent)
	f.janitor = newJanitor(s, c, f.oracle)
	// The oracle is the first observer: it makes the hold that the history records, and what it reports
	// is an event before that of the step. The recorder counts a step before an event tells of it. The
	// janitor and the witness wait for a server, and are the last. Most runs need only the first three.
	f.observers = []func(step, *round){f.judge, f.recorder.observe, f.events.observe}
	if c.history != nil {
		f.observers = append(f.observers, func(s step, r *round) {
			if s == freed {
				f.history.Record(r.hold, r.left, r.how == released)
			}
		})
	}
	if f.janitor.prepared != nil {
		f.observers = append(f.observers, f.janitor.observe)
	}
	if c.witness != nil {
		f.observers = append(f.observers, f.show)
	}
	if err := f.janitor.claim(ctx); err != nil {
		cancel()
		return nil, err
	}
	err := f.clients.resize(c.role.clients(s), f.admit)
	f.greet()
	f.tasks.Go(func() { f.janitor.work(ctx) })
	f.tasks.Go(func() { f.watch(ctx) })
	if err != nil {
		return nil, errors.Join(err, f.stop())
	}
	f.tasks.Go(func() { f.runSteps(c.expired) })
	return f, nil
}

// greet waits until all client processes have said hello or failed, so that their start is not a
// part of the run, and lets the clients begin.
func (f *fleet) greet() {
	stop := context.AfterFunc(f.closing, f.cancel)
	defer stop()
	for _, c := range f.clients.all {
		if c == nil || c.network == nil {
			continue // it could not start, or is no process
		}
		if p := c.network.process.Load(); p != nil {
			_, _ = p.Hello(f.ctx) // the first attempt of the client reports the error
		}
	}
	f.recorder.reset(time.Now())
	close(f.greeted)
}

// warm ends the warm-up: it resets the metrics.
func (f *fleet) warm() {
	f.recorder.reset(time.Now())
	f.sessions.commands.Store(0)
	f.janitor.resetCPU(context.Background())
	f.oracle.Restart()
}

// open returns the base session of a network.
func (f *fleet) open(w *network) (session, error) {
	return f.openBase(sessionConfig{f.servers, *f.scenario.Load(), w, f.observe})
}

// baseSession returns the session with the connection that a client uses. The sessions
// of smaller numbers must be open.
func (f *fleet) baseSession(number int) (session, error) {
	f.sessions.mu.Lock()
	defer f.sessions.mu.Unlock()
	number %= f.scenario.Load().Conns
	for number >= len(f.sessions.roots) {
		root, err := f.open(newNetwork(&f.sessions.commands))
		if err != nil {
			return nil, err
		}
		f.sessions.roots = append(f.sessions.roots, root)
	}
	return f.sessions.roots[number], nil
}

// violated records a violation as an event.
func (f *fleet) violated(e oracle.Evidence) {
	if e.Violation == oracle.Overlap {
		f.recorder.update(func(*Metrics) { f.recorder.count(time.Now(), func(now *Second) { now.Overlaps++ }) })
	}
	side := e.First
	if e.Violation == oracle.Overlap || e.Violation == oracle.WorkOverlap || e.Violation == oracle.FenceOrder {
		side = e.Second
	}
	f.events.note(Event{
		At: e.At, Kind: EventKind(e.Violation), Key: e.Key, Client: side.Client, Token: side.Token,
		Fence: side.Fence, Shared: side.Reader, Took: e.Length, Text: e.Cause,
	})
}

// clientPool holds the clients of a fleet. All methods are safe for concurrent use.
type clientPool struct {
	running errgroup.Group

	mu     sync.Mutex
	closed bool
	first  int       // number of the client in the first place
	all    []*client // by place; nil = free
	random *rand.Rand
}

// resize starts clients with admit, or tells those with the highest numbers to leave,
// until n stay. It does not wait for them. It does nothing if the pool is closed.
func (p *clientPool) resize(n int, admit func(place int) (*client, error)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	staying := 0
	for _, c := range p.all {
		if c != nil && c.stay.Err() == nil {
			staying++
		}
	}
	for place := 0; staying < n; place++ {
		if place == len(p.all) {
			p.all = append(p.all, nil)
		}
		if p.all[place] == nil {
			c, err := admit(place)
			if err != nil {
				return err
			}
			p.all[place] = c
			staying++
		}
	}
	for place := len(p.all) - 1; staying > n; place-- {
		if c := p.all[place]; c != nil && c.stay.Err() == nil {
			c.dismiss()
			staying--
		}
	}
	return nil
}

// wake makes all clients look for what has changed in the scenario.
func (p *clientPool) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.all {
		if c != nil {
			c.faults.wake()
		}
	}
}

// free frees the place of a client that has ended.
func (p *clientPool) free(place int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all[place].dismiss()
	p.all[place] = nil
}

// victims picks the clients that a fault affects. If the fault breaks connections, it
// prefers the clients in the first places, below prepared, which have their own connections. If it strikes
// inside a hold, it prefers those that hold a lock now.
func (p *clientPool) victims(fault Fault, prepared int, holds func(*client) bool) []*client {
	p.mu.Lock()
	defer p.mu.Unlock()
	var own, others []*client
	for place, c := range p.all {
		switch {
		case c == nil || c.stay.Err() != nil:
		case fault.Client == p.first+place+1:
			return []*client{c}
		case fault.needsOwnConns() && place < prepared:
			own = append(own, c)
		default:
			others = append(others, c)
		}
	}
	if fault.Client > 0 {
		return nil
	}
	for _, group := range [][]*client{own, others} {
		p.random.Shuffle(len(group), func(i, j int) { group[i], group[j] = group[j], group[i] })
		if fault.Waits() {
			slices.SortStableFunc(group, func(a, b *client) int { return map[bool]int{true: 1}[holds(b)] - map[bool]int{true: 1}[holds(a)] })
		}
	}
	all := slices.Concat(own, others)
	return all[:min(fault.Clients, len(all))]
}

// admit starts a client.
func (f *fleet) admit(place int) (*client, error) {
	s := f.scenario.Load()
	number := f.clients.first + place
	c := &client{
		number: number,
		place:  place,
		fleet:  f,
		random: rand.New(rand.NewPCG(s.Seed, uint64(number))),
		faults: &pendingFaults{notify: make(chan struct{}, 1)},
	}
	if s.Lock.Kind != Exec {
		root, err := f.baseSession(place)
		if err != nil {
			return nil, err
		}
		c.session = root.as(c.identity())
	}
	if s.Lock.Kind == Exec || place < s.victims() {
		if err := c.dedicateConn(); err != nil {
			return nil, err
		}
	}
	c.stay, c.dismiss = context.WithCancel(f.ctx)
	f.recorder.clientJoined(number)
	f.clients.running.Go(func() error {
		defer f.clients.free(place)
		defer f.recorder.update(func(*Metrics) {
			f.recorder.of(number).present = false
			f.recorder.count(time.Now(), func(*Second) { f.recorder.timeline.clients-- })
		})
		return c.run()
	})
	return c, nil
}

// victims returns how many clients need their own connections, because a fault of the
// scenario breaks them.
func (s *Scenario) victims() int {
	n := 0
	for _, f := range s.Faults {
		if f.needsOwnConns() {
			n = max(n, f.Clients)
			if f.Client > 0 {
				n = max(n, (f.Client-1)%MaxClients+1) // the clients of an agent are counted from a multiple on
			}
		}
	}
	return n
}

// apply changes clients and rate without a stop.
func (f *fleet) apply(s Scenario) error {
	if s.Lock.Kind == Exec {
		if err := s.offeredBy(f.hello); err != nil {
			return err
		}
	}
	if before := f.scenario.Swap(&s); before.Hold != s.Hold {
		f.clients.wake()
	}
	f.schedule.set(s.Rate, time.Now())
	return f.clients.resize(f.role.clients(s), f.admit)
}

// stop ends all clients, waits for them, and deletes the keys of the run. It returns
// the first error that prevented a release.
func (f *fleet) stop() error {
	f.clients.mu.Lock()
	f.clients.closed = true
	f.clients.mu.Unlock()
	now := time.Now()
	f.cancel()
	f.schedule.set(0, now) // no more arrivals
	err := f.clients.running.Wait()
	ended, unserved := time.Now(), f.schedule.unserved(now)
	f.recorder.update(func(m *Metrics) {
		f.recorder.ended = ended
		for _, due := range unserved {
			m.Fairness.Starved = max(m.Fairness.Starved, now.Sub(due))
			f.recorder.wait.addCensored(now.Sub(due))
		}
	})
	f.tasks.Wait()
	f.oracle.Settle(time.Now())
	f.history.Cut(f.keys.names, f.oracle.Losses())
	used := f.janitor.cpuUsed()
	f.recorder.update(func(m *Metrics) { m.Cost.CPU = used })
	for _, root := range f.sessions.roots {
		err = cmp.Or(err, root.close())
	}
	f.janitor.clean()
	return err
}

func (f *fleet) metrics() Metrics {
	now := time.Now()
	m := f.recorder.metrics(now)
	m.Cost.Commands = f.sessions.commands.Load()
	now = m.Began.Add(m.Elapsed)
	backlog, oldest := f.schedule.backlog(now)
	m.Backlog = backlog
	m.Fairness.Starved = max(m.Fairness.Starved, now.Sub(oldest))
	m.Violations = f.oracle.Violations(now)
	m.Violations.StuckKey.Unknown = f.role.agent > 0
	m.Violations.Unnotified.Unknown, m.Violations.UnexplainedLoss.Unknown = !f.promise.sound, !f.promise.renewed
	m.Utilisation, m.Fairness.Streak = f.oracle.Usage(m.Elapsed, now)
	f.disturbances.addTo(&m)
	m.Library = f.hello.Name
	m.Faults = f.faults.outcomes(f.scenario.Load().Clients)
	return m
}
