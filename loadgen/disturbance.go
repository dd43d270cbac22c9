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

// disturbances sums up what nobody planned: servers that did not answer, and a generator
// without CPU. It tells the oracle of each period. Safe for concurrent use.
type disturbances struct {
	oracle *oracle.Oracle

	mu      sync.Mutex
	silent  map[int]*silent // servers that do not answer now, by number
	faults  int             // faults of the scenario that affect servers now
	faultAt time.Time       // end of the newest one
	outage  Outage
	stall   Stall
}

// silent is a period in which a server has not answered.
type silent struct {
	since  time.Time // when the newest answered request was sent
	latest time.Time // of its errors
	fault  bool      // a fault of the scenario may be the reason
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

// faulted records that a fault of the scenario that affects servers begins, or that one has ended.
func (d *disturbances) faulted(by int, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.faults = max(d.faults+by, 0); by < 0 {
		d.faultAt = now
	}
}

// serverFault reports whether a fault of the scenario affects servers, or did within the
// last second. d.mu must be held.
func (d *disturbances) serverFault(now time.Time) bool {
	return d.faults > 0 || !d.faultAt.IsZero() && d.faultAt.Add(time.Second).After(now)
}

// addTo sets the outage and the stall of m.
func (d *disturbances) addTo(m *Metrics) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m.Outage, m.Stall = d.outage, d.stall
	for _, s := range d.silent {
		m.Outage.add(*s, s.latest)
	}
}

// add adds a period in which a server did not answer.
func (o *Outage) add(s silent, now time.Time) {
	if !s.fault {
		o.Total += now.Sub(s.since)
		o.Longest = max(o.Longest, now.Sub(s.since))
	}
}

// costly reports whether the fault lasts long enough to cost a client of the lock its lease or
// its turn, or its lock.
func (f Fault) costly(l Lock) bool {
	switch f.Kind {
	case ScriptFlush, Greedy, Leak, Skew:
		return false
	case Slow:
		return f.Delay+f.Jitter >= l.costlyDelay()
	case Freeze, Partition, DropReplies, Pause, Stop:
		return f.For == 0 || f.For >= l.costlyDelay()
	}
	return true
}

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
	for server, rdb := range f.janitor.servers {
		all.Go(func() {
			w := newNetwork(new(atomic.Int64))
			w.pool, w.impatient = 1, true // it does not retry
			own, err := over(w, rdb)
			if err != nil {
				return // the clients report the same error
			}
			f.watchServer(ctx, server, own, interval, long)
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
			f.oracle.Settle(now.Add(-2 * time.Second))
			settled = now
		}
	}
}

func (d *disturbances) recordStall(due, now time.Time) {
	d.oracle.Troubled(oracle.Trouble{Cause: oracle.Stalled, Client: oracle.Everybody, Key: oracle.Everybody, From: due, To: now})
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stall.Total += now.Sub(due)
	d.stall.Longest = max(d.stall.Longest, now.Sub(due))
}

// watchServer sends requests to a server, or to each master of a cluster, until ctx
// ends. It records late answers, errors and restarts.
func (f *fleet) watchServer(ctx context.Context, server int, rdb RedisClient, interval, long time.Duration) {
	var identity string
	answered := time.Now() // when the newest answered request was sent
	known := answered      // when the run ID was read
	var last time.Time     // the same; zero = read it next
	for ; ctx.Err() == nil; pause(ctx, interval) {
		asked := time.Now()
		soon, cancel := context.WithTimeout(ctx, time.Second)
		err := onEach(soon, rdb, func(ctx context.Context, node redis.Cmdable) error { return node.Echo(ctx, "").Err() })
		now := time.Now()
		if refused := redis.Error(nil); errors.As(err, &refused) && !strings.HasPrefix(refused.Error(), "LOADING") {
			err = nil // the server answers, even if it refuses
		}
		if ctx.Err() != nil {
			err = nil
		}
		f.disturbances.recordReply(server, answered, asked, now, long, err)
		if err != nil {
			last = time.Time{}
			cancel()
			continue
		}
		if now.Sub(last) >= time.Second {
			ids, ok := runIDs(soon, rdb)
			if ok && identity != "" && ids != identity {
				f.disturbances.recordRestart(server, known, time.Now())
			}
			if ok {
				identity, known = ids, now
			}
			last = now
		}
		answered = asked
		cancel()
	}
}

// recordReply records how long a server took to answer a request. After errors, the time
// begins at answered, when the newest answered request was sent.
func (d *disturbances) recordReply(server int, answered, asked, now time.Time, long time.Duration, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.silent[server]
	if before == nil && err == nil {
		answered = asked
	}
	took := now.Sub(answered)
	if took > long || err != nil {
		d.oracle.Troubled(oracle.Trouble{Cause: oracle.Unanswered, Client: oracle.Everybody, Key: oracle.Everybody, Server: server + 1, From: answered, To: now})
	}
	s := silent{since: answered, latest: now, fault: d.serverFault(now) || before != nil && before.fault}
	if err != nil {
		d.silent[server] = &s
		if !s.fault {
			d.outage.Error = err.Error()
		}
		return
	}
	delete(d.silent, server)
	if before != nil || took >= 500*time.Millisecond {
		d.outage.add(s, now)
	}
}

// recordRestart records that a server was restarted or replaced.
func (d *disturbances) recordRestart(server int, since, now time.Time) {
	d.oracle.Troubled(oracle.Trouble{Cause: oracle.Restarted, Client: oracle.Everybody, Key: oracle.Everybody, Server: server + 1, From: since, To: now})
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.serverFault(now) {
		d.outage.Lost++
	}
}

// runIDs returns the run IDs of a server, or of the masters of a cluster. A restart
// changes them.
func runIDs(ctx context.Context, rdb RedisClient) (ids string, known bool) {
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
