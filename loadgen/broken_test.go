package loadgen

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/loadgen/oracle"
	"locktop/lock"
)

// flaw is a hand-written lock with one mistake. A nil function is the correct one.
type flaw struct {
	name string
	try  func(ctx context.Context, b *broken, p *heldKey) (bool, error)
	keep func(ctx context.Context, b *broken, p *heldKey) (bool, error)
	free func(ctx context.Context, b *broken, p *heldKey) error

	endless bool // the holder does not look at its deadline
	late    bool // a deadline counts from the reply
	revives bool // a late renewal counts like one in time

	scenario func(*Scenario)
}

// heldKey is what one client holds, or believes that it holds.
type heldKey struct {
	key, token string
	shared     bool
	fence      int64
	flaw       flaw
	broken     *broken
	ended      context.Context
	end        context.CancelFunc

	mu       sync.Mutex
	deadline time.Time
}

func (p *heldKey) Context() context.Context { return p.ended }

func (p *heldKey) Deadline() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.flaw.endless {
		return time.Now().Add(time.Hour)
	}
	return p.deadline
}

func (p *heldKey) Valid() bool {
	return p.ended.Err() == nil && time.Now().Before(p.Deadline())
}

// renew renews the lock until a renewal fails or the lock is released.
func (p *heldKey) renew(ttl time.Duration) {
	for tick := time.NewTicker(ttl / 3); ; {
		select {
		case <-tick.C:
		case <-p.ended.Done():
			tick.Stop()
			return
		}
		sent := time.Now()
		if !p.flaw.revives && !p.flaw.endless && !p.Valid() {
			continue
		}
		kept, err := p.flaw.keep(p.ended, p.broken, p)
		switch {
		case err != nil:
		case !kept:
			p.end()
		default:
			p.mu.Lock()
			if p.flaw.revives || time.Now().Before(p.deadline) {
				p.deadline = sent.Add(ttl)
			}
			p.mu.Unlock()
		}
	}
}

func (p *heldKey) unlock(ctx context.Context) error {
	if err := p.flaw.free(ctx, p.broken, p); err != nil {
		return err
	}
	p.end()
	return nil
}

// broken is a session that locks with a flaw.
type broken struct {
	rdb        redis.UniversalClient
	nodes      []*redis.Client
	scenario   Scenario
	flaw       flaw
	alive      context.Context
	closeConns func() error // nil: another session closes the connection
}

func (f flaw) open(o sessionConfig) (session, error) {
	rdb, err := over(o.network, o.servers.Redis)
	if err != nil {
		return nil, err
	}
	alive, die := context.WithCancel(context.Background())
	b := &broken{rdb: rdb, scenario: o.scenario, flaw: f.withDefaults(), alive: alive}
	for _, n := range o.servers.Nodes {
		b.nodes = append(b.nodes, overNode(o.network, n.(*redis.Client), len(b.nodes)+1))
	}
	b.closeConns = func() error {
		die()
		errs := []error{rdb.Close()}
		for _, n := range b.nodes {
			errs = append(errs, n.Close())
		}
		return errors.Join(errs...)
	}
	return b, nil
}

func (b *broken) as(clientIdentity) session {
	other := *b
	other.closeConns = nil
	return &other
}

func (b *broken) close() error {
	if b.closeConns == nil {
		return nil
	}
	return b.closeConns()
}

func (b *broken) ttl() time.Duration { return b.scenario.Lock.TTL }

func (b *broken) lock(ctx context.Context, keys []string, shared bool) (*lease, error) {
	for ctx.Err() == nil {
		p := &heldKey{key: keys[0], token: strconv.FormatUint(rand.Uint64(), 36), shared: shared, flaw: b.flaw, broken: b}
		sent := time.Now()
		had, err := b.flaw.try(ctx, b, p)
		if err != nil {
			return nil, err
		}
		if b.flaw.late {
			sent = time.Now()
		}
		if had {
			p.ended, p.end = context.WithCancel(b.alive)
			p.deadline = sent.Add(b.ttl())
			if !b.scenario.Lock.Renew.Off {
				go p.renew(b.ttl())
			}
			return &lease{lives: p, token: p.token, fence: p.fence, unlock: p.unlock, kept: p.Valid, latest: p.Deadline}, nil
		}
		pause(ctx, 3*time.Millisecond)
	}
	return nil, fmt.Errorf("%w: %w", lock.ErrHeld, ctx.Err())
}

// The rest is a correct lock.

const compared = `if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end `

func (f flaw) withDefaults() flaw {
	if f.try == nil {
		f.try = func(ctx context.Context, b *broken, p *heldKey) (bool, error) {
			return b.rdb.SetNX(ctx, p.key, p.token, b.ttl()).Result()
		}
	}
	if f.keep == nil {
		f.keep = func(ctx context.Context, b *broken, p *heldKey) (bool, error) {
			return b.rdb.Eval(ctx, compared+`return redis.call('PEXPIRE', KEYS[1], ARGV[2])`, []string{p.key}, p.token, b.ttl().Milliseconds()).Bool()
		}
	}
	if f.free == nil {
		f.free = func(ctx context.Context, b *broken, p *heldKey) error {
			n, err := b.freeQuietly(ctx, p)
			if err == nil && n == 0 {
				p.end()
				return lock.ErrLost // otherwise it would count as a release of the present holder
			}
			return err
		}
	}
	return f
}

// freeQuietly releases the lock and returns the number of deleted keys.
func (b *broken) freeQuietly(ctx context.Context, p *heldKey) (int64, error) {
	return b.rdb.Eval(ctx, compared+`return redis.call('DEL', KEYS[1])`, []string{p.key}, p.token).Int64()
}

// tryOn acquires a lock on the nodes, or releases what it has acquired.
func (b *broken) tryOn(ctx context.Context, p *heldKey, nodes []int) (bool, error) {
	for i, n := range nodes {
		got, err := b.nodes[n].SetNX(ctx, p.key, p.token, b.ttl()).Result()
		if err != nil {
			return false, err
		}
		if !got {
			return false, b.freeOn(ctx, p, nodes[:i])
		}
	}
	return true, nil
}

func (b *broken) freeOn(ctx context.Context, p *heldKey, nodes []int) error {
	for _, n := range nodes {
		if err := b.nodes[n].Eval(ctx, compared+`return redis.call('DEL', KEYS[1])`, []string{p.key}, p.token).Err(); err != nil {
			return err
		}
	}
	return nil
}

// withPartitions disconnects a holder again and again, for longer than its lease.
func withPartitions(s *Scenario) {
	s.Hold = Const(900 * time.Millisecond)
	for at := 200 * time.Millisecond; at < 20*time.Second; at += 1500 * time.Millisecond {
		s.Faults = append(s.Faults, Fault{At: at, Kind: Partition, For: 500 * time.Millisecond})
	}
}

// flaws returns the broken locks.
func flaws() []flaw {
	anyNode := func(n int) []int { return rand.Perm(5)[:n] }
	return []flaw{
		{name: "a SET without NX", try: func(ctx context.Context, b *broken, p *heldKey) (bool, error) {
			return true, b.rdb.Set(ctx, p.key, p.token, b.ttl()).Err()
		}},
		{name: "a plain DEL", free: func(ctx context.Context, b *broken, p *heldKey) error {
			return b.rdb.Del(ctx, p.key).Err()
		}, scenario: func(s *Scenario) {
			s.Lock.Renew.Off, s.Hold = true, Bimodal(50*time.Millisecond, 400*time.Millisecond, 0.3)
		}},
		{name: "a renewal without comparing", revives: true, keep: func(ctx context.Context, b *broken, p *heldKey) (bool, error) {
			return b.rdb.PExpire(ctx, p.key, b.ttl()).Result()
		}, scenario: withPartitions},
		{name: "no deadline", endless: true, scenario: withPartitions},
		{name: "a moment by the client's clock", try: func(ctx context.Context, b *broken, p *heldKey) (bool, error) {
			skew := time.Duration(rand.N(2)) * -time.Second
			return b.rdb.SetArgs(ctx, p.key, p.token, redis.SetArgs{Mode: "NX", ExpireAt: time.Now().Add(b.ttl() + skew)}).Err() == nil, nil
		}, scenario: func(s *Scenario) { s.Lock.TTL = time.Second }},
		{name: "a retry that counts twice", try: func(ctx context.Context, b *broken, p *heldKey) (bool, error) {
			const enter = `if redis.call('EXISTS', KEYS[1]) == 1 and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
				redis.call('HINCRBY', KEYS[1], ARGV[1], 1) return redis.call('PEXPIRE', KEYS[1], ARGV[2])`
			got, err := false, error(nil)
			for range 1 + rand.N(10)/9 { // one reply in ten is lost
				got, err = b.rdb.Eval(ctx, enter, []string{p.key}, p.token, b.ttl().Milliseconds()).Bool()
			}
			return got, err
		}, keep: func(ctx context.Context, b *broken, p *heldKey) (bool, error) {
			return b.rdb.PExpire(ctx, p.key, b.ttl()).Result()
		}, free: func(ctx context.Context, b *broken, p *heldKey) error {
			const leave = `if redis.call('HINCRBY', KEYS[1], ARGV[1], -1) > 0 then return 1 end redis.call('DEL', KEYS[1]) return 0`
			still, err := b.rdb.Eval(ctx, leave, []string{p.key}, p.token).Bool()
			if still {
				err = errors.New("it says that it is still held")
			}
			return err
		}},
		{name: "a release with a dead context", free: func(ctx context.Context, b *broken, p *heldKey) error {
			dead, cancel := context.WithCancel(ctx)
			cancel()
			return b.rdb.Del(dead, p.key).Err()
		}},
		{name: "one TTL for all readers", try: func(ctx context.Context, b *broken, p *heldKey) (bool, error) {
			const read = `if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
				if redis.call('INCR', KEYS[2]) == 1 then redis.call('PEXPIRE', KEYS[2], ARGV[2]) end return 1`
			const write = `if redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
				return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) and 1 or 0`
			script := write
			if p.shared {
				script = read
			}
			return b.rdb.Eval(ctx, script, []string{p.key, p.key + ":readers"}, p.token, b.ttl().Milliseconds()).Bool()
		}, free: func(ctx context.Context, b *broken, p *heldKey) error {
			if p.shared {
				return b.rdb.Eval(ctx, `if redis.call('EXISTS', KEYS[1]) == 1 and redis.call('DECR', KEYS[1]) <= 0 then redis.call('DEL', KEYS[1]) end`,
					[]string{p.key + ":readers"}).Err()
			}
			return b.rdb.Del(ctx, p.key).Err()
		}, scenario: func(s *Scenario) {
			s.Lock.Kind, s.Reads, s.Hold, s.Lock.Renew.Off = RW, 0.7, Dist{Shape: ShapeUniform, Low: 100 * time.Millisecond, High: 280 * time.Millisecond}, true
		}},
		{name: "no quorum", try: func(ctx context.Context, b *broken, p *heldKey) (bool, error) {
			return b.tryOn(ctx, p, anyNode(2))
		}, free: func(ctx context.Context, b *broken, p *heldKey) error {
			return b.freeOn(ctx, p, []int{0, 1, 2, 3, 4})
		}, scenario: func(s *Scenario) { s.Lock.Renew.Off = true }},
		{name: "a validity that counts from the reply", late: true, scenario: func(s *Scenario) {
			s.Lock.Renew.Off, s.Hold = true, Const(time.Second)
			s.Faults = []Fault{{Kind: Slow, Clients: 3, Delay: 200 * time.Millisecond, For: 20 * time.Second}}
		}},
		{name: "the largest counter of one's own quorum", try: func(ctx context.Context, b *broken, p *heldKey) (bool, error) {
			nodes := anyNode(3)
			got, err := b.tryOn(ctx, p, nodes)
			for _, n := range nodes {
				if got && err == nil {
					var count int64
					count, err = b.nodes[n].Incr(ctx, p.key+":counter").Result()
					p.fence = max(p.fence, count)
				}
			}
			return got, err
		}, free: func(ctx context.Context, b *broken, p *heldKey) error {
			return b.freeOn(ctx, p, []int{0, 1, 2, 3, 4})
		}, scenario: func(s *Scenario) { s.Lock.Renew.Off, s.Hold = true, Const(0) }},
		{name: "a renewal that makes the lock anew", revives: true, free: func(ctx context.Context, b *broken, p *heldKey) error {
			_, err := b.freeQuietly(ctx, p) // its release does not report that there was nothing to release
			return err
		}, keep: func(ctx context.Context, b *broken, p *heldKey) (bool, error) {
			return b.rdb.Eval(ctx, `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
				return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) and 1 or 0`, []string{p.key}, p.token, b.ttl().Milliseconds()).Bool()
		}, scenario: func(s *Scenario) {
			withPartitions(s)
			s.Hold = Bimodal(2*time.Millisecond, 900*time.Millisecond, 0.5)
		}},
		{name: "one token for all locks of a process", try: func(ctx context.Context, b *broken, p *heldKey) (bool, error) {
			p.token = fmt.Sprintf("process-%p", b)
			return b.rdb.SetNX(ctx, p.key, p.token, b.ttl()).Result()
		}, scenario: func(s *Scenario) {
			s.Lock.Renew.Off, s.Hold = true, Const(100*time.Millisecond)
			for at := 100 * time.Millisecond; at < 20*time.Second; at += time.Second {
				s.Faults = append(s.Faults, Fault{At: at, Kind: Leak, For: 200 * time.Millisecond})
			}
		}},
	}
}

// openNoNX opens a session that locks with a plain SET: every acquire succeeds at once.
var openNoNX = flaws()[0].open

// foundSoon are the flaws that the oracle reports within a second, nearly always.
var foundSoon = []string{"a SET without NX", "a moment by the client's clock", "no quorum", "one TTL for all readers", "a release with a dead context", "one token for all locks of a process"}

// Scenario 110, promise P12: thirteen common mistakes. The oracle or the proof
// reports each of them within a minute. The first tier has six of them.
func TestTheBrokenLocksAreFlagged(t *testing.T) {
	t.Parallel()
	one := Servers{Redis: connect(t, servertest.RedisForTest(t).Addr())}
	five := nodesForTest(t)
	all := flaws()
	check.Require(t, len(all) == 13, "there are %d", len(all))
	for _, f := range all {
		t.Run(strings.ReplaceAll(f.name, " ", "-"), func(t *testing.T) {
			if !slices.Contains(foundSoon, f.name) {
				testtier.Long(t, "it runs a load until a rare mistake is found")
			}
			t.Parallel()
			s := Scenario{
				Lock: Lock{TTL: 300 * time.Millisecond}, Keys: Keys{N: 1}, Clients: 6,
				Hold: Const(10 * time.Millisecond), Think: Exp(10 * time.Millisecond), Duration: 20 * time.Second,
			}
			if f.scenario != nil {
				f.scenario(&s)
			}
			on := five
			on.Redis = one.Redis
			if took, how := runUntilFlagged(t, on, f, s); how == "" {
				t.Errorf("not flagged within %s", took)
			} else {
				t.Logf("flagged after %s: %s", took.Round(10*time.Millisecond), how)
			}
		})
	}
}

// runUntilFlagged runs a lock until the oracle or the proof reports a violation, and
// returns how it was found. The parts of the run are short enough to be proved.
func runUntilFlagged(t *testing.T, on Servers, f flaw, s Scenario) (time.Duration, string) {
	t.Helper()
	began := time.Now()
	for part := 1; time.Since(began) < time.Minute; part++ {
		r := check.Must(newRun(on, s, f.open))(t)
		var h oracle.History
		r.Record(&h)
		check.NoError(t, r.Start())
		over := time.After(time.Duration(part) * 2 * time.Second)
		m := r.Metrics()
		for waiting := true; waiting && m.Violations.Overlap.Count+m.Violations.ForeignUnlock.Count+m.Violations.StuckKey.Count == 0; m = r.Metrics() {
			select {
			case <-over:
				waiting = false
			case <-time.After(10 * time.Millisecond):
			}
		}
		_ = r.Close() // it may be unable to release what it holds
		took := time.Since(began)
		switch proof := h.Prove(); {
		case m.Violations.Overlap.Count+m.Violations.ForeignUnlock.Count+m.Violations.StuckKey.Count > 0:
			return took, fmt.Sprintf("%d overlaps, %d foreign unlocks, %d keys stuck", m.Violations.Overlap.Count, m.Violations.ForeignUnlock.Count, m.Violations.StuckKey.Count)
		case proof.Known && !proof.Sound:
			return took, proof.String()
		}
	}
	return time.Since(began), ""
}

// The same lock without a mistake is not reported, though its holders are
// disconnected as often. Promise P12.
func TestTheSameLockWithoutAMistakeIsNotFlagged(t *testing.T) {
	testtier.Long(t, "it runs a sound lock for seconds")
	t.Parallel()
	on := Servers{Redis: connect(t, servertest.RedisForTest(t).Addr())}
	s := Scenario{
		Lock: Lock{TTL: 300 * time.Millisecond}, Keys: Keys{N: 1}, Clients: 6, Think: Exp(10 * time.Millisecond), Duration: time.Duration(testtier.Size(2, 4, 4)) * time.Second,
	}
	withPartitions(&s)
	s.Hold = Bimodal(2*time.Millisecond, 900*time.Millisecond, 0.5)
	r := check.Must(newRun(on, s, flaw{name: "none"}.open))(t)
	var h oracle.History
	r.Record(&h)
	running(t, r)
	<-r.Done()
	m := r.Metrics()
	check.True(t, m.Violations.Overlap.Count+m.Violations.ForeignUnlock.Count+m.Violations.StuckKey.Count == 0 && m.Acquired >= 3,
		"%d acquired: %s %v", m.Acquired, m.Verdict(s).Text(), m.Violations.Evidence)
	p := h.Prove()
	check.True(t, p.Sound, "%v", p)
}
