// Package explore runs the orders of the messages between a few clients of package lock and a server.
package explore

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"locktop/internal/check"
	"locktop/internal/testtier"
	"locktop/lab/internal/lockspec"
	"locktop/lock"
)

// The explorer enumerates the orders of the messages between a few clients and a server,
// where the simulation draws them at random. In each order the clients do the same. It
// differs from the usual one in a few steps: another message is delivered first, time passes
// before the messages arrive, a connection breaks, or a server loses its data. lab/docs/proof.md says
// what is enumerated.

// Environment variables of the explorer: how many orders of each kind, at most, and one
// order to repeat.
const (
	exploreOrders = "LOCKTOP_EXPLORE"
	exploreOrder  = "LOCKTOP_EXPLORE_ORDER"
)

// Bounds of an order: how many of its steps may be unusual.
const (
	maxDeviations = 3
	maxFaults     = 2
)

// exploredKind is what the clients of an order do.
type exploredKind struct {
	name    string
	clients int
	callers []caller
	nodes   int           // of a Redlock; 0 = one server
	ifEqual bool          // the server knows SET with IFEQ
	scripts []string      // the server knows them; set by learn
	bound   time.Duration // a waiter gets a free lock within it, if there was no fault and no delay
}

// caller is a goroutine that acquires a lock once.
type caller struct {
	client       int
	kind         string        // of lockspec.Locker
	starts, hold time.Duration // when it asks, and for how long it holds
	patience     time.Duration // it gives up after it; 0 = never
	extends      bool          // it shortens the lease while it holds the lock
	enters       bool          // it enters a second time
	deletes      bool          // it deletes the key of others after it has given up: a defect
	key          int           // of lockspec.Key
	ttl          time.Duration // 0 = exploredTTL
	elect        bool
	unfenced     bool
}

// A free lock is handed over briefly: it takes far less, and a waiter that polls pauses for longer. A
// writer waits for the turn of readers that have given up.
const (
	briefly     = 60 * time.Millisecond
	readersTurn = 100 * time.Millisecond
)

var exploredKinds = []exploredKind{
	{name: "mutex", clients: 2, bound: briefly, callers: []caller{
		{client: 0, kind: "mutex", hold: 250 * time.Millisecond}, {client: 1, kind: "mutex", starts: time.Millisecond, hold: time.Millisecond}}},
	{name: "quick", clients: 2, bound: briefly, ifEqual: true, callers: []caller{
		{client: 0, kind: "mutex", hold: 250 * time.Millisecond, unfenced: true},
		{client: 1, kind: "mutex", starts: time.Millisecond, patience: 100 * time.Millisecond, hold: time.Millisecond, unfenced: true},
		{client: 1, kind: "mutex", starts: 2 * time.Millisecond, hold: time.Millisecond, unfenced: true}}},
	{name: "reentrant", clients: 2, bound: briefly, callers: []caller{
		{client: 0, kind: "reentrant", hold: 20 * time.Millisecond, enters: true}, {client: 1, kind: "reentrant", starts: time.Millisecond, hold: time.Millisecond}}},
	{name: "fair", clients: 3, bound: briefly, callers: []caller{
		{client: 0, kind: "fair", hold: 20 * time.Millisecond}, {client: 1, kind: "fair", starts: time.Millisecond, hold: time.Millisecond},
		{client: 2, kind: "fair", starts: 2 * time.Millisecond, hold: time.Millisecond}}},
	{name: "semaphore", clients: 3, bound: briefly, callers: []caller{
		{client: 0, kind: "semaphore", hold: 20 * time.Millisecond}, {client: 1, kind: "semaphore", starts: time.Millisecond, hold: 30 * time.Millisecond, ttl: exploredTTL / 2},
		{client: 2, kind: "semaphore", starts: 2 * time.Millisecond, hold: time.Millisecond}}},
	{name: "rw", clients: 2, bound: briefly + 2*readersTurn, callers: []caller{
		{client: 0, kind: "reader", hold: 20 * time.Millisecond}, {client: 1, kind: "writer", starts: time.Millisecond, hold: 10 * time.Millisecond},
		{client: 0, kind: "reader", starts: 2 * time.Millisecond, hold: time.Millisecond}}},
	{name: "writers", clients: 2, bound: briefly + 2*readersTurn, callers: []caller{
		{client: 0, kind: "writer", hold: 250 * time.Millisecond}, {client: 1, kind: "writer", starts: time.Millisecond, hold: time.Millisecond}}},
	{name: "all", clients: 2, bound: briefly, callers: []caller{
		{client: 0, kind: "all", hold: 250 * time.Millisecond}, {client: 1, kind: "all", starts: time.Millisecond, hold: time.Millisecond},
		{client: 1, kind: "mutex", key: 1, starts: 2 * time.Millisecond, hold: time.Millisecond, unfenced: true}}},
	{name: "redlock", clients: 2, nodes: 3, bound: time.Minute, callers: []caller{
		{client: 0, kind: "redlock", hold: 20 * time.Millisecond}, {client: 1, kind: "redlock", starts: time.Millisecond, hold: time.Millisecond}}},
	{name: "elect", clients: 2, bound: briefly, callers: []caller{
		{client: 0, kind: "mutex", elect: true, hold: 500 * time.Millisecond, extends: true}, {client: 1, kind: "mutex", elect: true, starts: time.Millisecond, hold: time.Millisecond}}},
}

// families returns the families of keys of the kind.
func (k exploredKind) families() string {
	return lockspec.FamilyOf(k.callers[0].kind)
}

// learn returns the scripts that the clients send. It runs the callers twice on a network that holds
// nothing: as they are, and with holds of 30 s and waiters that give up after 20 s.
func (k exploredKind) learn(t *testing.T) (sources []string) {
	impatient := k
	impatient.callers = slices.Clone(k.callers)
	for i := range impatient.callers {
		impatient.callers[i].hold, impatient.callers[i].patience = 30*time.Second, 20*time.Second
	}
	for _, kind := range []exploredKind{k, impatient} {
		synctest.Test(t, func(t *testing.T) {
			o := &ordered{kind: kind}
			o.begin(t)
			o.startCallers()
			for o.isRunning() && time.Since(o.began) < exploredLimit {
				time.Sleep(time.Second)
			}
			o.stop()
			sources = append(sources, o.gate.scripts...)
		})
	}
	slices.Sort(sources)
	sources = slices.Compact(sources)
	nameScripts(sources)
	return sources
}

// order is what is unusual in an order: the options that are not the first one, by step.
type order struct {
	changes []change
	traced  bool // keep the texts of its messages
}

// change is a step at which not the first option is taken.
type change struct{ step, option int }

// at returns the option of a step.
func (o order) at(step int) int {
	for _, c := range o.changes {
		if c.step == step {
			return c.option
		}
	}
	return 0
}

// String returns the order as parseOrder reads it, like 7:2,11:4.
func (o order) String() string {
	var all []string
	for _, c := range o.changes {
		all = append(all, fmt.Sprintf("%d:%d", c.step, c.option))
	}
	return strings.Join(all, ",")
}

func parseOrder(text string) (o order, err error) {
	for part := range strings.SplitSeq(text, ",") {
		var c change
		if part == "" {
			continue
		}
		if _, err := fmt.Sscanf(part, "%d:%d", &c.step, &c.option); err != nil {
			return o, fmt.Errorf("%q is not STEP:OPTION: %w", part, err)
		}
		o.changes = append(o.changes, c)
	}
	return o, nil
}

// startCallers starts all callers.
func (o *ordered) startCallers() {
	o.running = len(o.kind.callers)
	for i, c := range o.kind.callers {
		go o.call(i, c)
	}
}

// call is one caller.
func (o *ordered) call(n int, c caller) {
	defer func() {
		o.mu.Lock()
		o.running--
		o.mu.Unlock()
		o.gate.notify()
	}()
	time.Sleep(c.starts)
	owner := fmt.Sprintf("%c%d", 'A'+c.client, n)
	ttl := cmp.Or(c.ttl, exploredTTL)
	l, name := lockspec.Locker(o.clients[c.client].client, o.clients[c.client].quorum, c.kind, owner, c.key, lock.Options{TTL: ttl, Fence: !c.unfenced, Renew: lock.Renew{Every: exploredEvery}})
	ctx, cancel := context.WithCancel(context.Background())
	if c.patience > 0 {
		ctx, cancel = context.WithTimeout(context.Background(), c.patience)
	}
	defer cancel()
	wait := &lockspec.Wait{Keys: lockspec.Span(name), Limit: lockspec.Limit(c.kind), Split: c.kind == "redlock", Since: time.Now()}
	o.mu.Lock()
	o.spec.Attempt(owner, lockspec.NewAttempt(c.kind, name, ttl))
	o.spec.Waits(wait)
	o.mu.Unlock()
	if c.elect {
		err := lock.Elect(ctx, l, func(ctx context.Context) error {
			o.hold(c, l, lock.LeaseFrom(ctx), owner, wait)
			return nil
		})
		o.done(wait, owner, err)
		return
	}
	lease, err := l.Lock(ctx)
	if o.done(wait, owner, err); err != nil {
		if c.deletes {
			o.direct[0].Del(context.Background(), name)
		}
		return
	}
	g := o.hold(c, l, lease, owner, nil)
	o.mu.Lock()
	o.spec.Ended(g)
	o.mu.Unlock()
	_ = lease.Unlock(context.Background())
}

// done notes that a call does not wait any more.
func (o *ordered) done(wait *lockspec.Wait, owner string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.spec.Waited(wait)
	if err != nil {
		o.spec.Failed(owner, time.Now())
	}
}

// hold uses a lease. It returns its grant, or ends it if wait is that of an election.
func (o *ordered) hold(c caller, l lock.Locker, lease *lock.Lease, owner string, wait *lockspec.Wait) *lockspec.Grant {
	g := lockspec.NewGrant(lease, c.kind, owner)
	o.mu.Lock()
	o.broken = append(o.broken, o.spec.Granted(g)...)
	if wait != nil {
		o.spec.Waited(wait)
	}
	o.mu.Unlock()
	ctx := lease.Context()
	sleep(ctx, c.hold/2)
	if c.enters {
		if again, err := l.TryLock(ctx); err == nil {
			sleep(ctx, c.hold/4)
			_ = again.Unlock(context.Background())
		}
	}
	if c.extends {
		_ = lease.Extend(ctx, exploredTTL/4)
	}
	sleep(ctx, c.hold/2)
	if wait != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.spec.Ended(g)
	}
	return g
}

// explorer enumerates the orders of a kind, those with fewer changes first.
type explorer struct {
	kind      exploredKind
	limit     int // of orders
	seen      map[uint64][]cost
	orders    int // that were run to their end
	alike     int // that were not: another one has led to the same state
	unlike    int // that did not repeat the messages of the order they began like
	steps     int
	found     *atomic.Bool // a kind breaks a promise: all stop
	complete  int          // all orders with so many changes were run
	violation string
}

// planned is an order that was not run yet.
type planned struct {
	order
	used   cost
	digest uint64 // of all options up to the last change
}

// all runs all orders within the bounds. If they are more than the limit, it runs a sample of
// those with the most changes, which is always the same.
func (e *explorer) all(t *testing.T) {
	e.seen, e.complete = map[uint64][]cost{}, -1
	choose := rand.New(rand.NewPCG(1, 0))
	for level := []planned{{}}; len(level) > 0; e.complete++ {
		choose.Shuffle(len(level), func(i, j int) { level[i], level[j] = level[j], level[i] })
		var next []planned
		last := len(level) > 2*(e.limit-e.orders) // some of them are not counted
		for _, p := range level {
			if e.orders >= e.limit || e.found.Load() {
				return
			}
			if more := e.one(t, p); !last {
				next = append(next, more...)
			}
			if e.violation != "" {
				return
			}
		}
		level = next
	}
}

// one runs one order, and returns those with one more change, behind its last one.
func (e *explorer) one(t *testing.T, p planned) (next []planned) {
	o := &ordered{kind: e.kind, order: p.order}
	first, unlike, alike := 0, false, false
	if n := len(p.changes); n > 0 {
		first = p.changes[n-1].step + 1
	}
	synctest.Test(t, func(t *testing.T) {
		o.run(t, func(step int, d decision) bool {
			unlike = unlike || step == first-1 && d.digest != p.digest
			alike = step >= first && !unlike && e.known(d.state, p.used)
			return alike
		})
	})
	switch {
	case unlike:
		e.unlike++
	case alike:
		e.alike++
	default:
		e.orders++
	}
	e.steps += len(o.path)
	if len(o.broken) > 0 {
		e.violation = e.report(t, p.order)
		e.found.Store(true)
		return nil
	}
	if unlike {
		return nil
	}
	for step := first; step < len(o.path); step++ {
		for i, c := range o.path[step].costs[1:] {
			used := cost{p.used.deviations + c.deviations, p.used.faults + c.faults}
			if used.deviations <= maxDeviations && used.faults <= maxFaults {
				next = append(next, planned{order{changes: append(slices.Clone(p.changes), change{step, i + 1})}, used, o.path[step].digest})
			}
		}
	}
	return next
}

// known reports whether a state was reached before with no more changes. If not, it is now.
func (e *explorer) known(state uint64, used cost) bool {
	for _, other := range e.seen[state] {
		if other.deviations <= used.deviations && other.faults <= used.faults {
			return true
		}
	}
	e.seen[state] = append(e.seen[state], used)
	return false
}

// report repeats an order that breaks a promise, and describes it.
func (e *explorer) report(t *testing.T, p order) string {
	p.traced = true
	o := &ordered{kind: e.kind, order: p}
	synctest.Test(t, func(t *testing.T) { o.run(t, func(int, decision) bool { return false }) })
	return o.table()
}

// table returns the steps of an order, and what it breaks.
func (o *ordered) table() string {
	var all strings.Builder
	for i, step := range o.trace {
		mark := " "
		if step.other {
			mark = "*"
		}
		fmt.Fprintf(&all, "%s %3d %12v  %s\n", mark, i, step.at, step.what)
	}
	for _, broken := range o.broken {
		fmt.Fprintf(&all, "broken: %s\n", tokenIDs.ReplaceAllString(broken, "~"))
	}
	fmt.Fprintf(&all, "cd lab && %s='%s/%s' go test ./explore -run 'TestExplore$' -v\n", exploreOrder, o.kind.name, o.order)
	return all.String()
}

// TestExplore runs the orders of each kind, as many as the tier allows.
func TestExplore(t *testing.T) {
	if text := os.Getenv(exploreOrder); text != "" {
		repeat(t, text)
		return
	}
	limit := testtier.Size(4, 200, 10_000)
	if n, err := strconv.Atoi(os.Getenv(exploreOrders)); err == nil {
		limit = n
	}
	var found atomic.Bool
	for _, kind := range exploredKinds {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			kind.scripts = kind.learn(t)
			e := &explorer{kind: kind, limit: limit, found: &found}
			began := time.Now()
			e.all(t)
			t.Logf("%s: %d orders of %d steps on average, with at most %d deviations and %d faults; all with at most %d changes: %v. %d more led to a state that was known, %d were not reproducible.",
				kind.name, e.orders, e.steps/max(e.orders+e.alike+e.unlike, 1), maxDeviations, maxFaults, e.complete, time.Since(began).Round(time.Millisecond), e.alike, e.unlike)
			check.True(t, e.violation == "", "%v", "\n"+e.violation)
		})
	}
}

// The explorer finds a caller that deletes the lock of another one when a delay makes it give up,
// and finds the same order each time.
func TestExploreFindsAndRepeatsABrokenPromise(t *testing.T) {
	kind := exploredKind{name: "deletes", clients: 2, bound: briefly, callers: []caller{
		{client: 0, kind: "mutex", hold: 30 * time.Millisecond},
		{client: 1, kind: "mutex", starts: time.Millisecond, hold: time.Millisecond, patience: 100 * time.Millisecond, deletes: true}}}
	kind.scripts = kind.learn(t)
	first := ""
	for range testtier.Size(2, 10, 10) {
		e := &explorer{kind: kind, limit: 200, found: new(atomic.Bool)}
		e.all(t)
		if first == "" {
			first = e.violation
		}
		check.Require(t, strings.Contains(e.violation, "*") && strings.Contains(e.violation, "kept by 0 servers") && e.violation == first,
			"want an order that is not the usual one, each time the same:\n%s\n%s", e.violation, first)
	}
}

// repeat runs one order and prints its steps.
func repeat(t *testing.T, text string) {
	name, changes, _ := strings.Cut(text, "/")
	p, err := parseOrder(changes)
	i := slices.IndexFunc(exploredKinds, func(k exploredKind) bool { return k.name == name })
	check.Require(t, err == nil && i >= 0, "%s=%q: %v", exploreOrder, text, err)
	p.traced = true
	kind := exploredKinds[i]
	kind.scripts = kind.learn(t)
	o := &ordered{kind: kind, order: p}
	synctest.Test(t, func(t *testing.T) { o.run(t, func(int, decision) bool { return false }) })
	t.Log("\n" + o.table())
	if len(o.broken) > 0 {
		t.Fail()
	}
}
