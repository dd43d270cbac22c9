package cli

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
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
