package simulate

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/netfault"
	"locktop/internal/server"
	"locktop/internal/testtier"
	"locktop/lock"
)

// This simulation has no faults, and looks for stalls. Many callers of a few processes
// compete for one lock under a fake clock. Packets, and the subscriptions of a process, are
// delayed at random. Nobody may wait for a free lock for longer than stallBound.

// stallBound is far more than a hand-over takes, with a few waiters that give up on the
// way, and less than the shortest pause of a waiter that polls.
const stallBound = 60 * time.Millisecond

// readersTurn is how long a writer waits for readers that have given up.
const readersTurn = 100 * time.Millisecond

// maxOvertaken is the number of holds of others, for each caller, while one waits. A fast
// process holds the lock about 200 times while a slow one loses the attempts after which it
// is handed the lock.
const maxOvertaken = 300

// An episode takes contestLength of virtual time, or maxContestHolds.
var (
	contestLength   = time.Duration(testtier.Size(2, 8, 8)) * time.Second
	maxContestHolds = testtier.Size(150, 3000, 3000)
)

func TestSimulationOfContention(t *testing.T) {
	holds := 0
	episodes(t, 500, rand.Uint64N(1<<32), func(t *testing.T, seed uint64) { holds += contend(t, seed) })
	t.Logf("%d holds", holds)
}

// contest is an episode: what its callers compete for.
type contest struct {
	*testing.T
	kind     string
	limit    int           // holders at once
	giveUps  bool          // some callers do not wait for as long as necessary
	hold     time.Duration // longest of a busy caller
	describe string

	mu      sync.Mutex
	epoch   time.Time
	callers []*contestant
	holds   int
	linger  time.Time // holders do not release before
	stop    func()
	failed  bool
}

// contestant is one caller.
type contestant struct {
	name          string
	process       int
	giveUp        func() // if it waits and may give up; else nil
	keys          []string
	exclusive     bool
	waits, inside bool
	since         time.Time // when it began to wait
	passedOver    int       // holds of others that began meanwhile
	entitled      time.Time // since when it waits and the lock is free; zero = it is not
}

var contested = []string{"mutex", "reentrant", "fair", "semaphore", "rw", "writer", "all", "strings"}

func contend(t *testing.T, seed uint64) int {
	choose := rand.New(rand.NewPCG(seed, 0))
	c := &contest{T: t, kind: contested[seed%uint64(len(contested))], limit: 1, epoch: time.Now(), giveUps: choose.IntN(3) > 0,
		hold: []time.Duration{300 * time.Microsecond, 3 * time.Millisecond, 20 * time.Millisecond}[choose.IntN(3)]}
	switch c.kind {
	case "semaphore":
		c.limit = 2
	case "rw": // a turn that readers lose is hidden if they may give up
		c.giveUps = choose.IntN(3) == 0
	}
	slow := []time.Duration{1, time.Millisecond, 5 * time.Millisecond}[choose.IntN(3)]
	c.describe = fmt.Sprintf("%s, subscriptions %v, holds %v, give up %v", c.kind, slow, c.hold, c.giveUps)
	e := server.NewPiped()
	defer e.Close()
	end, stop := context.WithTimeout(context.Background(), contestLength)
	defer stop()
	c.stop = stop
	var all sync.WaitGroup
	var acts []func()
	for p := range 2 + choose.IntN(3) {
		link := netfault.New(e.Dial)
		link.Undelayed = 2                                                                                              // the handshake: go-redis connects under a mutex, which would stop the fake clock
		latency := []time.Duration{10 * time.Microsecond, 200 * time.Microsecond, 2 * time.Millisecond}[choose.IntN(3)] // a near process overtakes a far one
		busy := time.Duration(0)                                                                                        // delays the next packet: a busy process subscribes late
		link.Sent = func(request []byte) {
			if bytes.Contains(request, []byte("subscribe\r\n")) {
				busy = rand.N(slow)
			}
			c.sent(p)
		}
		link.Delay(func() time.Duration {
			delay := busy + rand.N(latency)
			busy = 0
			return delay
		})
		rdb := redis.NewClient(&redis.Options{Addr: e.Addr(), Dialer: link.Dial, DisableIdentity: true})
		client := check.Must(lock.New(rdb, lock.Config{Owner: fmt.Sprint("p", p)}))(t)
		defer func() {
			_ = client.Close()
			_ = rdb.Close()
			link.Thaw()
		}()
		for i := range 1 + choose.IntN(4) {
			who := &contestant{name: fmt.Sprintf("p%d.%d", p, i), process: p}
			c.callers = append(c.callers, who)
			own := rand.New(rand.NewPCG(seed, uint64(1+p*100+i)))
			acts = append(acts, func() { c.act(end, own, client, who) })
		}
	}
	for _, act := range acts {
		all.Go(act)
	}
	all.Wait()
	c.check("the end")
	return c.holds
}

// act runs one caller until end: it is idle, slow, impatient, greedy or busy for a time, then
// again.
func (c *contest) act(end context.Context, choose *rand.Rand, client *lock.Client, who *contestant) {
	for end.Err() == nil {
		phase, stop := context.WithTimeout(end, 100*time.Millisecond+time.Duration(choose.Int64N(int64(1500*time.Millisecond))))
		switch choose.IntN(6) {
		case 0:
			<-phase.Done()
		case 1:
			c.try(end, choose, client, who, 0, 1500*time.Millisecond)
		case 2:
			for c.giveUps && sleep(phase, rand.N(5*time.Millisecond)) {
				c.try(end, choose, client, who, []time.Duration{100 * time.Microsecond, time.Millisecond, 10 * time.Millisecond}[choose.IntN(3)], 1)
			}
		case 3:
			for phase.Err() == nil {
				c.overtake(phase, choose, client, who)
			}
		default:
			patience := []time.Duration{0, 100 * time.Millisecond, time.Second}[choose.IntN(3)]
			pause := []time.Duration{1, 2 * time.Millisecond}[choose.IntN(2)]
			for sleep(phase, rand.N(pause)) {
				c.try(end, choose, client, who, patience, c.hold)
			}
		}
		stop()
	}
}

// try waits for the lock, at most for a random time up to patience, 0 = for as long as
// necessary. It holds the lock for a random time up to hold.
func (c *contest) try(end context.Context, choose *rand.Rand, client *lock.Client, who *contestant, patience, hold time.Duration) {
	ctx, cancel := context.WithCancel(end)
	if c.giveUps && patience > 0 {
		ctx, cancel = context.WithTimeout(end, time.Duration(choose.Int64N(int64(patience))))
	}
	defer cancel()
	var l lock.Locker
	c.note(func() {
		l = c.locker(choose, client, who)
		who.waits, who.since, who.passedOver = true, time.Now(), 0
		if c.giveUps && patience > 0 {
			who.giveUp = cancel
		}
	})
	lease, err := l.Lock(ctx)
	c.check(who.name)
	if err != nil {
		c.note(func() { who.waits, who.giveUp = false, nil })
		check.True(c, ctx.Err() != nil, "%s: %v", who.name, err)
		return
	}
	c.use(end, choose, lease, who, hold)
}

// overtake acquires a lock that is free, which has perhaps just woken another process.
func (c *contest) overtake(end context.Context, choose *rand.Rand, client *lock.Client, who *contestant) {
	var l lock.Locker
	c.note(func() { l = c.locker(choose, client, who) })
	if lease, err := l.TryLock(end); err == nil {
		c.check(who.name)
		hold := time.Millisecond
		if choose.IntN(5) == 0 {
			hold = 100 * time.Millisecond
		}
		c.use(end, choose, lease, who, hold)
	} else {
		sleep(end, time.Millisecond)
	}
}

// use holds a lock for a random time up to hold.
func (c *contest) use(end context.Context, choose *rand.Rand, lease *lock.Lease, who *contestant, hold time.Duration) {
	c.note(func() { c.enter(who) })
	sleep(end, time.Duration(choose.Int64N(int64(hold))))
	c.mu.Lock()
	linger := time.Until(c.linger)
	c.mu.Unlock()
	sleep(end, max(linger, 0))
	c.note(func() { who.inside = false })
	check.ErrorIs(c, lease.Unlock(context.Background()), nil, "%s: unlock", who.name)
}

// sent is called when a process sends a request: often a caller gives up at this moment,
// while the request is on its way.
func (c *contest) sent(process int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, who := range c.callers {
		often := 30
		switch {
		case who.passedOver > 8: // perhaps the request registers its token, to be handed the lock
			often = 3
		case time.Since(who.since) > 5*time.Millisecond: // probably it was woken several times and overtaken
			often = 10
		}
		if who.process == process && who.giveUp != nil && rand.IntN(often) == 0 {
			who.giveUp()
			if often == 3 { // the next release finds what the undo of this request has left
				c.linger = time.Now().Add(50 * time.Millisecond)
			}
		}
	}
}

// enter notes that a caller has acquired the lock.
func (c *contest) enter(who *contestant) {
	who.waits, who.giveUp, who.inside = false, nil, true
	if c.holds++; c.holds == maxContestHolds {
		c.stop()
	}
	for _, other := range c.callers {
		switch {
		case other == who || !overlap(who.keys, other.keys):
		case other.waits:
			other.passedOver++
		case other.inside && c.limit == 1 && (who.exclusive || other.exclusive):
			c.Errorf("%v: %s and %s are inside (%s)", time.Since(c.epoch), who.name, other.name, c.describe)
		}
	}
}

// note changes the state of a caller, and notes since when each waiting caller could
// have the lock.
func (c *contest) note(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
	for _, who := range c.callers {
		held := 0
		for _, other := range c.callers {
			if other.inside && overlap(who.keys, other.keys) {
				held++
			}
		}
		switch {
		case !who.waits || held >= c.limit:
			who.entitled = time.Time{}
		case who.entitled.IsZero():
			who.entitled = time.Now()
		}
	}
}

// check fails the episode if a caller waits although the lock is free. by is the caller
// whose wait has ended.
func (c *contest) check(by string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, who := range c.callers {
		stall, fault := time.Since(who.entitled), ""
		switch {
		case c.failed || !who.waits:
		case !who.entitled.IsZero() && stall > c.bound():
			fault = fmt.Sprintf("the lock is free since %v, until %s", stall, by)
		case c.ordered() && who.passedOver > maxOvertaken*len(c.callers):
			fault = fmt.Sprintf("others acquired it %d times", who.passedOver)
		}
		if fault != "" {
			c.failed = true
			c.Errorf("%v: %s waits for %q since %v, and %s (%s)", time.Since(c.epoch), who.name, who.keys, time.Since(who.since), fault, c.describe)
		}
	}
}

// locker returns the lock that a caller tries to acquire next. The caller holds mu.
func (c *contest) locker(choose *rand.Rand, client *lock.Client, who *contestant) lock.Locker {
	o := lock.Options{TTL: time.Minute}
	kind := c.kind
	switch kind {
	case "strings":
		kind = []string{"mutex", "fair", "all"}[choose.IntN(3)]
	case "rw":
		kind = []string{"reader", "writer", "writer"}[choose.IntN(3)]
	}
	who.keys, who.exclusive = []string{"k"}, kind != "reader"
	var l lock.Locker
	var err error
	switch kind {
	case "mutex":
		l, err = client.Mutex("k", o)
	case "reentrant":
		l, err = client.Reentrant("k", o)
	case "fair":
		l, err = client.Fair("k", o)
	case "semaphore":
		l, err = client.Semaphore("k", c.limit, o)
	case "reader":
		l, _, err = client.RW("k", o)
	case "writer":
		_, l, err = client.RW("k", o)
	default:
		who.keys = [][]string{{"k"}, {"k", "l"}, {"l", "m"}, {"m", "k"}}[choose.IntN(4)]
		l, err = client.All(who.keys, o)
	}
	if err != nil {
		panic(err)
	}
	return l
}

// bound returns for how long the lock may be free while a caller waits.
func (c *contest) bound() time.Duration {
	if c.kind == "rw" && c.giveUps {
		return stallBound + 2*readersTurn // in the second turn readers may give up, too
	}
	return stallBound
}

// ordered reports whether a process is overtaken only a few times. It is not if it waits
// for several keys.
func (c *contest) ordered() bool { return c.kind != "all" && c.kind != "strings" }

func overlap(a, b []string) bool {
	return slices.ContainsFunc(a, func(key string) bool { return slices.Contains(b, key) })
}
