package lock_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/testtier"
	"locktop/lock"
)

// Variables that make the chaos longer and repeat its faults.
const (
	chaosTime = "LOCKTOP_TEST_CHAOS"      // a duration such as 60s; default 4s
	chaosSeed = "LOCKTOP_TEST_CHAOS_SEED" // as printed by an earlier run
)

// No two clients believe at the same moment that they hold a lock, while nodes that
// keep their data are killed, restarted, stopped and continued.
func TestHoldsDoNotOverlapWhileNodesCrashAndFreeze(t *testing.T) {
	testtier.Long(t, "nodes crash and freeze for seconds")
	const clients, transports, keys, enough = 32, 8, 3, 50
	length, seed := chaosSettings(t)
	nodesOnRedis(t, 5, func(r *nodes) {
		var log localState
		short, cancel := context.WithCancel(ctx)
		defer cancel()
		var all sync.WaitGroup
		var q *lock.Quorum
		for i := range clients {
			if i%(clients/transports) == 0 {
				q = r.quorum(lock.QuorumConfig{NodeTimeout: 100 * time.Millisecond})
			}
			rng, me := rand.New(rand.NewPCG(seed, uint64(i))), q.As(fmt.Sprint("client", i))
			all.Go(func() {
				for short.Err() == nil {
					r.believe(short, me, fmt.Sprint("key", rng.IntN(keys)), pauseOf(rng), &log)
				}
			})
		}
		began := time.Now()
		faults := r.nemesis(rand.New(rand.NewPCG(seed, clients)), func() bool {
			return time.Since(began) < length || log.holds() < enough
		})
		cancel()
		all.Wait()
		t.Logf("%v, seed %d: %d holds, %d of them lost, %d faults", time.Since(began), seed, len(log.spans), log.lost, faults)
		for _, overlap := range log.overlaps() {
			t.Error(overlap)
		}
		r.lockable(keys)
	}, "--appendonly", "yes", "--appendfsync", "always")
}

func chaosSettings(t *testing.T) (length time.Duration, seed uint64) {
	t.Helper()
	length, seed = 4*time.Second, rand.Uint64()
	if s := os.Getenv(chaosTime); s != "" {
		d := check.Must(time.ParseDuration(s))(t)
		length = d
	}
	if s := os.Getenv(chaosSeed); s != "" {
		n := check.Must(strconv.ParseUint(s, 10, 64))(t)
		seed = n
	}
	return length, seed
}

// chaosTTL is short, so that leases expire while nodes are down.
const chaosTTL = 500 * time.Millisecond

// pauseOf returns how long to hold a lock: mostly a short time, sometimes several
// renewals.
func pauseOf(rng *rand.Rand) time.Duration {
	if rng.IntN(50) == 0 {
		return time.Duration(rng.Int64N(int64(2 * chaosTTL)))
	}
	return time.Duration(rng.Int64N(int64(5 * time.Millisecond)))
}

// span is a time in which a client believed to hold a lock.
type span struct {
	key      string
	from, to time.Time
	token    string
}

// localState collects spans.
type localState struct {
	mu    sync.Mutex
	spans []span
	lost  int
}

// holds returns how many spans there are.
func (b *localState) holds() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.spans)
}

// believe acquires a lock, holds it, and records how long the client believed to hold
// it.
func (r *nodes) believe(ctx context.Context, q *lock.Quorum, key string, hold time.Duration, log *localState) {
	lease, err := q.Redlock(key, lock.Options{TTL: chaosTTL}).Lock(ctx)
	if err != nil {
		time.Sleep(time.Millisecond) // no quorum, or the end
		return
	}
	s := span{key: key, from: time.Now(), token: lease.Token()}
	for s.to = s.from; s.to.Sub(s.from) < hold; {
		time.Sleep(200 * time.Microsecond)
		now := time.Now()
		if !lease.Valid() {
			break
		}
		s.to = now // it was valid after now
	}
	err = lease.Unlock(context.WithoutCancel(ctx))
	log.mu.Lock()
	defer log.mu.Unlock()
	log.spans = append(log.spans, s)
	if errors.Is(err, lock.ErrLost) {
		log.lost++
	}
}

// overlaps returns the pairs of spans that overlap.
func (b *localState) overlaps() []string {
	slices.SortFunc(b.spans, func(x, y span) int {
		return cmp.Or(cmp.Compare(x.key, y.key), x.from.Compare(y.from))
	})
	var found []string
	for i := 1; i < len(b.spans); i++ {
		x, y := b.spans[i-1], b.spans[i]
		if x.key == y.key && y.from.Before(x.to) {
			found = append(found, fmt.Sprintf("%s: %s had it for another %v when %s got it", x.key, x.token, x.to.Sub(y.from), y.token))
		}
		if x.key == y.key && y.to.Before(x.to) {
			b.spans[i].to = x.to // the longest so far, for the next one
		}
	}
	return found
}

// nemesis disturbs nodes at random moments while goOn returns true, then repairs all.
// It returns the number of faults. Mostly it leaves a quorum, but not always.
func (r *nodes) nemesis(rng *rand.Rand, goOn func() bool) (faults int) {
	cures := make([]func(...int), len(r.children)) // the fault of a node, by its repair; nil = none
	var sick []int                                 // the longest first
	heal := func() {
		cures[sick[0]](sick[0])
		cures[sick[0]], sick = nil, sick[1:]
	}
	for goOn() {
		i, harm := rng.IntN(len(cures)), rng.IntN(4)
		switch {
		case cures[i] != nil || len(sick) >= 2 && harm > 0:
			heal()
		case harm%2 == 0:
			r.kill(i)
			cures[i], sick, faults = r.restart, append(sick, i), faults+1
		default:
			r.freeze(i)
			cures[i], sick, faults = r.resume, append(sick, i), faults+1
		}
		time.Sleep(time.Duration(rng.Int64N(int64(chaosTTL / 2))))
	}
	for len(sick) > 0 {
		heal()
	}
	return faults
}

// lockable checks that every key can be acquired after the faults.
func (r *nodes) lockable(keys int) {
	r.Helper()
	q := r.quorum(lock.QuorumConfig{NodeTimeout: r.nodeTimeout()})
	for i := range keys {
		key := fmt.Sprint("key", i)
		r.until(key+" to be free", func() bool {
			lease, err := q.Redlock(key, lock.Options{}).TryLock(ctx)
			return err == nil && lease.Unlock(ctx) == nil
		})
	}
}
