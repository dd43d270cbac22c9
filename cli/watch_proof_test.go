package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/testtier"
	"locktop/keyspace"
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
func watchAsAProgram(t *testing.T, rdb *redis.Client, flags ...string) *witnessed {
	t.Helper()
	cmd := exec.Command("locktop", append([]string{"watch", "--json", "-u", "redis://" + rdb.Options().Addr}, flags...)...)
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
			var c change
			if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
				t.Errorf("it printed %q: %v", lines.Text(), err)
			}
			w.take(c, time.Now())
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

// attend creates a lock, so that the program learns the prefix, and waits until
// the program tracks changes.
func (w *witnessed) attend(t *testing.T, rdb *redis.Client) {
	t.Helper()
	standing := change{keyspace.Discovered, "lock:standing", token, ""}
	check.NoError(t, rdb.Set(t.Context(), standing.Key, token, time.Hour).Err())
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	check.Require(t, w.told(ctx, standing) || w.told(ctx, change{keyspace.Acquired, standing.Key, token, ""}), "it does not see a lock")
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

// told waits until a change was reported or ctx has ended.
func (w *witnessed) told(ctx context.Context, c change) bool {
	for {
		w.mu.Lock()
		n, more := len(w.times[c]), w.more
		w.mu.Unlock()
		if n > 0 {
			return true
		}
		select {
		case <-more:
		case <-ctx.Done():
			return false
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

// trafficOf returns a few seconds of changes that wait for each other. With
// LOCKTOP_PROOF, it returns so many seconds of 2,000 changes per second that do
// not wait, for an idle machine.
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
	rdb  *redis.Client
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
		waiting, stop := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer stop()
		if !w.seen.told(waiting, c) {
			return fmt.Errorf("nobody was told of %v", c)
		}
	}
	time.Sleep(w.pause + rand.N(w.pause/2))
	return nil
}

// The program runs with a server in its default configuration. It reports each
// change once, with the right kind, and at once.
func TestWatchTellsOfEveryChangeOnce(t *testing.T) {
	testtier.Long(t, "it watches thousands of changes")
	rdb := clientWith(t, redis.Options{Addr: server.ForTest(t).Addr(), PoolSize: 64})
	seen := watchAsAProgram(t, rdb)
	compareChanges(t, seen, churn(t, rdb, seen, trafficOf(t)))
}

// churn changes locks, and returns the changes made, with the server's time.
func churn(t *testing.T, rdb *redis.Client, seen *witnessed, o traffic) map[change]time.Time {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), o.lasts)
	defer stop()
	workers := make([]worker, o.workers)
	var all sync.WaitGroup
	for n := range workers {
		w := &workers[n]
		*w = worker{o, rdb, seen, fmt.Sprintf("lock:%d", n), make(map[change]time.Time)}
		all.Go(func() {
			check.ErrorIs(t, w.run(ctx, n), nil)
		})
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
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	counts := make(map[keyspace.EventKind]int)
	var late, expiries []time.Duration
	for c, at := range did {
		if !seen.told(ctx, c) {
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
