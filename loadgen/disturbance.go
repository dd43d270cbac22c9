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

	"locktop/loadgen/oracle"
)

// disturbances are the periods in which a cause outside the lock may have cost a client
// its lease or its place in a queue: a fault, a server that did not answer or lost its
// data, or a generator without CPU. Safe for concurrent use.
type disturbances struct {
	aftermath time.Duration // how long after its end a disturbance may have effects

	mu     sync.Mutex
	all    []disturbance
	outage Outage
	stall  Stall
}

// disturbance is one such period.
type disturbance struct {
	kind     string
	client   int // oracle.Everybody = all
	from, to time.Time
	lasting  bool
}

// Outage sums up the times in which servers did not answer.
type Outage struct {
	Total   time.Duration // time without an answer, outside the faults of the scenario
	Longest time.Duration
	Lost    int    // how often a server was restarted or replaced
	Error   string // newest error, "" if there is none; may hold bytes from the server
}

// Stall sums up the times in which the generator did not run.
type Stall struct {
	Total, Longest time.Duration
}

func (d *disturbances) begin(kind string, client int, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, disturbance{kind: kind, client: client, from: now, lasting: true})
}

// end ends the oldest active disturbance of this kind and client.
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

// add adds a disturbance that is over. It joins two of the same kind with a short time
// between them. d.mu must be held.
func (d *disturbances) add(kind string, from, to time.Time) {
	if n := len(d.all); n > 0 {
		if last := &d.all[n-1]; last.kind == kind && last.client == oracle.Everybody && !last.lasting && from.Sub(last.to) < d.aftermath {
			last.to = to
			return
		}
	}
	d.all = append(d.all, disturbance{kind: kind, client: oracle.Everybody, from: from, to: to})
}

// explain reports whether a disturbance may have caused a violation at the time at. The
// violation concerns one client, or oracle.Everybody. The disturbance must affect that client
// and must not have ended long before since.
func (d *disturbances) explain(client int, since, at time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, one := range d.all {
		mine := one.client == client || one.client == oracle.Everybody || client == oracle.Everybody
		if mine && !one.from.After(at) && (one.lasting || one.to.Add(d.aftermath).After(since)) {
			return true
		}
	}
	return false
}

// serverFault reports whether a fault of the scenario affects servers, or did within the
// last second. d.mu must be held.
func (d *disturbances) serverFault(now time.Time) bool {
	for _, one := range d.all {
		if one.client == oracle.Everybody && FaultKind(one.kind).costsLease() && (one.lasting || one.to.Add(time.Second).After(now)) {
			return true
		}
	}
	return false
}

// addTo sets the outage and the stall of m.
func (d *disturbances) addTo(m *Metrics) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m.Outage, m.Stall = d.outage, d.stall
}

// costsLease reports whether a fault of the kind can cost a client its lease.
func (k FaultKind) costsLease() bool {
	return !slices.Contains([]FaultKind{"", stalled, unanswered, ScriptFlush, Greedy, Leak, Skew}, k)
}

// Kinds of disturbances that are not faults.
const (
	stalled    = "stall"  // the generator did not run
	unanswered = "outage" // a server did not answer
)

// silence is how long a server may take to answer without an outage in the report.
const silence = 500 * time.Millisecond

// claimTime is how long a client of a fair lock has to take a lock that was handed over
// to it. After that, the lock serves the next waiter.
const claimTime = time.Second

// costlyDelay returns the shortest stall or silence that may cost a client its lease or its
// turn: 1/8 of the time that the client has, at least 10 ms.
func (l Lock) costlyDelay() time.Duration {
	has := l.TTL
	if l.Kind == Fair {
		has = min(has, claimTime)
	}
	return max(has/8, 10*time.Millisecond)
}

// watch checks until ctx ends that this process gets its CPU and that the servers
// answer. Every second, it settles the suspects of the oracle.
func (f *fleet) watch(ctx context.Context) {
	l := f.scenario.Load().Lock
	interval := min(max(l.TTL/20, 5*time.Millisecond), 100*time.Millisecond)
	long := l.costlyDelay()
	var all sync.WaitGroup
	for _, rdb := range f.janitor.servers {
		all.Go(func() {
			own, err := watching(rdb)
			if err != nil {
				return // the clients report the same error
			}
			f.watchServer(ctx, own, interval, long)
			_ = own.Close()
		})
	}
	defer all.Wait()
	for settled := time.Now(); ctx.Err() == nil; {
		due := time.Now().Add(interval)
		pause(ctx, interval)
		now := time.Now()
		if late := now.Sub(due); late > long {
			f.disturbances.recordStall(due, now)
		}
		if now.Sub(settled) > time.Second {
			f.settle(now.Add(-2 * time.Second))
			settled = now
		}
	}
}

func (d *disturbances) recordStall(due, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.add(stalled, due, now)
	d.stall.Total += now.Sub(due)
	d.stall.Longest = max(d.stall.Longest, now.Sub(due))
}

// answerWithin bounds one request to a server.
const answerWithin = time.Second

// watching returns a client of the same server that does not retry.
func watching(rdb redis.UniversalClient) (redis.UniversalClient, error) {
	var uncounted atomic.Int64
	w := newNetwork(&uncounted)
	w.pool, w.impatient = 1, true
	return w.over(rdb)
}

// watchServer sends requests to a server, or to each master of a cluster, until ctx
// ends. It records late answers, errors and restarts.
func (f *fleet) watchServer(ctx context.Context, rdb redis.UniversalClient, interval, long time.Duration) {
	var identity string
	answered := time.Now() // when the newest answered request was sent
	var last time.Time     // when the run ID was read; zero = read it next
	for ; ctx.Err() == nil; pause(ctx, interval) {
		asked := time.Now()
		soon, cancel := context.WithTimeout(ctx, answerWithin)
		err := onEach(soon, rdb, func(ctx context.Context, node redis.Cmdable) error { return node.Echo(ctx, "").Err() })
		now := time.Now()
		if refused := redis.Error(nil); errors.As(err, &refused) && !strings.HasPrefix(refused.Error(), "LOADING") {
			err = nil // the server answers, even if it refuses
		}
		if ctx.Err() != nil {
			err = nil
		}
		f.disturbances.recordReply(answered, asked, now, long, err)
		if err != nil {
			last = time.Time{}
			cancel()
			continue
		}
		if now.Sub(last) >= time.Second {
			ids, known := runIDs(soon, rdb)
			if known && identity != "" && ids != identity {
				f.disturbances.recordRestart(answered, time.Now())
			}
			if known {
				identity = ids
			}
			last = now
		}
		answered = asked
		cancel()
	}
}

// recordReply records how long a server took to answer. After an error, the time begins at
// answered, the newest request with an answer.
func (d *disturbances) recordReply(answered, asked, now time.Time, long time.Duration, err error) {
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
	if d.serverFault(now) || err == nil && took < silence {
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

// recordRestart records that a server was restarted or replaced.
func (d *disturbances) recordRestart(since, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.add(unanswered, since, now)
	if !d.serverFault(now) {
		d.outage.Lost++
	}
}

// runIDs returns the run IDs of a server, or of the masters of a cluster. A restart
// changes them.
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
