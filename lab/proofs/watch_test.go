package proofs

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/keyspace"
	"locktop/lab/internal/labtest"
)

// change is one change of a lock, made or reported.
type change struct {
	Event  keyspace.EventKind
	Key    string
	Holder string
	ID     string // of a finding
}

// witnessed is the output of a running watch, with the time of each line.
type witnessed struct {
	mu    sync.Mutex
	times map[change][]time.Time
	more  chan struct{} // closed and replaced when a line arrives
}

// watchAsAProgram runs locktop watch until the end of the test. It returns when
// the server reports changes to it. It must print nothing on stderr.
func watchAsAProgram(t *testing.T, rdb server.Client, flags ...string) *witnessed {
	t.Helper()
	cmd := labtest.Command(t, append([]string{"watch", "--json", "-u", "redis://" + servertest.AddrOf(rdb)}, flags...)...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	check.NoError(t, err)
	check.NoError(t, cmd.Start())
	w := &witnessed{times: make(map[change][]time.Time), more: make(chan struct{})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var line struct {
				change
				Holder struct{ ID string }
			}
			if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
				t.Errorf("it printed %q: %v", lines.Text(), err)
			}
			line.change.Holder = line.Holder.ID
			w.take(line.change, time.Now())
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		<-done
		_ = cmd.Wait()
		check.True(t, errs.Len() == 0, "it says\n%s", &errs)
	})
	w.attend(t, rdb)
	return w
}

func (w *witnessed) take(c change, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.times[c] = append(w.times[c], now)
	close(w.more)
	w.more = make(chan struct{})
}

const standingToken = "5f0c9a4e-2d3b-4c8a-9e1f-7a6b5c4d3e2f"

// attend creates a lock, so that the program learns the prefix, and waits until the program tracks changes.
func (w *witnessed) attend(t *testing.T, rdb server.Client) {
	t.Helper()
	standing := change{keyspace.Discovered, "lock:standing", standingToken, ""}
	check.NoError(t, rdb.Set(t.Context(), standing.Key, standingToken, time.Hour).Err())
	ctx, stop := context.WithTimeout(t.Context(), labtest.LongestWait)
	defer stop()
	_, told := w.told(ctx, standing, change{keyspace.Acquired, standing.Key, standingToken, ""})
	check.Require(t, told, "it does not see a lock")
	tracks := func() bool { // with one connection, or two while it replaces the first
		info := rdb.Info(ctx, "clients").Val()
		return strings.Contains(info, "tracking_clients:") && !strings.Contains(info, "tracking_clients:0")
	}
	for !tracks() {
		if ctx.Err() != nil {
			t.Fatalf("it does not ask to be told of changes:\n%s\n%s", rdb.Info(t.Context(), "clients"), rdb.ClientList(t.Context()))
		}
		time.Sleep(10 * time.Millisecond)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.times)
}

// told waits until one of the changes was reported, and returns it; false if ctx has ended before.
func (w *witnessed) told(ctx context.Context, changes ...change) (change, bool) {
	for {
		w.mu.Lock()
		first, more := slices.IndexFunc(changes, func(c change) bool { return len(w.times[c]) > 0 }), w.more
		w.mu.Unlock()
		if first >= 0 {
			return changes[first], true
		}
		select {
		case <-more:
		case <-ctx.Done():
			return change{}, false
		}
	}
}

// traffic describes how locks change during a watch.
type traffic struct {
	lasts   time.Duration
	workers int
	pause   time.Duration // after each change, and up to 50% more
	dying   time.Duration // how long the lock of a dead holder lasts
	patient bool          // each change of a lock waits for the report of the one before
}

// trafficOf returns a few seconds of changes that wait for each other. With LOCKTOP_PROOF, it returns so many seconds
// of 2,000 changes per second that do not wait, for an idle machine.
func trafficOf(t *testing.T) traffic {
	t.Helper()
	long := os.Getenv("LOCKTOP_PROOF")
	if long == "" {
		return traffic{lasts: 3 * time.Second, workers: 120, pause: 20 * time.Millisecond, dying: 500 * time.Millisecond, patient: true}
	}
	seconds, err := strconv.Atoi(long)
	check.Require(t, err == nil, "LOCKTOP_PROOF: %v", err)
	return traffic{lasts: time.Duration(seconds) * time.Second, workers: 500, pause: 200 * time.Millisecond, dying: 100 * time.Millisecond}
}

// worker acquires, renews and releases a lock of its own, again and again.
type worker struct {
	traffic
	rdb  server.Client
	seen *witnessed
	key  string
	did  map[change]time.Time // the changes made, with the server's time
}

func (w *worker) run(ctx context.Context, n int) error {
	for round := 0; ctx.Err() == nil; round++ {
		holder := fmt.Sprintf("5f0c9a4e-2d3b-4c8a-9e1f-%06x%06x", n, round)
		end := func() error { return w.do(ctx, keyspace.Released, holder, 0, "DEL", w.key) }
		if (n+round)%4 == 3 { // the lock is left to expire
			end = func() error {
				return w.do(ctx, keyspace.Expired, holder, w.dying, "PEXPIRE", w.key, w.dying.Milliseconds())
			}
		}
		acquired := w.do(ctx, keyspace.Acquired, holder, 0, "SET", w.key, holder, "NX", "PX", 60_000)
		if err := errors.Join(acquired, w.do(ctx, keyspace.Renewed, holder, 0, "PEXPIRE", w.key, 90_000), end()); err != nil {
			return err
		}
	}
	return nil
}

// do sends the command of a change, at once or after a while, and then pauses.
func (w *worker) do(ctx context.Context, kind keyspace.EventKind, holder string, after time.Duration, argv ...any) error {
	c := change{Event: kind, Key: w.key, Holder: holder}
	const script = "redis.call(unpack(ARGV)) local t = redis.call('TIME') return t[1] * 1000000 + t[2]"
	us, err := w.rdb.Eval(context.WithoutCancel(ctx), script, nil, argv...).Int64()
	if err != nil {
		return fmt.Errorf("%v: %w", argv, err)
	}
	w.did[c] = time.UnixMicro(us).Add(after)
	if w.patient {
		waiting, stop := context.WithTimeout(context.WithoutCancel(ctx), labtest.LongestWait)
		defer stop()
		expected := []change{c}
		if kind == keyspace.Released || kind == keyspace.Expired { // a slow machine reads some ends too late to know the reason
			expected = append(expected, change{Event: keyspace.Vanished, Key: c.Key, Holder: c.Holder})
		}
		got, told := w.seen.told(waiting, expected...)
		if !told {
			return fmt.Errorf("nobody was told of %v", c)
		}
		if got != c {
			w.did[got] = w.did[c]
			delete(w.did, c)
		}
	}
	time.Sleep(w.pause + rand.N(w.pause/2))
	return nil
}

// The program runs with a server in its default configuration. It reports each
// change once, with the right kind, and at once.
func TestWatchTellsOfEveryChangeOnce(t *testing.T) {
	testtier.Long(t, "it watches thousands of changes")
	rdb := labtest.Client(t, servertest.RedisForTest(t).Addr(), server.ClientOptions{PoolSize: 64})
	seen := watchAsAProgram(t, rdb)
	compareChanges(t, seen, churn(t, rdb, seen, trafficOf(t)))
}

// churn changes locks, and returns the changes made, with the server's time.
func churn(t *testing.T, rdb server.Client, seen *witnessed, o traffic) map[change]time.Time {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), o.lasts)
	defer stop()
	workers := make([]worker, o.workers)
	var all sync.WaitGroup
	for n := range workers {
		w := &workers[n]
		*w = worker{o, rdb, seen, fmt.Sprintf("lock:%d", n), make(map[change]time.Time)}
		all.Go(func() { check.ErrorIs(t, w.run(ctx, n), nil) })
	}
	all.Wait()
	did := make(map[change]time.Time)
	for _, w := range workers {
		maps.Copy(did, w.did)
	}
	return did
}

// compareChanges compares the reported changes with the real ones.
func compareChanges(t *testing.T, seen *witnessed, did map[change]time.Time) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), labtest.LongestWait)
	defer stop()
	counts := make(map[keyspace.EventKind]int)
	var late, expiries []time.Duration
	for c, at := range did {
		if _, told := seen.told(ctx, c); !told {
			t.Errorf("%v was done, and not told", c)
			continue
		}
		counts[c.Event]++
		by := seen.first(c).Sub(at)
		late = append(late, by)
		if c.Event == keyspace.Expired {
			expiries = append(expiries, by)
		}
	}
	for c, times := range seen.all() {
		_, done := did[c]
		check.True(t, done && len(times) == 1, "%v was told %d times, and done: %v", c, len(times), done)
	}
	check.True(t, counts[keyspace.Vanished] <= len(did)/20 && (!testtier.Proving() || counts[keyspace.Vanished] == 0),
		"%d of %d changes were told as ends for an unknown reason", counts[keyspace.Vanished], len(did))
	t.Logf("%v; late %s; expiries %s", counts, percentiles(late), percentiles(expiries))
	slices.Sort(late)
	p99 := late[len(late)*99/100]
	check.True(t, !testtier.Proving() || p99 <= 50*time.Millisecond, "p99 is %v, want 50ms at the most", p99)
}

func (w *witnessed) first(c change) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.times[c][0]
}

func (w *witnessed) all() map[change][]time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.times)
}

func percentiles(all []time.Duration) string {
	if len(all) == 0 {
		return "none"
	}
	all = slices.Sorted(slices.Values(all))
	return fmt.Sprintf("p50 %v, p99 %v, at most %v (%d)", all[len(all)/2], all[len(all)*99/100], all[len(all)-1], len(all))
}

// How a hold really ended.
const (
	honestly    = "released by its holder"
	overwritten = "overwritten"
)

// overwrite sets a held lock, as another client that does not look.
var overwrite = redis.NewScript(`local was = redis.call('GET', KEYS[1]) if was then redis.call('SET', KEYS[1], ARGV[1], 'PX', 60000) end return was`)

// proofRate is the number of holds that begin per second, of 20,000.
type proofRate struct {
	rdb     server.Client
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
			n, err := labtest.FreeIfMine.Run(ctx, p.rdb, []string{key}, token).Int()
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

// Of 20,000 holds at each rate every beginning, renewal and end is told once, and every overwritten hold as replaced.
func TestEveryHoldIsToldAsItEnded(t *testing.T) {
	testtier.Proof(t, "it takes minutes")
	for _, perSec := range []int{2500, 500, 50} {
		t.Run(fmt.Sprint(perSec), func(t *testing.T) {
			rdb := labtest.Client(t, servertest.RedisForTest(t).Addr(), server.ClientOptions{PoolSize: 1000})
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
