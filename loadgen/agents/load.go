package agents

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/humanize"
	"locktop/loadgen"
	"locktop/loadgen/witness"
)

// Config describes a load by agents.
type Config struct {
	Control  redis.UniversalClient // the control server; the caller closes it
	Servers  loadgen.Servers       // the servers that are loaded, as the coordinator reaches them
	Target   Target                // the same servers, for the agents
	Scenario loadgen.Scenario
	Agents   int
	Witness  bool          // the clients note their holds on the control server
	Patience time.Duration // time to wait for agents; 0 = 1 min
	Note     func(string)  // tells the user what happens, in one line; nil: nothing is told
}

// Load is a load by agents, seen by its coordinator. It can be started, changed while it
// runs, stopped, and started again. All methods are safe for concurrent use.
type Load struct {
	config Config

	closing context.Context // ends with Close
	close   context.CancelFunc

	changing sync.Mutex // held during start, stop and apply

	mu       sync.Mutex // guards what follows
	scenario loadgen.Scenario
	prefix   string                  // that the user chose; "" = a random one for each start
	newest   *session                // nil before the first start
	opening  *session                // of a start that waits for agents; nil: there is none
	cancel   context.CancelCauseFunc // of that start
}

// New returns a load that is not started. It returns an error if the scenario cannot be
// divided between the agents.
func New(c Config) (*Load, error) {
	if _, err := c.Scenario.Shares(c.Agents); err != nil {
		return nil, err
	}
	c.Patience = cmp.Or(c.Patience, time.Minute)
	if c.Note == nil {
		c.Note = func(string) {}
	}
	l := &Load{config: c, prefix: c.Scenario.Keys.Prefix, scenario: c.Scenario.WithDefaults().Seen()}
	l.closing, l.close = context.WithCancel(context.Background())
	return l, nil
}

// Start waits for the agents and starts the load on all of them, at the same time. It
// returns an error if too few come in time, or if one refuses. It does nothing if the load
// is running.
func (l *Load) Start() error {
	l.changing.Lock()
	defer l.changing.Unlock()
	return l.start()
}

func (l *Load) start() error {
	if l.closing.Err() != nil {
		return loadgen.ErrClosed
	}
	if s := l.current(); s != nil && !s.finished() {
		return nil
	}
	l.mu.Lock()
	scenario := l.scenario
	if l.prefix == "" && l.newest != nil {
		scenario.Keys.Prefix = ""
		scenario = scenario.WithDefaults()
	}
	l.mu.Unlock()
	s, err := l.open(scenario)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.scenario, l.newest = scenario, s
	return nil
}

func (l *Load) current() *session {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.newest
}

// Done returns a channel that is closed when the newest start has stopped. Before the first
// start it is nil.
func (l *Load) Done() <-chan struct{} {
	if s := l.current(); s != nil {
		return s.over
	}
	return nil
}

// Stop ends the clients of all agents, deletes the keys of the run, and waits for this. A
// start that waits for agents ends with an error.
func (l *Load) Stop() error {
	l.mu.Lock()
	if l.opening != nil {
		l.cancel(ErrStartCancelled)
	}
	l.mu.Unlock()
	l.changing.Lock()
	defer l.changing.Unlock()
	return l.stop()
}

func (l *Load) stop() error {
	s := l.current()
	if s == nil {
		return nil
	}
	s.ask()
	<-s.over
	return s.failed
}

// CancelStart ends a start that waits for agents with an error. Later starts fail, too.
func (l *Load) CancelStart() { l.close() }

// Close stops the load for good. A start that is under way ends with an error.
func (l *Load) Close() error {
	l.close()
	return l.Stop()
}

// Apply changes the scenario. Clients, rate, hold, think, patience and reads change
// immediately. For any other change, a running load stops and starts again.
func (l *Load) Apply(scenario loadgen.Scenario) error {
	if err := l.Check(scenario); err != nil {
		return err
	}
	l.changing.Lock()
	defer l.changing.Unlock()
	old := l.Scenario()
	if scenario.Keys.Prefix != "" && scenario.Keys.Prefix != old.Keys.Prefix {
		l.prefix = scenario.Keys.Prefix
	}
	scenario = scenario.WithDefaults().Seen()
	s := l.current()
	running := s != nil && !s.finished()
	if running && loadgen.Live(old, scenario) {
		if err := s.order(order{Order: orderScenario, Scenario: string(scenario.Marshal())}); err != nil {
			return fmt.Errorf("tell the agents: %w", err)
		}
		l.set(scenario)
		return nil
	}
	if running {
		if err := l.stop(); err != nil {
			return err
		}
	}
	l.set(scenario)
	if running {
		return l.start()
	}
	return nil
}

// Check returns an error if the agents cannot run the scenario.
func (l *Load) Check(scenario loadgen.Scenario) error {
	if _, err := scenario.Shares(l.config.Agents); err != nil {
		return err
	}
	run, err := loadgen.New(l.config.Servers, scenario)
	if err != nil {
		return err
	}
	return run.Close() // it has not started
}

func (l *Load) set(s loadgen.Scenario) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.scenario = s
}

// Inject applies a fault now: of clients by the agents, of servers by the coordinator. A
// fault of one random client strikes one of the agents that run, at random.
func (l *Load) Inject(f loadgen.Fault) error {
	s := l.current()
	switch {
	case s == nil || s.finished():
		return fmt.Errorf("inject %s: the clients are not running", f.Kind)
	case f.Agent > l.config.Agents:
		return fmt.Errorf("inject %s: there is no agent %d", f.Kind, f.Agent)
	}
	return s.inject(f)
}

// Scenario returns the scenario with all defaults.
func (l *Load) Scenario() loadgen.Scenario {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.scenario
}

// Metrics returns the sums of all agents. They are up to 1 s old.
func (l *Load) Metrics() loadgen.Metrics {
	if s := l.current(); s != nil {
		return s.metrics()
	}
	return loadgen.Metrics{}
}

// Histograms returns the distributions of all agents, nil before the first start.
func (l *Load) Histograms() *loadgen.Histograms {
	s := l.current()
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.merger.Histograms()
}

// Witness returns the results of the witness, nil if there is none.
func (l *Load) Witness() *witness.Results {
	s := l.current()
	if s == nil || s.witness == nil {
		return nil
	}
	r := s.witness.Results()
	return &r
}

// Events returns the faults, the first violations after each fault and the losses of agents
// in the newest start, after number seen. Times are those of the control server. All events
// of an agent are in its own file only.
func (l *Load) Events(seen uint64) []loadgen.Event {
	s := l.current()
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.noted - uint64(len(s.events)) // number of the newest event that is forgotten
	return slices.Clone(s.events[min(max(seen, known)-known, uint64(len(s.events))):])
}

// Beside returns nil: agents do not compare locks.
func (l *Load) Beside() []loadgen.Compared { return nil }

// Agents returns the state of each agent of the newest start, by number. While a start
// waits for agents, they are those of this start.
func (l *Load) Agents() []loadgen.AgentState {
	l.mu.Lock()
	s := cmp.Or(l.opening, l.newest)
	l.mu.Unlock()
	if s != nil {
		return s.states()
	}
	return nil
}

// Incomplete returns a sentence for each reason why the figures of the newest start are
// not those of all agents for the whole time.
func (l *Load) Incomplete() []string {
	s := l.current()
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.incomplete)
}

// member is an agent of a session.
type member struct {
	name    string
	clock   time.Duration
	ready   bool
	stopped bool
	lost    bool
	silent  time.Duration // time without a message, while the control server answered
	heard   time.Time
}

// session is one run of a load, from a start to a stop.
type session struct {
	config   Config
	control  control
	scenario loadgen.Scenario
	keeper   *loadgen.Run
	witness  *witness.Witness // nil: there is none
	began    time.Time

	asked  chan struct{} // closed by ask
	asking sync.Once
	over   chan struct{} // closed at the end
	faults sync.WaitGroup
	failed error // after over is closed

	mu         sync.Mutex // guards what follows
	merger     loadgen.Merger
	members    []member // by number less 1
	incomplete []string
	struck     []int           // how often each fault of servers of the scenario occurred
	events     []loadgen.Event // the newest ones, see [Load.Events]
	noted      uint64          // number of events so far
	behind     time.Duration   // what must be added to the clock of this machine to get the control server's
	ended      bool
}

// open plans a run, waits for its agents, and starts them.
func (l *Load) open(scenario loadgen.Scenario) (started *session, err error) {
	s := &session{
		config: l.config, control: control{l.config.Control, rand.Text()[:12]}, scenario: scenario,
		members: make([]member, l.config.Agents), struck: make([]int, len(scenario.Faults)),
		asked: make(chan struct{}), over: make(chan struct{}),
	}
	defer func() {
		if err != nil {
			s.abandon(err)
		}
	}()
	ctx := l.beginOpening(s)
	defer l.endOpening()
	if l.config.Witness {
		soon, cancel := context.WithTimeout(context.Background(), requestTime) // Stop would leave a key without a TTL
		defer cancel()
		if s.witness, err = witness.Open(soon, l.config.Control, s.control.run, scenario.Lock.Limit()); err != nil {
			return nil, err
		}
	}
	if err := s.keep(); err != nil {
		return nil, err
	}
	if err := s.publish(ctx); err != nil {
		return nil, fmt.Errorf("write the plan to the control server: %w", err)
	}
	last, err := s.gather(ctx)
	if err != nil {
		return nil, err
	}
	behind, err := clockBehind(ctx, s.control.rdb, time.Now)
	if err != nil {
		return nil, fmt.Errorf("read the clock of the control server: %w", err)
	}
	s.mu.Lock()
	s.behind = behind
	s.mu.Unlock()
	s.began = time.Now().Add(startIn)
	if err := s.order(order{Order: orderStart, At: s.began.Add(behind).Round(0)}); err != nil {
		return nil, fmt.Errorf("start the agents: %w", err)
	}
	go s.work(last)
	s.faults.Go(s.strikeFaults)
	return s, nil
}

// beginOpening makes s the session that waits for agents. The context ends with Stop and
// Close.
func (l *Load) beginOpening(s *session) context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ctx context.Context
	ctx, l.cancel = context.WithCancelCause(l.closing)
	l.opening = s
	return ctx
}

func (l *Load) endOpening() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cancel(nil)
	l.opening = nil
}

// startIn is the time from the order to start to the start. It is long enough for the order
// to reach all agents.
const startIn = time.Second

// keep starts the run that claims the prefix, applies faults of servers and deletes the keys.
func (s *session) keep() error {
	own := s.scenario
	own.Faults, own.Stages, own.Thresholds, own.Expect, own.Duration, own.Warmup = nil, nil, nil, nil, 0, 0
	keeper, err := loadgen.New(s.config.Servers, own)
	if err != nil {
		return err
	}
	s.keeper = keeper
	keeper.Keep()
	keeper.Witness(s.witness) // its faults excuse overlaps
	keeper.Listen(s.onServerFault)
	return keeper.Start()
}

// publish writes the plan and the tickets.
func (s *session) publish(ctx context.Context) error {
	text, err := json.Marshal(plan{
		Protocol: Protocol, Agents: s.config.Agents, Target: s.config.Target, Scenario: string(s.scenario.Marshal()), Witness: s.witness != nil,
	})
	if err != nil {
		return err
	}
	pipe := s.control.rdb.Pipeline()
	pipe.Set(ctx, s.control.key("plan"), text, planLife)
	for _, t := range s.tickets() {
		pipe.RPush(ctx, tickets, t)
	}
	pipe.Expire(ctx, tickets, streamLife)
	_, err = pipe.Exec(ctx)
	return err
}

func (s *session) tickets() []string {
	all := make([]string, s.config.Agents)
	for i := range all {
		text, _ := json.Marshal(ticket{s.control.run, i + 1}) // it has no field that can fail
		all[i] = string(text)
	}
	return all
}

// beatPlan keeps the plan: it tells the agents that the coordinator is there.
func (s *session) beatPlan(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	return s.control.rdb.PExpire(ctx, s.control.key("plan"), planLife).Err()
}

// pollFor is how long one request waits for messages.
const pollFor = 200 * time.Millisecond

// ErrStartCancelled is the error of a start that [Load.Stop] ends while it waits for agents.
var ErrStartCancelled = errors.New("the start was cancelled before all agents had come")

// gather waits until all agents are ready. It returns the ID of the last message.
func (s *session) gather(ctx context.Context) (last string, err error) {
	last = "0"
	s.config.Note(fmt.Sprintf("waiting for %s", humanize.Plural(s.config.Agents, "agent")))
	for deadline := time.Now().Add(s.config.Patience); ; {
		if err := s.beatPlan(ctx); err != nil && ctx.Err() == nil {
			return last, fmt.Errorf("reach the control server: %w", err)
		}
		texts, next, err := s.control.read(ctx, messages, last, pollFor)
		if ctx.Err() != nil {
			return last, context.Cause(ctx)
		}
		if err != nil {
			return last, fmt.Errorf("reach the control server: %w", err)
		}
		last = next
		for _, text := range texts {
			if err := s.join(text); err != nil {
				return last, err
			}
		}
		ready := s.ready()
		switch {
		case ready == s.config.Agents:
			return last, nil
		case time.Now().After(deadline):
			return last, fmt.Errorf("%d of %s came within %s: start locktop agent --control with this control server on more machines",
				ready, humanize.Plural(s.config.Agents, "agent"), humanize.Setting(s.config.Patience))
		}
	}
}

// join handles a message before the start.
func (s *session) join(text string) error {
	var m message
	if json.Unmarshal([]byte(text), &m) != nil || m.Agent < 1 || m.Agent > len(s.members) {
		return nil // not of this program
	}
	switch m.Message {
	case messageRefused:
		return fmt.Errorf("agent %s refuses: %s", m.Name, m.Error)
	case messageReady:
		s.mu.Lock()
		one := &s.members[m.Agent-1]
		one.ready, one.name, one.clock, one.heard = true, m.Name, m.Clock, time.Now()
		s.mu.Unlock()
		s.config.Note(fmt.Sprintf("agent %d of %d: %s, its clock is %s", m.Agent, len(s.members), m.Name, offset(m.Clock)))
	}
	return nil
}

// offset describes the difference of a clock to the control server's.
func offset(behind time.Duration) string {
	switch {
	case behind.Abs() < time.Millisecond:
		return "right to 1 ms"
	case behind > 0:
		return humanize.Precise(behind) + " behind"
	}
	return humanize.Precise(-behind) + " ahead"
}

func (s *session) ready() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, one := range s.members {
		if one.ready {
			n++
		}
	}
	return n
}

// order sends an order to all agents.
func (s *session) order(o order) error { return s.control.send(context.Background(), orders, o) }

// ask asks the agents to stop.
func (s *session) ask() {
	s.asking.Do(func() { close(s.asked) })
}

func (s *session) finished() bool {
	select {
	case <-s.over:
		return true
	default:
		return false
	}
}

// work reads the messages of the agents until all have stopped or are lost.
func (s *session) work(last string) {
	ctx := context.Background()
	answered, beaten, told := time.Now(), time.Now(), false
	for !s.allGone() {
		select {
		case <-s.asked:
			if !told {
				told = s.order(order{Order: orderStop}) == nil
			}
		default:
		}
		if time.Since(beaten) > beat && s.beatPlan(ctx) == nil {
			beaten = time.Now()
		}
		asked := time.Now()
		texts, next, err := s.control.read(ctx, messages, last, pollFor)
		if err != nil {
			if time.Since(answered) > controlGone+lostAfter {
				s.giveUp(fmt.Sprintf("The control server has not answered for %s: %v.", humanize.Setting(controlGone), err))
				break
			}
			time.Sleep(pollFor)
			continue
		}
		answered, last = time.Now(), next
		for _, text := range texts {
			s.receive(text)
		}
		if len(texts) > 0 {
			s.control.trim(messages, last)
		}
		if time.Now().After(s.began) {
			s.age(min(time.Since(asked), 2*pollFor))
		}
	}
	s.finish()
}

// gone reports whether the clients of the member have ended, as far as is known.
func (one member) gone() bool { return one.stopped || one.lost }

// allGone reports whether no agent runs any more.
func (s *session) allGone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !slices.ContainsFunc(s.members, func(one member) bool { return !one.gone() })
}

// gone reports whether an agent does not run any more.
func (s *session) gone(number int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.members[number-1].gone()
}

// anyAgent returns the number of a random agent that runs, 1 if there is none.
func (s *session) anyAgent() int {
	for _, i := range mathrand.Perm(len(s.members)) {
		if !s.gone(i + 1) {
			return i + 1
		}
	}
	return 1
}

// receive handles a message of an agent that runs.
func (s *session) receive(text string) {
	var m message
	if json.Unmarshal([]byte(text), &m) != nil || m.Agent < 1 || m.Agent > len(s.members) || m.Snapshot == nil {
		return // not of this program, or from before the start
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	one := &s.members[m.Agent-1]
	if one.lost {
		return // it is counted as crashed
	}
	err := s.merger.Add(m.Agent, *m.Snapshot)
	if s.witness != nil {
		err = errors.Join(err, s.witness.Merge(m.Agent, m.Unseen, m.Trips))
	}
	if err != nil {
		s.miss(fmt.Sprintf("A message of agent %d could not be read: %v.", m.Agent, err))
	}
	one.silent, one.heard = 0, time.Now()
	for _, e := range m.Events[:min(len(m.Events), maxHighlights)] {
		e.At = e.At.Add(m.Snapshot.ClockBehind)
		s.note(loadgen.Event(e))
	}
	if m.Message == messageStopped {
		one.stopped = true
		if m.Error != "" {
			s.miss(fmt.Sprintf("Agent %d (%s) stopped at %s: %s.", m.Agent, one.name, s.clock(), strings.TrimSuffix(m.Error, ".")))
		}
	}
}

// clock returns the time since the start, like 00:41.
func (s *session) clock() string {
	d := max(time.Since(s.began), 0)
	return fmt.Sprintf("%02d:%02d", int(d.Minutes()), int(d.Seconds())%60)
}

// age adds d to the silence of all agents, and finds those that are lost.
func (s *session) age(d time.Duration) {
	s.mu.Lock()
	var lost []int
	for i := range s.members {
		one := &s.members[i]
		if one.gone() {
			continue
		}
		if one.silent += d; one.silent > lostAfter {
			one.lost = true
			lost = append(lost, i+1)
			s.merger.Lost(i + 1)
			s.miss(fmt.Sprintf("The run is incomplete: agent %d (%s) was lost at %s.", i+1, one.name, s.clock()))
		}
	}
	s.mu.Unlock()
	for _, number := range lost {
		_ = s.order(order{Order: orderLost, Agent: number}) // it also stops when the plan is gone
	}
}

// giveUp ends the run without the agents: those that have not stopped are lost.
func (s *session) giveUp(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.members {
		if one := &s.members[i]; !one.stopped && !one.lost {
			one.lost = true
			s.merger.Lost(i + 1)
		}
	}
	s.miss(why)
}

// strikeFaults applies the faults of servers of the scenario.
func (s *session) strikeFaults() {
	var all []int
	for i, f := range s.scenario.Faults {
		if f.Kind.OnServers() {
			all = append(all, i)
		}
	}
	slices.SortStableFunc(all, func(a, b int) int { return cmp.Compare(s.scenario.Faults[a].At, s.scenario.Faults[b].At) })
	for _, i := range all {
		f := s.scenario.Faults[i]
		due := time.NewTimer(time.Until(s.began.Add(f.At - announce)))
		select {
		case <-due.C:
		case <-s.asked:
			due.Stop()
			return
		case <-s.over:
			due.Stop()
			return
		}
		if err := s.strike(f); err != nil {
			s.config.Note(err.Error())
			continue
		}
		s.mu.Lock()
		s.struck[i]++
		s.mu.Unlock()
	}
}

// announce is the time between the order that tells agents of a fault of servers and the
// fault.
const announce = 300 * time.Millisecond

// strike tells the agents of a fault of servers, and applies it.
func (s *session) strike(f loadgen.Fault) error {
	if err := s.order(order{Order: orderServerFault, Fault: &f}); err != nil {
		return fmt.Errorf("inject %s: tell the agents: %w", f.Kind, err)
	}
	time.Sleep(announce)
	if err := s.keeper.Inject(f); err != nil {
		return errors.Join(err, s.order(order{Order: orderServerFault, Fault: &f, Over: true}))
	}
	return nil
}

// onServerFault notes an event of the keeper, and tells the agents of the end of a fault.
func (s *session) onServerFault(e loadgen.Event) {
	if e.Kind != loadgen.FaultBegan && e.Kind != loadgen.FaultEnded {
		return
	}
	s.mu.Lock()
	e.At = e.At.Add(s.behind)
	s.note(e)
	s.mu.Unlock()
	if e.Kind == loadgen.FaultEnded {
		s.faults.Go(func() {
			_ = s.order(order{Order: orderServerFault, Fault: &loadgen.Fault{Kind: e.Fault}, Over: true})
		})
	}
}

// maxEvents is the number of events that a session keeps.
const maxEvents = 1000

// note adds an event. The caller holds s.mu.
func (s *session) note(e loadgen.Event) {
	s.noted++
	e.Seq = s.noted
	s.events = append(s.events, e)
	s.events = s.events[max(0, len(s.events)-maxEvents):]
}

// miss adds a sentence on why the figures are incomplete. The caller holds s.mu.
func (s *session) miss(why string) {
	s.incomplete = append(s.incomplete, why)
	s.note(loadgen.Event{At: time.Now().Add(s.behind), Kind: loadgen.Incomplete, Text: why})
	s.config.Note(why)
}

// inject applies a fault now.
func (s *session) inject(f loadgen.Fault) error {
	if f.Kind.OnServers() {
		return s.strike(f)
	}
	if f.Agent == 0 && f.Client == 0 && f.Clients <= 1 {
		f.Agent = s.anyAgent()
	}
	if f.Agent > 0 && s.gone(f.Agent) {
		return fmt.Errorf("inject %s: agent %d does not run any more", f.Kind, f.Agent)
	}
	if err := s.order(order{Order: orderFault, Fault: &f}); err != nil {
		return fmt.Errorf("inject %s: tell the agents: %w", f.Kind, err)
	}
	return nil
}

// finish deletes the keys of the run and ends the session.
func (s *session) finish() {
	s.ask()
	err := s.keeper.Close()
	s.faults.Wait()
	if s.witness != nil {
		ctx, cancel := context.WithTimeout(context.Background(), controlGone)
		_ = s.witness.Close(ctx) // the results have the error
		cancel()
	}
	s.forget()
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.failed = err
	close(s.over)
}

// forget deletes what the run has on the control server.
func (s *session) forget() {
	ctx, cancel := context.WithTimeout(context.Background(), requestTime)
	defer cancel()
	pipe := s.control.rdb.Pipeline()
	for _, what := range []string{"plan", orders, messages} {
		pipe.Del(ctx, s.control.key(what))
	}
	_, _ = pipe.Exec(ctx) // the keys have a TTL
	s.withdraw()
}

// withdraw deletes the tickets that no agent has taken.
func (s *session) withdraw() {
	ctx, cancel := context.WithTimeout(context.Background(), requestTime)
	defer cancel()
	pipe := s.control.rdb.Pipeline()
	for _, t := range s.tickets() {
		pipe.LRem(ctx, tickets, 1, t)
	}
	_, _ = pipe.Exec(ctx) // without its plan, a ticket has no effect
}

// abandon ends a session that has not started.
func (s *session) abandon(why error) {
	s.withdraw() // before the order, after which agents take the next ticket
	_ = s.order(order{Order: orderStop, Why: why.Error()})
	if s.keeper != nil {
		_ = s.keeper.Close()
	}
	if s.witness != nil {
		ctx, cancel := context.WithTimeout(context.Background(), requestTime)
		defer cancel()
		_ = s.witness.Close(ctx)
	}
	s.forget()
}

// metrics returns the sums of all agents.
func (s *session) metrics() loadgen.Metrics {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.merger.Metrics()
	m.Running, m.Witnessed = !s.ended, s.witness != nil
	if len(s.members) > 1 {
		m.Oracles = len(s.members)
	}
	m.Faults = s.outcomes()
	return m
}

// outcomes returns the results of the faults of the scenario.
func (s *session) outcomes() []loadgen.FaultOutcome {
	next := make([]int, len(s.members)) // outcome of each agent
	var all []loadgen.FaultOutcome
	for i, f := range s.scenario.Faults {
		sum := loadgen.FaultOutcome{Fault: f, Struck: s.struck[i]}
		if f.Kind.OnServers() && sum.Struck == 0 {
			sum.Why = "the run ended before its time"
		}
		for number := range s.members {
			if _, takesPart := s.scenario.Share(f, number, len(s.members)); !takesPart {
				continue
			}
			outcomes := s.merger.Of(number + 1).Faults
			if next[number] < len(outcomes) {
				one := outcomes[next[number]]
				sum.Struck += one.Struck
				if one.Why != "" {
					sum.Why = fmt.Sprintf("agent %d: %s", number+1, one.Why)
				}
			}
			next[number]++
		}
		all = append(all, sum)
	}
	return all
}

func (s *session) states() []loadgen.AgentState {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]loadgen.AgentState, len(s.members))
	for i, one := range s.members {
		all[i] = loadgen.AgentState{
			Number: i + 1, Name: one.name, Clock: one.clock, Ready: one.ready, Lost: one.lost, Stopped: one.stopped, Clients: s.scenario.Part(i, len(s.members)),
			Seen: time.Since(one.heard), Metrics: s.merger.Of(i + 1),
		}
	}
	return all
}
