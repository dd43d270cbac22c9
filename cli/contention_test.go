package cli

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"locktop/cli/render"
	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/keyspace"
	"locktop/keyspace/formats"
	"locktop/keyspace/inspect"
)

// loadEvent is an event of a load that the test needs.
type loadEvent struct {
	At    time.Time
	Event string
	Owner string
}

// waited returns how long the clients of a load waited within a span, all together.
func waited(events []loadEvent, from, until time.Time) (sum time.Duration) {
	since := make(map[string]time.Time)
	for _, e := range events {
		switch e.Event {
		case "arrive":
			since[e.Owner] = e.At
		case "acquire", "timeout":
			if span := min(e.At.Sub(from), until.Sub(from)) - max(since[e.Owner].Sub(from), 0); span > 0 {
				sum += span
			}
			delete(since, e.Owner)
		}
	}
	for _, began := range since {
		sum += max(0, until.Sub(from)-max(began.Sub(from), 0))
	}
	return sum
}

// At least half of the waiting is seen, and no more than half too much: a busy machine reads some holds late, and the
// span is short. TestContentionSeesTheWaitsOfAnyPoll of lab/proofs compares each waiter, holder and key, over a longer one.
func TestContentionSeesTheWaitsOfALoad(t *testing.T) {
	t.Parallel()
	addr := servertest.RedisForTest(t).Addr()
	file := filepath.Join(t.TempDir(), "events")
	load := spawn(t, "load", "-u", "redis://"+addr, "--duration", "0", "--events", file, "--threshold", "outage.longest < 1m",
		"--clients", "6", "--keys", "1", "--wait", "{poll: 20ms, jitter: 0.2}", "--hold", "exp:15ms", "--think", "10ms")
	d := documentIn[render.ContentionDocument](t, locktop(t, "contention", "--json", "-u", "redis://"+addr, "--monitor", "--for", "400ms"))
	check.Require(t, d.Monitored != nil, "MONITOR did not run: %+v", d)
	load.signal(os.Interrupt)
	load.exits(exitInterrupted)
	from := check.Must(time.Parse(time.RFC3339, d.Monitored.From))(t)
	until := check.Must(time.Parse(time.RFC3339, d.Monitored.Until))(t)
	events := decodedLines[loadEvent](t, readText(t, file))
	slices.SortStableFunc(events, func(a, b loadEvent) int { return a.At.Compare(b.At) })
	var seen time.Duration
	for _, b := range d.BlockedBy {
		for _, w := range b.Waiters {
			check.True(t, slices.ContainsFunc(events, func(e loadEvent) bool { return e.Owner == w.Label }) &&
				slices.ContainsFunc(events, func(e loadEvent) bool { return e.Owner == b.Holder.Label }), "%q waits for %q, which are no clients of the load", w.Label, b.Holder.Label)
			seen += time.Duration(*w.WaitedMS) * time.Millisecond
		}
	}
	all := waited(events, from, until)
	check.True(t, all > 0 && (seen-all).Abs() <= all/2, "%v of %v are seen: %+v", seen, all, d.BlockedBy)
}

// Waiters that the library stores are seen without MONITOR.
func TestContentionShowsStoredWaiters(t *testing.T) {
	t.Parallel()
	addr := servertest.RedisForTest(t).Addr()
	send(t, addr, "SET", "orders:4713", "pay-7:52~01a20e37-d12f-7743-b2a6-c9e1c60bb87b", "PX", 60_000)
	send(t, addr, "ZADD", "{orders:4713}:waiters", 1_700_000_000_000_000, "api-2:17~5f1c2a3b4d5e")
	where := []string{"contention", "-u", "redis://" + addr}
	stored := regexp.MustCompile(`(?m) stored$`)
	got := locktopFor(t, func(got outcome) bool { return stored.MatchString(got.out) }, where...)
	for _, want := range []string{`(?m)^orders:\* +1 +100% +1 +\d\.\d\d s/s +pay-7:52 100% +≥\S+ m?s +≥\S+ m?s +stored$`, `(?m)^pay-7:52 +orders:4713 +1 +\S+ m?s +\S+ m?s +stored$`, `only poll are seen with --monitor`} {
		check.True(t, got.code == exitFine && regexp.MustCompile(want).MatchString(got.out),
			"it ends with %d, and does not print %s:\n%s%s", got.code, want, got.out, got.errors)
	}
	folded := regexp.MustCompile(`^orders:\*;orders:4713;pay-7:52;api-2:17~5f1c2a3b4d5e \d+\n$`)
	got = locktopFor(t, func(got outcome) bool { return folded.MatchString(got.out) }, append(where, "--folded", "orders:*")...)
	check.True(t, folded.MatchString(got.out), "folded it prints %q", got.out)
	got = locktop(t, append(where, "--for", "200ms", "--folded", "other:*")...)
	check.True(t, got.out == "" && got.code == exitFine, "of no lock it prints %q, and ends with %d", got.out, got.code)
}

// An interrupt prints what was seen so far, and ends MONITOR.
func TestAnInterruptPrintsTheContentionSoFar(t *testing.T) {
	t.Parallel()
	addr := aLock(t)
	rdb := namedClient(t, addr, "")
	c := spawn(t, "contention", "--monitor", "--for", "1m", "-u", "redis://"+addr)
	c.errs.sees(t, "watching the locks for 1 m")
	check.True(t, monitors(t, rdb), "MONITOR does not run")
	c.signal(os.Interrupt)
	c.exits(exitInterrupted)
	check.True(t, strings.Contains(c.out.String(), "lock:a"), "it prints %s", c.out)
	eventually(t, func() bool { return !monitors(t, rdb) })
}

// lockInARing lets three threads of Redisson hold a fair lock each, and wait for the next one.
func lockInARing(send func(args ...any)) {
	thread := func(n int) string { return fmt.Sprintf("8743c9c0-0795-4907-87fd-6c719a6b4586:%d", n%3+1) }
	for n := range 3 {
		key := fmt.Sprintf("gate:%d", n+1)
		send("HSET", key, thread(n), "1")
		send("PEXPIRE", key, "600000")
		send("RPUSH", "redisson_lock_queue:{"+key+"}", thread(n+2))
		send("ZADD", "redisson_lock_timeout:{"+key+"}", "99999999999999", thread(n+2))
	}
}

// The first scan takes longer than the time to observe the locks, which begins after it.
func TestADeadlockIsFoundAlsoIfTheFirstScanIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := server.NewPiped()
		defer e.Close()
		near := server.NewClient(e.Addr(), server.ClientOptions{Dial: e.Dial})
		defer near.Close()
		lockInARing(func(args ...any) { check.NoError(t, near.Do(t.Context(), args...).Err()) })
		rdb := server.NewClient(e.Addr(), server.ClientOptions{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			select { // ends with ctx, as a real dialer does: go-redis holds a mutex meanwhile, at which the clock of the test stands still
			case <-time.After(3 * time.Second):
				return e.Dial(ctx, network, addr)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}})
		defer rdb.Close()
		live := inspect.StartWatcher(inspect.NewWatcher(inspect.NewScanner(rdb, inspect.ScanOptions{Formats: formats.All()})))
		defer live.Close()
		snap := check.Must(observed(t.Context(), live, time.Second))(t)
		found := keyspace.Findings(snap)
		check.True(t, len(found) == 3 && found[0].ID == "deadlock", "%+v", found)
	})
}

// Two clients that poll for the lock of each other store nothing of their waits: MONITOR alone shows them.
func TestADeadlockOfClientsThatPollIsFound(t *testing.T) {
	t.Parallel()
	addr := servertest.RedisForTest(t).Addr()
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	for _, c := range [][2]string{{"svc-a", "lock:b"}, {"svc-b", "lock:a"}} {
		send(t, addr, "SET", "lock:"+strings.TrimPrefix(c[0], "svc-"), c[0], "PX", 600_000)
		rdb := namedClient(t, addr, c[0])
		go func() {
			for ctx.Err() == nil {
				_ = rdb.SetNX(ctx, c[1], c[0], time.Minute)
				time.Sleep(20 * time.Millisecond)
			}
		}()
	}
	const want = "svc-a waits for lock:b of svc-b, svc-b waits for lock:a of svc-a"
	where := []string{"-u", "redis://" + addr}
	var got outcome
	within(t, longestWait, func() bool { // a span on a busy machine may begin too late
		got = locktop(t, append([]string{"contention", "--monitor", "--for", "3500ms"}, where...)...)
		return strings.Contains(got.errors, want)
	})
	got.says(t, exitFine, "locktop: Possible deadlock between processes: "+want)
	check.True(t, strings.Contains(got.out, "possible-deadlock: Possible deadlock between processes: "+want), "it prints %s", got.out)
	d := documentIn[render.ContentionDocument](t, locktop(t, append([]string{"contention", "--for", "100ms", "--json"}, where...)...))
	check.True(t, len(d.Findings) == 0, "without MONITOR it finds %+v", d.Findings)
	if !testtier.InLong() {
		return
	}
	file := filepath.Join(t.TempDir(), "polls.lockrec")
	locktop(t, append([]string{"record", "--monitor", "--for", "6s", file}, where...)...)
	locktop(t, "explain", file).prints(t, exitFine, "possible-deadlock", "svc-a waits for lock:b, which svc-b holds")
	term := openTerminal(t, 140, 40, append(where, "--monitor")...)
	term.want("Possible deadlock between processes: svc-a").press("o").want("possible deadlock with svc-b").press("enter").want("this is a")
	term.quit()
}

func TestADeadlockOfThreeThreadsIsFound(t *testing.T) {
	long(t, "it watches a deadlock until it is old enough to report")
	addr := servertest.RedisForTest(t).Addr()
	lockInARing(func(args ...any) { send(t, addr, args...) })
	url := "redis://" + addr
	for _, args := range [][]string{{"list", "--stuck", "--for", "1s"}, {"doctor", "--for", "1s"}} {
		out := locktop(t, append(args, "-u", url)...).out
		check.True(t, strings.Contains(out, "gate:2") && strings.Contains(out, "deadlock") && !strings.Contains(out, "possible"), "%v: %s", args, out)
	}
	got := locktop(t, "list", "--stuck", "-u", url)
	check.True(t, strings.Count(got.out, "possible-deadlock") == 3, "a single read: %s%s", got.out, got.errors)
	e := startReadyExport(t, "-u", url)
	within(t, longestWait, func() bool { return e.value("locktop_findings", `finding="deadlock"`) == 3 })
	term := openTerminal(t, 140, 40, "-u", url)
	term.want("Deadlock: 8743c9c0-", "of 8743c9c0-").press("o").want("deadlock with 8743c9c0-")
	term.quit()

	send(t, addr, "DEL", "gate:2") // its holder ends
	within(t, longestWait, func() bool { return e.value("locktop_findings", `finding="deadlock"`) == 0 })
}
