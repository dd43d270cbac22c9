package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/testtier"
)

// healthy creates locks of six libraries without findings.
func healthy(t *testing.T, rdb *redis.Client, locks int) {
	t.Helper()
	ctx := context.Background()
	ms := func(d time.Duration) int64 { return d.Milliseconds() }
	for from := 0; from < locks; from += 1000 {
		_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i := from; i < min(from+1000, locks); i++ {
				ttl := 10*time.Minute + time.Duration(i%50)*time.Second
				token := uuid.NewString()
				switch i % 6 {
				case 0: // Redisson
					key := fmt.Sprintf("orders:%05d", i)
					p.HSet(ctx, key, fmt.Sprintf("%s:%d", token, i%97), 1+i%3)
					p.PExpire(ctx, key, ttl)
				case 1: // hand-written SET NX PX
					p.Do(ctx, "SET", fmt.Sprintf("lock:users:%05d", i), token, "PX", ms(ttl))
				case 2: // redis-py
					p.Do(ctx, "SET", fmt.Sprintf("lock:mail:%05d", i), strings.ReplaceAll(token, "-", ""), "PX", ms(ttl))
				case 3: // locktop
					p.Do(ctx, "SET", fmt.Sprintf("stock:%05d:lock", i), fmt.Sprintf("pay-%d~%s", i%9, uuid.Must(uuid.NewV7())), "PX", ms(ttl))
				case 4: // ShedLock
					p.Do(ctx, "SET", fmt.Sprintf("job-lock:default:report-%05d", i), "ADDED:"+time.Now().UTC().Format("2006-01-02T15:04:05.000Z")+"@batch-57", "PX", ms(ttl))
				default: // Redisson's read/write lock
					key := fmt.Sprintf("rw:catalog:%05d", i)
					holder := fmt.Sprintf("%s:%d", token, i%97)
					p.HSet(ctx, key, "mode", "read", holder, 1)
					p.PExpire(ctx, key, ttl)
					p.Do(ctx, "SET", fmt.Sprintf("{%s}:%s:rwlock_timeout:1", key, holder), 1, "PX", ms(ttl))
				}
			}
			return nil
		})
		check.NoError(t, err)
	}
}

// stuck creates seven locks that block other clients, for four reasons: no
// deadline, a deadline that has passed, a queue whose first waiter is dead, and
// a hold of hours. It returns their keys.
func stuck(t *testing.T, rdb *redis.Client) []string {
	t.Helper()
	ctx, now := context.Background(), time.Now()
	passed := func(ago time.Duration) string { return fmt.Sprint(now.Add(-ago).UnixMilli()) }
	old, err := uuid.NewUUID() // contains the time
	check.NoError(t, err)
	v7 := uuid.Must(uuid.NewV7())
	began := now.Add(-3 * time.Hour).UnixMilli()
	for i := range 6 {
		v7[i] = byte(began >> (40 - 8*i))
	}
	head := "c0f5d9e7-2b1a-4d7e-b7c8-5a9d1e3f4a77:7"
	for _, argv := range [][]any{
		{"SET", "lock:report:weekly", uuid.NewString()},
		{"HSET", "billing:close", old.String() + ":52", 2},
		{"SET", "lock:import:eu", strings.ReplaceAll(uuid.NewString(), "-", "")},
		{"SET", "lock:ledger:close", passed(5 * time.Minute)},
		{"SET", "lock:ledger:open", passed(9 * time.Minute)},
		{"RPUSH", "redisson_lock_queue:{printer:attic}", head},
		{"ZADD", "redisson_lock_timeout:{printer:attic}", passed(time.Minute), head},
		{"SET", "vault:rotation:lock", "ops-3~" + v7.String(), "PX", 60_000_000},
	} {
		check.NoError(t, rdb.Do(ctx, argv...).Err())
	}
	return []string{
		"lock:report:weekly", "billing:close", "lock:import:eu", "lock:ledger:close", "lock:ledger:open",
		"printer:attic", "vault:rotation:lock",
	}
}

// An operator is called because the weekly report does not run, on a server
// with locks of six libraries.
func TestAnOperatorEndsTheRightOneOfTenThousandLocks(t *testing.T) {
	testtier.Long(t, "it runs the program in a terminal, and acquires 10,000 locks")
	t.Parallel()
	srv := server.ForTest(t)
	rdb := clientTo(t, srv.Addr())
	healthy(t, rdb, 10_000)
	wrong := stuck(t, rdb)

	term := openTerminal(t, 160, 45, "-u", "redis://"+srv.Addr(), "--write")
	term.want("10,007 locks", "7 findings")
	wantFirst(t, term, wrong, func(string) bool { return true })

	term.press("5").want("what to do")
	wantFirst(t, term, wrong, func(row string) bool {
		_, sentence, found := strings.Cut(row, "    ")
		return found && strings.HasSuffix(strings.TrimSpace(sentence), ".")
	})

	term.press("1").want("worst first")
	term.pressed = 0
	term.press("/").enter("report:weekly").want("1 of 10,007").press("Enter")
	term.press("x").want("release it").press("r").want("will still believe it holds the lock").press("y").want("released lock:report:weekly")
	check.True(t, term.pressed <= 6, "%d keys were pressed, want 6 at most", term.pressed)
	left, err := rdb.Exists(context.Background(), "lock:report:weekly").Result()
	check.True(t, err == nil && left == 0, "the lock is still there: %d, %v", left, err)

	term.press("Escape").want("10,006 locks", "6 findings").press("/").enter("billing").want("1 of 10,006").press("Enter")
	term.press("x").want("set a deadline").press("d").want("unless").press("y").want("set a deadline of 30 s for billing:close")
	ttl, err := rdb.PTTL(context.Background(), "billing:close").Result()
	check.True(t, err == nil && ttl > 0 && ttl <= 30*time.Second, "it ends in %v, %v; want half a minute at most", ttl, err)
	n, err := rdb.DBSize(context.Background()).Result()
	check.True(t, err == nil && n >= 10_000, "%d keys are left, %v", n, err)
}

// wantFirst expects some locks in the first rows, in any order, and checks each
// row.
func wantFirst(t *testing.T, term *terminal, keys []string, ok func(row string) bool) {
	t.Helper()
	const above = 3 // the header, the summary, the titles
	term.wait(fmt.Sprintf("%q in the first rows", keys), func(screen string) bool {
		lines := strings.Split(screen, "\n")
		if len(lines) < above+len(keys) {
			return false
		}
		for _, key := range keys {
			row := slices.IndexFunc(lines[above:above+len(keys)], func(line string) bool { return strings.Contains(line, key) })
			if row < 0 || !ok(lines[above+row]) {
				return false
			}
		}
		return true
	})
}
