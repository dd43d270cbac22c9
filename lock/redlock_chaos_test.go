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

	"locktop/lock"
)

// The chaos can be made longer, and its faults repeated.
const (
	chaosTime = "LOCKTOP_TEST_CHAOS"      // a duration such as 60s; default 8s
	chaosSeed = "LOCKTOP_TEST_CHAOS_SEED" // as an earlier run printed it
)

// No two clients believe at one moment that they hold a lock, while nodes that
// keep their data are killed, restarted, frozen and continued.
func TestNobodyOverlapsWhileNodesCrashAndFreeze(t *testing.T) {
	const clients, keys = 32, 3
	length, seed := chaosSettings(t)
	nodesOnRedis(t, 5, func(r *nodes) {
		var log belief
		end := time.Now().Add(length)
		short, cancel := context.WithDeadline(ctx, end)
		defer cancel()
		var all sync.WaitGroup
		for i := range clients {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			q := r.quorum(lock.QuorumConfig{NodeTimeout: 50 * time.Millisecond})
			all.Go(func() {
				for short.Err() == nil {
					r.believe(short, q, fmt.Sprint("key", rng.IntN(keys)), pauseOf(rng), &log)
				}
			})
		}
		faults := r.nemesis(short, rand.New(rand.NewPCG(seed, clients)))
		all.Wait()
		t.Logf("%v, seed %d: %d holds, %d of them lost, %d faults", length, seed, len(log.spans), log.lost, faults)
		if len(log.spans) < int(length/time.Second)*10 {
			t.Errorf("only %d holds", len(log.spans))
		}
		for _, overlap := range log.overlaps() {
			t.Error(overlap)
		}
		r.lockable(keys)
	}, "--appendonly", "yes", "--appendfsync", "always")
}

func chaosSettings(t *testing.T) (length time.Duration, seed uint64) {
	t.Helper()
	length, seed = 8*time.Second, rand.Uint64()
	if s := os.Getenv(chaosTime); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil {
			t.Fatal(err)
		}
		length = d
	}
	if s := os.Getenv(chaosSeed); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = n
	}
	return length, seed
}

// chaosTTL is short, so that leases end by themselves while nodes are away.
const chaosTTL = 500 * time.Millisecond

// pauseOf returns how long to hold a lock: mostly shortly, sometimes over several
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

// belief collects spans.
type belief struct {
	mu    sync.Mutex
	spans []span
	lost  int
}

// believe takes a lock, holds it, and notes for how long it was believed in.
func (r *nodes) believe(ctx context.Context, q *lock.Quorum, key string, hold time.Duration, log *belief) {
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

// overlaps returns the pairs of spans that should not be.
func (b *belief) overlaps() []string {
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

// nemesis does something to a node now and then until ctx ends, then puts all
// right. It returns how often it did. Mostly it leaves a quorum, not always.
func (r *nodes) nemesis(ctx context.Context, rng *rand.Rand) (faults int) {
	cures := make([]func(...int), len(r.children)) // what is wrong with a node, by what helps; nil = nothing
	var sick []int                                 // the longest first
	heal := func() {
		cures[sick[0]](sick[0])
		cures[sick[0]], sick = nil, sick[1:]
	}
	for ctx.Err() == nil {
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
		select {
		case <-time.After(time.Duration(rng.Int64N(int64(chaosTTL / 2)))):
		case <-ctx.Done():
		}
	}
	for len(sick) > 0 {
		heal()
	}
	return faults
}

// lockable checks that every key can be had once the dust has settled.
func (r *nodes) lockable(keys int) {
	r.Helper()
	q := r.quorum(lock.QuorumConfig{NodeTimeout: nodeTimeout})
	for i := range keys {
		key := fmt.Sprint("key", i)
		r.until(key+" to be free", func() bool {
			lease, err := q.Redlock(key, lock.Options{}).TryLock(ctx)
			return err == nil && lease.Unlock(ctx) == nil
		})
	}
}
