package cli

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/testtier"
	"locktop/keyspace"
)

// How a hold really ended.
const (
	honestly    = "released by its holder"
	overwritten = "overwritten"
)

// overwrite sets a held lock, as another client that does not look.
var overwrite = redis.NewScript(`local was = redis.call('GET', KEYS[1]) if was then redis.call('SET', KEYS[1], ARGV[1], 'PX', 60000) end return was`)

// proofRate is the number of holds that begin per second, of 20,000.
type proofRate struct {
	rdb     *redis.Client
	perSec  int
	holds   int64
	began   time.Time
	next    atomic.Int64
	mu      sync.Mutex
	did     map[change]bool   // acquired, renewed
	ended   map[change]string // how, by key and holder
	handed  map[change]bool   // released while another client polled
	pollers map[string]int    // that wait for a key
}

const leftToExpire = "left to expire"

// knownKey is a lock beside those of a proof.
const knownKey = "lock:proof:known"

// begin waits until the watch reports each change of keys with the prefix of the proof: before,
// only a scan finds a lock, and what happens to it meanwhile may be missed.
func (p *proofRate) begin(t *testing.T, seen *witnessed) {
	for n := range 100 {
		token := fmt.Sprintf("6ba7b810-9dad-41d1-80b4-e%011x", n)
		check.NoError(t, p.rdb.Set(t.Context(), knownKey, token, time.Minute).Err())
		time.Sleep(50 * time.Millisecond) // the work under the lock
		check.NoError(t, p.rdb.Del(t.Context(), knownKey).Err())
		time.Sleep(100 * time.Millisecond)
		if all := seen.all(); len(all[change{keyspace.Acquired, knownKey, token, ""}]) == 1 && len(all[change{keyspace.Released, knownKey, token, ""}]) == 1 {
			p.began = time.Now()
			return
		}
	}
	t.Fatal("the watch does not see all changes")
}

func (p *proofRate) note(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// work takes turns with others at a key, each turn at its time, until all holds have begun.
func (p *proofRate) work(t *testing.T, key string) {
	ctx := t.Context()
	for {
		n := p.next.Add(1)
		if n > p.holds {
			return
		}
		time.Sleep(time.Until(p.began.Add(time.Duration(n) * time.Second / time.Duration(p.perSec))))
		token := fmt.Sprintf("6ba7b810-9dad-41d1-80b4-%012x", n)
		ttl := time.Minute
		if n%10 == 0 {
			ttl = 200 * time.Millisecond
		}
		p.note(func() { p.pollers[key]++ })
		for !p.rdb.SetNX(ctx, key, token, ttl).Val() {
			time.Sleep(time.Duration((0.5 + rand.Float64()) * float64(25*time.Millisecond)))
			if t.Failed() {
				return
			}
		}
		p.note(func() {
			p.pollers[key]--
			p.did[change{keyspace.Acquired, key, token, ""}] = true
		})
		time.Sleep(50 * time.Millisecond) // the work under the lock
		if n%10 == 1 {
			check.ErrorIs(t, p.rdb.PExpire(ctx, key, 90*time.Second).Err(), nil)
			p.note(func() { p.did[change{keyspace.Renewed, key, token, ""}] = true })
			time.Sleep(50 * time.Millisecond)
		}
		how, hold := honestly, change{Key: key, Holder: token}
		switch {
		case n%10 == 0:
			how = leftToExpire
		case n%10 == 2:
			thief := fmt.Sprintf("6ba7b810-9dad-41d1-80b4-f%011x", n)
			check.ErrorIs(t, overwrite.Run(ctx, p.rdb, []string{key}, thief).Err(), nil)
			p.note(func() {
				p.ended[hold] = overwritten
				p.did[change{keyspace.Acquired, key, thief, ""}] = true
			})
			hold.Holder, token = thief, thief
			time.Sleep(50 * time.Millisecond)
			fallthrough
		default:
			p.note(func() { p.handed[hold] = p.pollers[key] > 0 })
			n, err := freeIfMine.Run(ctx, p.rdb, []string{key}, token).Int()
			check.True(t, err == nil && n == 1, "%s does not hold %s: %v", token, key, err)
		}
		p.note(func() { p.ended[hold] = how })
	}
}

// compare compares what was told with what was done.
func (p *proofRate) compare(t *testing.T, seen *witnessed) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		ends := 0
		for c := range seen.all() {
			if c.Event.Ends() && strings.HasPrefix(c.Key, "lock:proof") && c.Key != knownKey {
				ends++
			}
		}
		if ends >= len(p.ended) {
			break
		}
	}
	told := make(map[change][]keyspace.EventKind)
	missed, invented := 0, 0
	all := seen.all()
	for c, times := range all {
		hold := change{Key: c.Key, Holder: c.Holder}
		switch {
		case !strings.HasPrefix(c.Key, "lock:proof") || c.Key == knownKey:
		case c.Event.Ends():
			told[hold] = append(told[hold], c.Event)
			if p.ended[hold] == "" || len(times) > 1 || len(told[hold]) > 1 {
				t.Logf("invented: %v %d times, %v", c, len(times), told[hold])
				invented++
			}
		case (c.Event == keyspace.Acquired || c.Event == keyspace.Renewed) && (!p.did[c] || len(times) > 1):
			t.Logf("invented: %v %d times", c, len(times))
			invented++
		}
	}
	for c := range p.did {
		if len(all[c]) == 0 {
			t.Logf("missed: %v", c)
			missed++
		}
	}
	sum := make(map[string]map[keyspace.EventKind]int)
	handed, replaced := 0, 0
	for hold, how := range p.ended {
		if sum[how] == nil {
			sum[how] = make(map[keyspace.EventKind]int)
		}
		if len(told[hold]) == 0 {
			t.Logf("missed: the end of %v", hold)
			missed++
			continue
		}
		sum[how][told[hold][0]]++
		if how == honestly && p.handed[hold] {
			handed++
			if told[hold][0] == keyspace.Replaced {
				replaced++
			}
		}
	}
	rate := float64(p.holds) / time.Since(p.began).Seconds()
	t.Logf("%d holds at %.0f/s: %d missed, %d invented; ends %v; of %d honest hand-overs to a poller %d (%.1f%%) were called replaced",
		len(p.ended), rate, missed, invented, sum, handed, replaced, 100*float64(replaced)/float64(max(1, handed)))
	right := sum[overwritten][keyspace.Replaced] + sum[overwritten][keyspace.Stolen]
	if missed+invented > 0 || right != len(p.ended)-total(sum[honestly])-total(sum[leftToExpire]) || sum[leftToExpire][keyspace.Expired] != total(sum[leftToExpire]) {
		t.Errorf("not all was told as it was done")
	}
}

func total(m map[keyspace.EventKind]int) (n int) {
	for _, one := range m {
		n += one
	}
	return n
}

// Of 20,000 holds at each rate every beginning, renewal and end is told once, and every
// overwritten hold as replaced.
func TestEveryHoldIsToldAsItEnded(t *testing.T) {
	testtier.Proof(t, "it takes minutes")
	for _, perSec := range []int{2500, 500, 50} {
		t.Run(fmt.Sprint(perSec), func(t *testing.T) {
			rdb := clientWith(t, redis.Options{Addr: server.ForTest(t).Addr(), PoolSize: 1000})
			seen := watchAsAProgram(t, rdb)
			p := &proofRate{rdb: rdb, perSec: perSec, holds: 20_000,
				did: make(map[change]bool), ended: make(map[change]string), handed: make(map[change]bool), pollers: make(map[string]int)}
			p.begin(t, seen)
			var all sync.WaitGroup
			for n := range perSec / 2 {
				all.Go(func() { p.work(t, fmt.Sprintf("lock:proof:%d", n/2)) })
			}
			all.Wait()
			p.compare(t, seen)
		})
	}
}
