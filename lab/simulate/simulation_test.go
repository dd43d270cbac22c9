// Package simulate runs random clients of package lock under a fake clock.
package simulate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/netfault"
	"locktop/internal/server"
	"locktop/internal/testtier"
	"locktop/lab/internal/lockspec"
	"locktop/lock"
)

// The simulation runs many clients of all kinds under a fake clock. They do random
// things over a network that delays, freezes and cuts, on servers that lose keys. It
// compares the leases with the data of the servers. See [simulated].

// Environment variables of the simulation: its duration, and the seed of its first
// episode. The choices of an episode depend only on its seed.
const (
	simulateFor  = "LOCKTOP_SIMULATE"
	simulateSeed = "LOCKTOP_SEED"
)

// An episode takes episodeLength of virtual time, multiplied by its scale. So are
// TTLs, holds and pauses. Timeouts of attempts, the network, and the pauses of waiters
// are not scaled. In short episodes more happens at once; long ones have more that
// takes time.
var episodeLength = time.Duration(testtier.Size(3, 15, 15)) * time.Minute

var scales = []int{1, 20, 200}

func scaleOf(seed uint64) time.Duration { return time.Duration(scales[seed%uint64(len(scales))]) }

func TestSimulation(t *testing.T) {
	virtual, steps := time.Duration(0), 0
	took := episodes(t, 1000, rand.Uint64N(1<<32)*uint64(len(scales)), func(t *testing.T, seed uint64) { // the first episode is short
		steps += simulate(t, seed)
		virtual += scaleOf(seed) * episodeLength
	})
	t.Logf("%v of virtual time (%.0f h a minute), %d attempts", virtual, virtual.Hours()/took.Minutes(), steps)
}

// episodes runs one episode of a simulation after the other, each in a bubble of its own: for 30 ms
// in the first tier, and else for so many. It returns the time that they took.
func episodes(t *testing.T, long int, seed uint64, run func(t *testing.T, seed uint64)) time.Duration {
	length := time.Duration(testtier.Size(30, long, long)) * time.Millisecond
	if d, err := time.ParseDuration(os.Getenv(simulateFor)); err == nil {
		length = d
	}
	if n, err := strconv.ParseUint(os.Getenv(simulateSeed), 10, 64); err == nil {
		seed = n
	}
	began, first := time.Now(), seed
	for ; (seed == first || time.Since(began) < length) && !t.Failed(); seed++ {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { run(t, seed) })
		})
	}
	took := time.Since(began)
	t.Logf("%d episodes from seed %d in %v", seed-first, first, took.Round(time.Millisecond))
	return took
}

// reenterable are the kinds that their owner can enter again.
var reenterable = []string{"reentrant", "reader", "writer"}

const (
	simServers   = 4 // the last three are the nodes of the Redlock
	simProcesses = 3
	simActors    = 12
)

// simulated is the state of an episode.
type simulated struct {
	*testing.T
	scale   time.Duration
	servers []*redis.Client // other clients, without faults
	epoch   time.Time
	step    chan struct{} // something has happened: compare

	mu        sync.Mutex
	processes [simProcesses]*simProcess
	spec      lockspec.Spec
	forgotten map[string]int // number of deletions of a key
	waiting   map[*simWait]bool
	claims    map[string]simClaim // claim of a waiting writer at the last comparison, by key
	faults    int                 // in progress
	healthy   time.Time           // since when there are none
	attempts  int
}

// simProcess is a client, a quorum, and their network.
type simProcess struct {
	number, generation int
	began              time.Time
	links              []*netfault.Network
	via                []*redis.Client
	client             *lock.Client
	quorum             *lock.Quorum
}

// simClaim is the claim of a process's writers to be next.
type simClaim struct {
	id        string
	fence     string // of the last writer
	forgotten int
	at        time.Time
}

// simWait is a call of Lock in progress.
type simWait struct {
	lockspec.Wait
	kind    string
	process *simProcess
}

func simulate(t *testing.T, seed uint64) (attempts int) {
	w := &simulated{T: t, scale: scaleOf(seed), epoch: time.Now(), step: make(chan struct{}, 1),
		spec: lockspec.Spec{Settle: 10 * time.Second, Grace: 5 * time.Second, Bound: 9 * time.Second}, forgotten: map[string]int{}, waiting: map[*simWait]bool{}, claims: map[string]simClaim{}, healthy: time.Now()}
	var embedded []*server.Embedded
	for i := range simServers {
		e := server.NewPiped()
		embedded = append(embedded, e)
		w.servers = append(w.servers, redis.NewClient(&redis.Options{Addr: fmt.Sprintf("127.0.0.1:%d", i+1), Dialer: e.Dial, MaxRetries: -1, DisableIdentity: true}))
	}
	for i := range w.processes {
		w.processes[i] = w.start(i, 0, embedded)
	}
	end, stop := context.WithTimeout(context.Background(), w.scale*episodeLength)
	defer stop()
	var actors, others sync.WaitGroup
	for i := range simActors {
		actors.Go(func() { w.act(end, rand.New(rand.NewPCG(seed, uint64(i))), i, embedded) })
	}
	actors.Go(func() { w.disturb(end, rand.New(rand.NewPCG(seed, 1000))) })
	watched := make(chan struct{})
	others.Go(func() { w.watch(watched) })
	actors.Wait()
	close(watched)
	others.Wait()

	// Nothing happens for the longest TTL: only counters remain.
	time.Sleep(w.scale * 3 * time.Minute)
	synctest.Wait()
	w.lookAt(w.picture())
	for i, rdb := range w.servers {
		for _, left := range lockspec.Litter(rdb) {
			w.violated("all is quiet, and server %d has %s", i, left)
		}
	}
	for _, p := range w.processes {
		w.end(p)
	}
	for i := range w.servers {
		_ = w.servers[i].Close()
		embedded[i].Close()
	}
	return w.attempts
}

// violated fails the episode.
func (w *simulated) violated(format string, args ...any) {
	w.Errorf("%v: %s", time.Since(w.epoch), fmt.Sprintf(format, args...))
}

func (w *simulated) start(number, generation int, embedded []*server.Embedded) *simProcess {
	p := &simProcess{number: number, generation: generation, began: time.Now()}
	for i, e := range embedded {
		link := netfault.New(e.Dial)
		link.Undelayed = 4 // the handshake: go-redis connects under a mutex, which would stop the fake clock
		link.Delay(latency)
		p.links = append(p.links, link)
		p.via = append(p.via, redis.NewClient(&redis.Options{Addr: fmt.Sprintf("127.0.0.1:%d", i+1), Dialer: link.Dial, DisableIdentity: true}))
	}
	var err1, err2 error
	p.client, err1 = lock.New(p.via[0], lock.Config{Owner: p.label(0)})
	p.quorum, err2 = lock.NewQuorum(p.via[1:], lock.QuorumConfig{Config: lock.Config{Owner: p.label(0)}, NodeTimeout: 100 * time.Millisecond})
	check.NoError(w, errors.Join(err1, err2))
	return p
}

// end closes a process.
func (w *simulated) end(p *simProcess) {
	_ = p.client.Close()
	_ = p.quorum.Close()
	for i, link := range p.links {
		link.Refuse(errors.New("gone"))
		link.Cut()
		link.Thaw()
		_ = p.via[i].Close()
	}
}

// label returns the label of an attempt.
func (p *simProcess) label(n int) string { return p.prefix() + strconv.Itoa(n) }

// prefix returns the common prefix of the process's labels.
func (p *simProcess) prefix() string { return fmt.Sprintf("p%d.%d.", p.number, p.generation) }

// simNode reports whether a key belongs to the Redlock, which has several servers.
func simNode(key string) bool { return strings.Contains(key, "q:") }

// act runs one actor until end.
func (w *simulated) act(end context.Context, choose *rand.Rand, number int, embedded []*server.Embedded) {
	kinds := []string{"mutex", "mutex", "fair", "fair", "fair", "reentrant", "reader", "writer", "redlock", "elect", "semaphore", "semaphore", "semaphore", "all", "all"}
	for n := 1; ; n++ {
		if !sleep(end, w.scale*time.Duration(choose.ExpFloat64()*float64(20*time.Second))) {
			return
		}
		kind := kinds[choose.IntN(len(kinds))]
		w.mu.Lock()
		p := w.processes[choose.IntN(simProcesses)]
		if kind == "reader" { // readers are in one process, writers in another: see lookAt
			p = w.processes[1]
		} else if kind == "writer" {
			p = w.processes[0]
		}
		w.attempts++
		w.mu.Unlock()
		if choose.IntN(40) == 0 {
			w.restart(p, embedded)
			continue
		}
		ttl := w.scale * []time.Duration{time.Second, 5 * time.Second, 30 * time.Second}[choose.IntN(3)]
		o := lock.Options{TTL: ttl, Fence: true}
		switch choose.IntN(5) {
		case 0:
			o.Renew = lock.Renew{Off: true}
		case 1:
			o.Renew = lock.Renew{Every: ttl / 8}
		case 2:
			o.Renew = lock.Renew{Max: 1 + choose.IntN(4)}
		}
		if choose.IntN(5) == 0 {
			o.Wait = lock.Wait{Poll: 500 * time.Millisecond, Jitter: 0.5}
		}
		key := choose.IntN(lockspec.Keys)
		label := p.label(number*100_000 + n)
		if kind == "elect" {
			w.elect(end, choose, p, key, o, label)
			continue
		}
		locker, name := lockspec.Locker(p.client, p.quorum, kind, label, key, o)
		w.attempt(end, choose, p, locker, kind, name, label, ttl)
	}
}

// attempt acquires a lock and, if it succeeds, uses it.
func (w *simulated) attempt(end context.Context, choose *rand.Rand, p *simProcess, l lock.Locker, kind, key, label string, ttl time.Duration) {
	timeout := []time.Duration{0, time.Millisecond, 50 * time.Millisecond, time.Second, 30 * time.Second, 2 * time.Minute}[choose.IntN(6)]
	ctx, cancel := context.WithTimeout(end, timeout)
	defer cancel()
	w.wants(kind, key, label, ttl)
	var lease *lock.Lease
	var err error
	if choose.IntN(3) == 0 {
		lease, err = l.TryLock(ctx)
	} else {
		lease, err = w.await(ctx, l, &simWait{lockspec.Wait{Keys: lockspec.Span(key), Limit: lockspec.Limit(kind), Split: simNode(key), Since: time.Now()}, kind, p})
	}
	if (lease == nil) == (err == nil) {
		w.violated("%s %q: %v and %v", kind, key, lease, err)
	}
	if err != nil {
		w.mu.Lock()
		w.spec.Failed(label, time.Now())
		w.mu.Unlock()
		w.happened()
		if kind == "writer" { // the attempt may withdraw the claim of its process: see lookForClaims
			for range 5 {
				time.Sleep(time.Millisecond)
				w.happened()
			}
		}
		return
	}
	w.hold(end, choose, l, w.register(lease, kind, label), kind)
}

// elect campaigns for a lock and leads for random times.
func (w *simulated) elect(end context.Context, choose *rand.Rand, p *simProcess, n int, o lock.Options, label string) {
	ctx, cancel := context.WithTimeout(end, 5*time.Minute) // not scaled: a candidate asks again every second while its server cannot be reached
	defer cancel()
	l, key := lockspec.Locker(p.client, p.quorum, "mutex", label, n, o)
	w.wants("mutex", key, label, o.TTL)
	_ = lock.Elect(ctx, l, func(ctx context.Context) error {
		g := w.register(lock.LeaseFrom(ctx), "mutex", label)
		sleep(ctx, time.Duration(choose.ExpFloat64()*float64(time.Minute)))
		w.mu.Lock()
		w.spec.Ended(g)
		w.mu.Unlock()
		return nil
	})
	w.happened()
}

// await calls Lock and records the call.
func (w *simulated) await(ctx context.Context, l lock.Locker, call *simWait) (*lock.Lease, error) {
	w.mu.Lock()
	w.waiting[call] = true
	w.spec.Waits(&call.Wait)
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.waiting, call)
		w.spec.Waited(&call.Wait)
	}()
	return l.Lock(ctx)
}

// wants records that an attempt begins.
func (w *simulated) wants(kind, key, label string, ttl time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spec.Attempt(label, lockspec.NewAttempt(kind, key, ttl))
}

// register records a new lease.
func (w *simulated) register(lease *lock.Lease, kind, label string) *lockspec.Grant {
	w.mu.Lock()
	defer w.mu.Unlock()
	g := lockspec.NewGrant(lease, kind, label)
	w.breaks(w.spec.Granted(g))
	w.happened()
	return g
}

// breaks fails the episode if the specification says that a promise is broken.
func (w *simulated) breaks(broken []string) {
	for _, promise := range broken {
		w.violated("%s", promise)
	}
}

// hold uses a lease and ends it.
func (w *simulated) hold(end context.Context, choose *rand.Rand, l lock.Locker, g *lockspec.Grant, kind string) {
	lease := g.Lease.(*lock.Lease)
	defer func() {
		w.mu.Lock()
		w.spec.Ended(g)
		w.mu.Unlock()
		w.happened()
	}()
	var entries []*lock.Lease
	for choose.IntN(3) > 0 {
		sleep(end, w.scale*time.Duration(choose.ExpFloat64()*float64(15*time.Second)))
		short, cancel := context.WithTimeout(context.Background(), time.Duration(1+choose.IntN(3000))*time.Millisecond)
		longer := w.scale * time.Duration(1+choose.IntN(60)) * time.Second
		shorter := w.scale * time.Duration(50+choose.IntN(2000)) * time.Millisecond
		switch choose.IntN(5) {
		case 0:
			_ = lease.Extend(short, longer)
		case 1:
			_ = lease.Extend(short, shorter)
		case 2: // both at once: their replies may be processed in any order
			var both sync.WaitGroup
			first, second := longer, shorter
			if choose.IntN(2) == 0 {
				first, second = shorter, longer
			}
			both.Go(func() { _ = lease.Extend(short, second) })
			_ = lease.Extend(short, first)
			both.Wait()
		case 3:
			if slices.Contains(reenterable, kind) {
				if entry, err := l.TryLock(short); err == nil {
					entries = append(entries, entry)
				}
			}
		}
		cancel()
		w.happened()
	}
	sleep(end, w.scale*time.Duration(choose.ExpFloat64()*float64(10*time.Second)))
	if choose.IntN(12) == 0 && !slices.Contains(reenterable, kind) {
		lease = nil
		w.drop(g)
		return
	}
	for _, entry := range append(entries, lease) {
		short, cancel := context.WithTimeout(context.Background(), []time.Duration{0, 10 * time.Millisecond, 5 * time.Second}[choose.IntN(3)])
		_ = entry.Unlock(short)
		cancel()
	}
}

// drop forgets a lease: the garbage collector finds it, and it ends within its TTL.
func (w *simulated) drop(g *lockspec.Grant) {
	w.mu.Lock()
	w.spec.Ended(g)
	w.mu.Unlock()
	g.Lease, g.Ended = nil, nil
	runtime.GC()
}

// restart closes a process and starts it again. If all its servers can be reached, its
// locks are free at once.
func (w *simulated) restart(p *simProcess, embedded []*server.Embedded) {
	w.mu.Lock()
	if w.processes[p.number] != p {
		w.mu.Unlock()
		return
	}
	w.processes[p.number] = w.start(p.number, p.generation+1, embedded)
	calm := w.faults == 0 && time.Since(w.healthy) > 5*time.Second
	w.mu.Unlock()
	prefix := p.prefix()
	var busy sync.WaitGroup
	defer busy.Wait()
	for i, kind := range []string{"mutex", "fair", "reentrant", "writer", "redlock", "semaphore", "all"} { // in progress
		busy.Go(func() {
			label := p.label(90_000_000 + i)
			l, key := lockspec.Locker(p.client, p.quorum, kind, label, i%lockspec.Keys, lock.Options{TTL: w.scale * time.Minute, Fence: true})
			w.wants(kind, key, label, w.scale*time.Minute)
			short, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if lease, err := l.TryLock(short); err == nil {
				_ = lease.Unlock(short)
			}
		})
	}
	var renewing []*lock.Lease
	if rand.N(4) == 0 {
		renewing = w.renewing(p)
	} else {
		time.Sleep(rand.N(5 * time.Millisecond))
	}
	err := errors.Join(p.client.Close(), p.quorum.Close())
	for _, lease := range renewing {
		if lease.Context().Err() == nil {
			w.violated("closed, and the context of %s has not ended", lease.Key())
		}
	}
	w.mu.Lock()
	calm = calm && w.faults == 0
	w.mu.Unlock()
	if calm {
		for _, s := range w.picture() {
			for key, copies := range s.Stored() {
				for _, c := range copies {
					// A lease ends up to 1 % of its TTL before its key.
					if strings.HasPrefix(c.Token, prefix) && c.Left > w.scale*time.Minute/100+2*time.Millisecond {
						w.violated("closed (%v), and %q is held by %s for another %v", err, key, c.Token, c.Left)
					}
				}
			}
		}
	}
	w.end(p)
}

// renewing acquires many locks, which a process renews together, and returns at the
// moment of a renewal.
func (w *simulated) renewing(p *simProcess) []*lock.Lease {
	const every, beats = 6400 * time.Millisecond, 64 // a lock is renewed up to every/20 early
	var mu sync.Mutex
	var leases []*lock.Lease
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			short, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			o := lock.Options{TTL: time.Minute, Renew: lock.Renew{Every: every}}
			m, err := p.client.Mutex(fmt.Sprint("renewing:", i), o)
			if err != nil {
				panic(err)
			}
			if lease, err := m.TryLock(short); err == nil {
				mu.Lock()
				leases = append(leases, lease)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	due := time.Since(p.began) + every - rand.N(every/20)
	time.Sleep(due.Truncate(every/beats) - time.Since(p.began))
	return leases
}

// disturb causes faults at random moments.
func (w *simulated) disturb(end context.Context, choose *rand.Rand) {
	for sleep(end, w.scale*time.Duration(choose.ExpFloat64()*float64(30*time.Second))) {
		w.mu.Lock()
		p := w.processes[choose.IntN(simProcesses)]
		w.mu.Unlock()
		lasting := time.Duration(choose.ExpFloat64() * float64(3*time.Second))
		if choose.IntN(2) == 0 {
			lasting *= w.scale
		}
		s := choose.IntN(simServers)
		link := p.links[s]
		kind := choose.IntN(11)
		if kind == 8 { // not a fault for waiters
			w.takeAway(0, w.wanted(choose))
			w.happened()
			continue
		}
		w.mu.Lock()
		w.faults++
		w.mu.Unlock()
		if kind <= 4 {
			// go-redis connects a subscriber under a mutex. With a slow network,
			// another goroutine that waits for the mutex would stop the fake clock
			// forever.
			link.Refuse(errors.New("connection refused"))
		}
		switch kind {
		case 0, 1:
			slow := []time.Duration{50 * time.Millisecond, 500 * time.Millisecond, 3 * time.Second}[choose.IntN(3)]
			link.Delay(func() time.Duration { return rand.N(slow) })
			sleep(end, 10*lasting)
		case 2:
			link.Freeze()
			sleep(end, lasting)
		case 3, 4:
			link.FreezeReplies()
			sleep(end, lasting)
			if choose.IntN(2) == 0 {
				link.Freeze()
				sleep(end, 5*lasting)
			}
			if choose.IntN(2) == 0 {
				link.Cut() // the replies are lost
			}
		case 5:
			link.Refuse(errors.New("connection refused"))
			link.Cut()
			sleep(end, lasting)
		case 6:
			link.Cut()
		case 7:
			w.servers[s].ScriptFlush(context.Background())
		case 9:
			w.takeAway(s, "")
		case 10:
			w.breakFences(end, lasting)
		}
		link.Thaw()
		link.Delay(latency)
		link.Refuse(nil)
		w.mu.Lock()
		w.faults--
		w.healthy = time.Now()
		w.mu.Unlock()
		w.happened()
	}
}

// latency returns the latency of a network without faults.
func latency() time.Duration { return rand.N(2 * time.Millisecond) }

// wanted returns a key for which a client waits, if there is one.
func (w *simulated) wanted(choose *rand.Rand) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := lockspec.Key(lockspec.Families[choose.IntN(4)], choose.IntN(lockspec.Keys))
	for call := range w.waiting {
		if !call.Split {
			key = call.Keys[0]
		}
	}
	return key
}

// takeAway deletes a key or all keys. It deletes one
// copy of a Redlock if the other two exist.
func (w *simulated) takeAway(s int, key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range lockspec.AllKeys(lockspec.Families) {
		if key != k && (key != "" || (s > 0) != simNode(k)) {
			continue
		}
		w.forgotten[k]++
		w.spec.Deleted(key == "" && s == 0, k)
	}
	switch {
	case key == "":
		w.servers[s].FlushAll(context.Background())
	case s == 0:
		w.servers[s].Del(context.Background(), key)
	}
}

// breakFences sets all fence counters to a value that INCR refuses, for a time.
func (w *simulated) breakFences(end context.Context, lasting time.Duration) {
	ctx, rdb := context.Background(), w.servers[0]
	before := map[string]string{}
	for _, key := range rdb.Keys(ctx, "*fence").Val() {
		before[key] = rdb.SetArgs(ctx, key, "broken", redis.SetArgs{Get: true}).Val()
	}
	sleep(end, lasting)
	for key, value := range before {
		rdb.Set(ctx, key, value, 0)
	}
}

// happened makes watch compare.
func (w *simulated) happened() {
	select {
	case w.step <- struct{}{}:
	default:
	}
}

// watch compares after each step, and in between.
func (w *simulated) watch(over chan struct{}) {
	for {
		timer := time.NewTimer(w.scale * 3 * time.Second)
		select {
		case <-over:
			return
		case <-w.step:
		case <-timer.C:
		}
		timer.Stop()
		synctest.Wait()
		w.lookAt(w.picture())
	}
}

// picture reads all servers at one moment.
func (w *simulated) picture() []lockspec.Picture {
	var all []lockspec.Picture
	for i, rdb := range w.servers {
		families := lockspec.Families[:4]
		if i > 0 {
			families = lockspec.Families[4:]
		}
		all = append(all, lockspec.PictureOf(rdb, families))
	}
	return all
}

// lookAt compares the leases with the data of the servers. Nothing else runs.
func (w *simulated) lookAt(servers []lockspec.Picture) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, calm := time.Now(), w.healthy
	if w.faults > 0 {
		calm = time.Time{}
	}
	var all []lockspec.Stored
	for _, s := range servers {
		all = append(all, s.Stored())
	}
	w.breaks(w.spec.Look(now, calm, all))
	w.lookForClaims(servers[0], w.faults == 0 && now.Sub(w.healthy) > 10*time.Second, now)
}

// lookForClaims checks that a waiting writer keeps its claim until a writer acquires
// the lock, whatever other writers of its process do.
func (w *simulated) lookForClaims(s lockspec.Picture, calm bool, now time.Time) {
	for n := range lockspec.Keys {
		key := lockspec.Key('w', n)
		before, claimed := w.claims[key]
		delete(w.claims, key)
		if !calm {
			continue
		}
		claim := simClaim{fence: s.Fences[key], forgotten: w.forgotten[key], at: now}
		if deadline, id, found := strings.Cut(s.Hashes[key]["q"], ":"); found && lockspec.Lasting("1:"+deadline) > -time.Millisecond {
			claim.id = id
			w.claims[key] = claim
			continue
		}
		if !claimed || before.fence != claim.fence || before.forgotten != claim.forgotten {
			continue
		}
		for call := range w.waiting {
			if call.kind == "writer" && call.Keys[0] == key && call.Since.Before(before.at) && strings.HasPrefix(before.id, call.process.prefix()) {
				w.violated("a writer waits for %q since %v, and its claim %s is gone", key, now.Sub(call.Since), before.id)
			}
		}
	}
}

// sleep sleeps for d, or until end ends.
func sleep(end context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-end.Done():
		return false
	}
}
