package loadgen

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// disturbances are the times in which something other than the lock can have cost
// a client its lease or its place in a queue: a fault, a server that did not answer
// or forgot what it had, a generator that got no CPU. Safe for concurrent use.
type disturbances struct {
	aftermath time.Duration // for how long after its end one may still show

	mu     sync.Mutex
	all    []disturbance
	outage Outage
	stall  Stall
}

// disturbance is one of them.
type disturbance struct {
	kind     string
	client   int // −1 = all
	from, to time.Time
	lasting  bool
}

// Outage tells of servers that did not answer.
type Outage struct {
	Total   time.Duration // without an answer, outside the faults of the scenario
	Longest time.Duration
	Lost    int    // times that a server came back as another, or without what it had been
	Error   string // the newest, "" if none; may hold bytes from the server
}

// Stall tells of a generator that did not run when it should have.
type Stall struct {
	Total, Longest time.Duration
}

// everybody is who is struck by what strikes servers.
const everybody = -1

func (d *disturbances) begin(kind string, client int, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, disturbance{kind: kind, client: client, from: now, lasting: true})
}

// end ends the oldest one of that kind that lasts.
func (d *disturbances) end(kind string, client int, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.all {
		if one := &d.all[i]; one.kind == kind && one.client == client && one.lasting {
			one.to, one.lasting = now, false
			return
		}
	}
}

// add adds one that is over. Those that follow each other closely become one.
func (d *disturbances) add(kind string, from, to time.Time) {
	if n := len(d.all); n > 0 {
		if last := &d.all[n-1]; last.kind == kind && last.client == everybody && !last.lasting && from.Sub(last.to) < d.aftermath {
			last.to = to
			return
		}
	}
	d.all = append(d.all, disturbance{kind: kind, client: everybody, from: from, to: to})
}

// explain reports whether something that ended badly for a client, or for all, can
// have been brought about by a disturbance.
func (d *disturbances) explain(client int, since, at time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, one := range d.all {
		mine := one.client == client || one.client == everybody || client == everybody
		if mine && !one.from.After(at) && (one.lasting || one.to.Add(d.aftermath).After(since)) {
			return true
		}
	}
	return false
}

// struck reports whether a fault of the scenario strikes servers at a moment, or
// did shortly before.
func (d *disturbances) struck(now time.Time) bool {
	for _, one := range d.all {
		if one.client == everybody && FaultKind(one.kind).strikes() && (one.lasting || one.to.Add(time.Second).After(now)) {
			return true
		}
	}
	return false
}

// judge fills in what is known of outages and stalls.
func (d *disturbances) judge(m *Metrics) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m.Outage, m.Stall = d.outage, d.stall
}

// strikes reports whether a fault of the kind can cost a client its lease.
func (k FaultKind) strikes() bool {
	switch k {
	case "", stalled, unanswered, ScriptFlush, Greedy, Leak, Skew:
		return false
	}
	return true
}

// Disturbances that are no faults.
const (
	stalled    = "stall"  // the generator did not run
	unanswered = "outage" // a server did not answer
)

// silence is for how long a server may be silent without a word in the report.
const silence = 500 * time.Millisecond

// claimTime is how long a client of a fair lock has to take what it was handed. Then it
// is the turn of the next one.
const claimTime = time.Second

// costly returns how long a stall or a silence must be to count as one that can cost a
// client its lease, or its turn: a good part of the time that it has.
func (l Lock) costly() time.Duration {
	has := l.TTL
	if l.Kind == Fair {
		has = min(has, claimTime)
	}
	return max(has/8, 10*time.Millisecond)
}

// watch looks, until ctx ends, whether this process gets its CPU and the servers
// answer.
func (f *fleet) watch(ctx context.Context) {
	l := f.scenario.Load().Lock
	beat := min(max(l.TTL/20, 5*time.Millisecond), 100*time.Millisecond)
	long := l.costly()
	var all sync.WaitGroup
	for _, rdb := range f.janitor.servers {
		all.Go(func() {
			own, err := watching(rdb)
			if err != nil {
				return // the clients of the run say so, too
			}
			f.watchServer(ctx, own, beat, long)
			_ = own.Close()
		})
	}
	defer all.Wait()
	for settled := time.Now(); ctx.Err() == nil; {
		due := time.Now().Add(beat)
		pause(ctx, beat)
		now := time.Now()
		if late := now.Sub(due); late > long {
			f.disturbances.overslept(due, now)
		}
		if now.Sub(settled) > time.Second {
			f.settle(now.Add(-2 * time.Second))
			settled = now
		}
	}
}

func (d *disturbances) overslept(due, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.add(stalled, due, now)
	d.stall.Total += now.Sub(due)
	d.stall.Longest = max(d.stall.Longest, now.Sub(due))
}

// answerWithin is how long a server may take before it is asked again.
const answerWithin = time.Second

// watching returns a client of the same server that gives up soon.
func watching(rdb redis.UniversalClient) (redis.UniversalClient, error) {
	var uncounted atomic.Int64
	w := newNetwork(&uncounted)
	w.pool, w.impatient = 1, true
	return w.over(rdb)
}

// watchServer asks a server, or each master of a cluster, again and again.
func (f *fleet) watchServer(ctx context.Context, rdb redis.UniversalClient, beat, long time.Duration) {
	var identity string
	answered := time.Now() // when the last question was sent that was answered
	var last time.Time     // when the server was asked who it is
	for ; ctx.Err() == nil; pause(ctx, beat) {
		asked := time.Now()
		soon, cancel := context.WithTimeout(ctx, answerWithin)
		err := onEach(soon, rdb, func(ctx context.Context, node redis.Cmdable) error { return node.Echo(ctx, "").Err() })
		now := time.Now()
		if refused := redis.Error(nil); errors.As(err, &refused) && !strings.HasPrefix(refused.Error(), "LOADING") {
			err = nil // it may not be asked, but it answers
		}
		if ctx.Err() != nil {
			err = nil
		}
		f.disturbances.asked(answered, asked, now, long, err)
		if err != nil {
			last = time.Time{} // who it is, is asked as soon as it answers
			cancel()
			continue
		}
		if now.Sub(last) >= time.Second {
			who, known := runIDs(soon, rdb)
			if known && identity != "" && who != identity {
				f.disturbances.replaced(answered, time.Now())
			}
			if known {
				identity = who
			}
			last = now
		}
		answered = asked
		cancel()
	}
}

// asked takes in how long an answer took: since answered, if there was none.
func (d *disturbances) asked(answered, asked, now time.Time, long time.Duration, err error) {
	if err == nil {
		answered = asked
	}
	took := now.Sub(answered)
	if took <= long && err == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.add(unanswered, answered, now)
	if d.struck(now) || err == nil && took < silence {
		return
	}
	if err != nil {
		d.outage.Error = err.Error()
		d.outage.Total += now.Sub(asked)
	} else {
		d.outage.Total += took
	}
	d.outage.Longest = max(d.outage.Longest, took)
}

// replaced takes in that a server is another than before.
func (d *disturbances) replaced(since, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.add(unanswered, since, now)
	if !d.struck(now) {
		d.outage.Lost++
	}
}

// runIDs returns what tells one start of a server, or of the masters of a cluster,
// from another.
func runIDs(ctx context.Context, rdb redis.UniversalClient) (ids string, known bool) {
	var mu sync.Mutex
	all := make(map[string]bool)
	err := onEach(ctx, rdb, func(ctx context.Context, node redis.Cmdable) error {
		info, err := node.Info(ctx, "server").Result()
		for line := range strings.Lines(info) {
			if id, found := strings.CutPrefix(strings.TrimSpace(line), "run_id:"); found {
				mu.Lock()
				all[id] = true
				mu.Unlock()
			}
		}
		return err
	})
	return strings.Join(slices.Sorted(maps.Keys(all)), " "), err == nil && len(all) > 0
}
