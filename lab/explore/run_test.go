package explore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/lab/internal/lockspec"
	"locktop/lock"
)

// Times of an order.
const (
	exploredTTL   = 6 * time.Second
	exploredEvery = 200 * time.Millisecond // between renewals
	exploredStep  = 50 * time.Microsecond  // a delivery takes it
	exploredLimit = 2 * time.Minute        // all callers are done by then
)

// ordered is one order of the messages of a kind of lock, while it runs in a bubble of its own.
type ordered struct {
	kind    exploredKind
	order   order
	gate    *gate
	servers []*server.Embedded
	direct  []*redis.Client // without the gate
	clients []*process
	began   time.Time

	mu        sync.Mutex // guards what follows, which callers use
	spec      lockspec.Spec
	running   int
	broken    []string
	disturbed time.Time // end of the last fault or delay by the explorer; zero = none yet
	undone    bool      // a client has stopped to undo an attempt
	late      bool      // a command of a broken connection arrived after that

	last   map[string]uint64 // newest event by what it changes
	sum    uint64            // of all events
	looked []lockspec.Stored // what the servers store
	at     time.Time         // when that was read
	trace  []traced
	path   []decision
}

// process is a client, a quorum if the kind has several nodes, and their connections.
type process struct {
	via    []*redis.Client
	client *lock.Client
	quorum *lock.Quorum
}

// traced is a step, for people.
type traced struct {
	at    time.Duration
	what  string
	other bool // not the usual one
}

// decision is what a step could have been.
type decision struct {
	state  uint64 // orders in the same state go on alike
	digest uint64 // of all options so far
	costs  []cost // of the options; the first one is usual
}

// cost is what an option uses of the bounds.
type cost struct{ deviations, faults int }

// option is a possible next step.
type option struct {
	conn    *gateConn
	request bool
	what    string // deliver, wait, expire, cut, late, restart
	cost    cost
}

// run runs an order. known reports whether an order with the same state and no more
// changes was run; then run stops.
func (o *ordered) run(t *testing.T, known func(step int, d decision) bool) {
	o.begin(t)
	o.gate.mu.Lock()
	o.gate.open = false
	o.gate.mu.Unlock()
	o.startCallers()
	if !o.explore(known) {
		o.finish()
	}
	o.stop()
}

// begin starts the servers and the clients. The gate holds nothing.
func (o *ordered) begin(t *testing.T) {
	o.gate, o.last, o.began = newGate(), map[string]uint64{}, time.Now()
	o.spec = lockspec.Spec{Settle: 0, Grace: 3 * time.Second, Bound: o.kind.bound}
	for range max(o.kind.nodes, 1) {
		e := server.NewPiped()
		if o.kind.ifEqual {
			servertest.KnowIfEqual(e)
		}
		o.servers = append(o.servers, e)
	}
	for i, e := range o.servers {
		rdb := redis.NewClient(&redis.Options{Addr: fmt.Sprintf("127.0.0.1:%d", i+1), Dialer: e.Dial, MaxRetries: -1, DisableIdentity: true})
		o.direct = append(o.direct, rdb)
		for _, script := range o.kind.scripts {
			rdb.ScriptLoad(context.Background(), script)
		}
	}
	o.gate.open = true
	for i := range o.kind.clients {
		o.start(t, i)
	}
	o.warmUp(t)
	synctest.Wait()
}

func (o *ordered) start(t *testing.T, i int) {
	p := &process{}
	for s, e := range o.servers {
		p.via = append(p.via, redis.NewClient(&redis.Options{Addr: fmt.Sprintf("127.0.0.1:%d", s+1), Dialer: o.gate.dialer(i, s, e.Dial), DisableIdentity: true}))
	}
	config := lock.Config{Owner: string(rune('A' + i)), Observe: o.observe}
	var err1, err2 error
	if p.client, err1 = lock.New(p.via[0], config); o.kind.nodes > 0 {
		p.quorum, err2 = lock.NewQuorum(p.via, lock.QuorumConfig{Config: config, NodeTimeout: 100 * time.Millisecond})
	}
	check.NoError(t, errors.Join(err1, err2))
	o.clients = append(o.clients, p)
}

// observe notes that a client has stopped to undo an attempt.
func (o *ordered) observe(e lock.Event) {
	if e.Kind == lock.Undone {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.undone = true
	}
}

// warmUp connects the clients, and lets them learn what the server knows.
func (o *ordered) warmUp(t *testing.T) {
	for _, p := range o.clients {
		l, err := p.client.Mutex("warm", lock.Options{})
		if p.quorum != nil {
			l, err = p.quorum.Redlock("warm", lock.Options{})
		}
		check.NoError(t, err)
		lease := check.Must(l.TryLock(context.Background()))(t)
		check.NoError(t, errors.Join(lease.Extend(context.Background(), time.Minute), lease.Unlock(context.Background())))
	}
}

// stop closes everything.
func (o *ordered) stop() {
	o.gate.release()
	for _, p := range o.clients {
		_ = p.client.Close()
		if p.quorum != nil {
			_ = p.quorum.Close()
		}
	}
	for o.isRunning() {
		time.Sleep(time.Second)
	}
	for _, p := range o.clients {
		for _, via := range p.via {
			_ = via.Close()
		}
	}
	for i := range o.servers {
		_ = o.direct[i].Close()
		o.servers[i].Close()
	}
	o.gate.mu.Lock()
	defer o.gate.mu.Unlock()
	for _, c := range o.gate.conns {
		c.cut(false)
	}
}

func (o *ordered) isRunning() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.running > 0
}

// explore takes one step after the other until all callers are done and nothing is held. It
// returns true if known does.
func (o *ordered) explore(known func(int, decision) bool) bool {
	digest := uint64(0)
	for step := 0; ; step++ {
		synctest.Wait()
		o.look()
		options, state, label := o.options(step)
		digest = mix(digest, "", label)
		if len(options) == 0 || len(o.broken) > 0 {
			return false
		}
		d := decision{state: state, digest: digest}
		for _, option := range options {
			d.costs = append(d.costs, option.cost)
		}
		if known(step, d) {
			return true
		}
		o.path = append(o.path, d)
		choice := o.order.at(step)
		if choice >= len(options) {
			return false // not the same messages
		}
		if time.Since(o.began) > exploredLimit {
			o.violated("after %v a caller is not done", exploredLimit)
			return false
		}
		o.take(step, options[choice], choice != 0)
	}
}

// options returns the possible steps, the usual one first: the oldest message is
// delivered, or time passes if there is none. It returns none if all is done. label stands for
// all that can be chosen.
func (o *ordered) options(step int) (all []option, state, label uint64) {
	g := o.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	type head struct {
		option
		step int
	}
	var heads []head
	state, label = mix(o.sum, "", uint64(step)), uint64(step)
	conns := slices.Clone(g.conns)
	slices.SortFunc(conns, func(a, b *gateConn) int {
		return cmp.Or(cmp.Compare(a.client, b.client), cmp.Compare(a.server, b.server), cmp.Compare(a.number, b.number))
	})
	for _, c := range conns {
		if len(c.requests) > 0 {
			heads = append(heads, head{option{c, true, "deliver", cost{deviations: 1}}, c.requests[0].step})
		}
		if len(c.replies) > 0 {
			heads = append(heads, head{option{c, false, "deliver", cost{deviations: 1}}, c.replies[0].step})
		}
		for _, m := range c.requests {
			args := words(m.data)
			state = mix(state, "", m.id)
			label = mix(label, tokenIDs.ReplaceAllString(strings.Join(args[:min(2, len(args))], " "), ""), uint64(c.client), uint64(c.server), uint64(c.number), uint64(len(args)))
		}
		for _, m := range c.replies {
			state = mix(state, "", m.id)
			label = mix(label, string(m.data[:1]), uint64(c.client), uint64(c.server), uint64(c.number), uint64(len(m.data)))
		}
	}
	slices.SortStableFunc(heads, func(a, b head) int { return cmp.Compare(a.step, b.step) })
	for _, h := range heads {
		state = mix(state, h.what, uint64(h.conn.client), uint64(h.conn.server), uint64(h.conn.number))
		all = append(all, h.option)
	}
	running := o.isRunning()
	switch {
	case len(all) == 0 && !running:
		return nil, state, label
	case !running:
		return all[:1], state, label
	}
	all = append(all, option{what: "wait", cost: cost{deviations: 1}})
	if len(heads) > 0 {
		all = append(all, option{what: "expire", cost: cost{deviations: 1}})
	}
	for _, c := range conns {
		if !c.gone && (len(c.requests)+len(c.replies) > 0 || c.subscribed) {
			all = append(all, option{c, false, "cut", cost{faults: 1}})
			if len(c.requests) > 0 {
				all = append(all, option{c, false, "late", cost{faults: 1}})
			}
		}
	}
	for i := range o.servers {
		all = append(all, option{&gateConn{server: i}, false, "restart", cost{faults: 1}})
	}
	all[0].cost = cost{}
	return all, state, label
}

// take takes a step.
func (o *ordered) take(step int, next option, other bool) {
	var touches []string
	switch {
	case next.what == "deliver" && next.request:
		touches = []string{fmt.Sprint("server", next.conn.server)}
	case next.what == "deliver":
		touches = []string{fmt.Sprint("client", next.conn.client)}
	default:
		for i := range o.servers {
			touches = append(touches, fmt.Sprint("server", i))
		}
		for i := range o.clients {
			touches = append(touches, fmt.Sprint("client", i))
		}
	}
	event := mix(o.message(next), next.what)
	for _, what := range touches {
		event = mix(event, what, o.last[what])
	}
	for _, what := range touches {
		o.last[what] = event
	}
	o.sum += event
	o.note(next, other)
	o.gate.begin(step+1, event)
	switch next.what {
	case "deliver":
		o.noteLate(next)
		next.conn.deliver(next.request)
		time.Sleep(exploredStep)
	case "wait":
		o.pass()
	case "expire":
		time.Sleep(exploredTTL + time.Millisecond)
	case "cut", "late":
		o.gate.mu.Lock()
		next.conn.cut(next.what == "late")
		o.gate.mu.Unlock()
	case "restart":
		o.restart(next.conn.server)
	}
	if other && next.what != "deliver" {
		o.disturb()
	}
}

// message returns the identity of what an option delivers or cuts.
func (o *ordered) message(next option) uint64 {
	o.gate.mu.Lock()
	defer o.gate.mu.Unlock()
	c := next.conn
	switch {
	case c == nil:
		return 0
	case next.what != "deliver":
		return mix(0, "", uint64(c.client), uint64(c.server), uint64(c.number))
	case next.request:
		return c.requests[0].id
	}
	return c.replies[0].id
}

// disturb notes a fault or a delay: waiters may have to look by themselves.
func (o *ordered) disturb() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.disturbed, o.spec.Bound = time.Now(), 9*time.Second
}

// noteLate notes a command that arrives after the undo of its attempt: the key stays for its TTL.
func (o *ordered) noteLate(next option) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if next.request && next.conn.gone && (o.undone || o.kind.nodes > 0) {
		o.late, o.spec.Grace = true, time.Hour
	}
}

// pass lets time pass until a client sends something, or a caller goes on.
func (o *ordered) pass() {
	select {
	case <-o.gate.arrived:
	default:
	}
	select {
	case <-o.gate.arrived:
	case <-time.After(5 * time.Second):
	}
}

// restart restarts a server without its data.
func (o *ordered) restart(i int) {
	o.mu.Lock()
	o.spec.Deleted(true, lockspec.AllKeys(lockspec.Families)...)
	o.mu.Unlock()
	o.gate.mu.Lock()
	for _, c := range o.gate.conns {
		if c.server == i {
			c.cut(false)
		}
	}
	o.gate.mu.Unlock()
	synctest.Wait()
	o.direct[i].FlushAll(context.Background())
}

// look compares the leases with the servers.
func (o *ordered) look() {
	if len(o.trace) == 0 || !strings.Contains(o.trace[len(o.trace)-1].what, "reply") || o.looked == nil {
		o.looked, o.at = nil, time.Now()
		for _, rdb := range o.direct {
			o.looked = append(o.looked, lockspec.PictureOf(rdb, o.kind.families()).Stored())
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	calm := o.disturbed
	if calm.IsZero() {
		calm = o.began.Add(-time.Second)
	}
	o.broken = append(o.broken, o.spec.Look(o.at, calm, o.looked)...)
}

// finish checks that nothing is left when all callers are done.
func (o *ordered) finish() {
	if len(o.broken) > 0 || o.isRunning() {
		return
	}
	o.gate.release()
	if !o.late {
		time.Sleep(2500 * time.Millisecond)
		synctest.Wait()
		for i, rdb := range o.direct {
			if stored := lockspec.PictureOf(rdb, o.kind.families()).Stored(); len(stored) > 0 {
				o.violated("all callers are done, and server %d has %v", i, stored)
			}
		}
	}
	time.Sleep(exploredTTL + 17*time.Second)
	synctest.Wait()
	for i, rdb := range o.direct {
		for _, left := range lockspec.Litter(rdb) {
			o.violated("all is quiet, and server %d has %s", i, left)
		}
	}
}

func (o *ordered) violated(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.broken = append(o.broken, fmt.Sprintf(format, args...))
}

// note adds a step to the trace.
func (o *ordered) note(next option, other bool) {
	what := next.what
	switch {
	case what == "restart":
		what = fmt.Sprintf("server %d restarts without its data", next.conn.server)
	case what == "wait":
		what = "time passes until a client acts"
	case what == "expire":
		what = "the TTL passes"
	case what != "deliver":
		what = map[string]string{"cut": "is cut, with what it carries", "late": "is cut, and its commands arrive later"}[what]
		what = fmt.Sprintf("connection %d of %c %s", next.conn.number, 'A'+next.conn.client, what)
	default:
		o.gate.mu.Lock()
		c := next.conn
		from, to, data := fmt.Sprintf("%c", 'A'+c.client), "server", []byte(nil)
		if len(o.servers) > 1 {
			to = fmt.Sprint("server ", c.server)
		}
		if next.request {
			data = c.requests[0].data
			what = fmt.Sprintf("%s → %s: ", from, to)
		} else {
			data = c.replies[0].data
			what = fmt.Sprintf("%s ← %s reply: ", from, to)
		}
		o.gate.mu.Unlock()
		if o.order.traced {
			what += readable(next.request, data)
		}
	}
	o.trace = append(o.trace, traced{time.Since(o.began), what, other})
}

// sleep sleeps for d, or until end ends.
func sleep(end context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-end.Done():
	}
}
