package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"locktop/cli/render"
	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/keyspace"
	"locktop/keyspace/formats"
)

// healthy creates locks of six libraries without findings.
func healthy(t *testing.T, rdb server.Client, locks int) {
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

// The question before an extend names a deadline, and the server then has it. No extend moves
// a deadline towards now: the permits of a semaphore end together, after the last of them.
func TestTheDeadlineThatAnExtendNamesIsThatOfTheServer(t *testing.T) {
	t.Parallel()
	const first, last = "\x8a\x1f\xc7\x00\x9b\xe2\x13\xf4\xd0\x81\x07\xee\x5c\xb9\xa4\x21", "\x31\xa9\xfe\x12\x88\xc0\x6d\x9e\x02\xd7\x4b\xff\x95\x10\xe3\x7a"
	named := regexp.MustCompile(`→ .*\(in ([0-9]+ [hd] [0-9]+(?: h)?)\)`)
	now := time.Now()
	for _, c := range []struct {
		key      string
		commands [][]any
		deadline func(server.Client) time.Time
		left     string // after: as long again
	}{
		{"job:report-lock", [][]any{{"SET", "job:report-lock", "worker-3:991", "PX", 7_190_000}}, func(rdb server.Client) time.Time {
			return time.Now().Add(rdb.PTTL(t.Context(), "job:report-lock").Val())
		}, "3 h 59"},
		{"{gpu}:timeout", [][]any{{"SET", "gpu", "0"}, {"ZADD", "{gpu}:timeout", now.Add(7 * time.Hour).UnixMilli(), first, now.Add(14 * time.Hour).UnixMilli(), last}}, func(rdb server.Client) time.Time {
			return time.UnixMilli(int64(rdb.ZScore(t.Context(), "{gpu}:timeout", first).Val()))
		}, "1 d 3 h"},
	} {
		child := servertest.RedisForTest(t)
		rdb := clientTo(t, child.Addr())
		for _, command := range c.commands {
			check.NoError(t, rdb.Do(t.Context(), command...).Err())
		}
		term := openTerminal(t, 140, 40, "--url", "redis://"+child.Addr(), "--write")
		term.want(c.key, "h").press("x").press("e").want("extend " + c.key + "?")
		question := term.screen()
		term.press("y").want("extended " + c.key)
		left := named.FindStringSubmatch(question)
		check.True(t, left != nil && left[1] == c.left, "named is %q, want %s\n%s", left, c.left, question)
		at := c.deadline(rdb).Local().Truncate(time.Second)
		check.True(t, slices.ContainsFunc([]time.Duration{-time.Second, 0, time.Second}, func(d time.Duration) bool {
			return strings.Contains(question, "→ "+at.Add(d).Format("15:04:05")) || strings.Contains(question, "→ "+at.Add(d).Format("2006-01-02 15:04:05"))
		}), "%s ends at %v, which is not named\n%s", c.key, at, question)
		term.quit()
	}
}

// mixedLocks loads 20 locks of at least ten formats, none of which stores when it was acquired.
func mixedLocks(t *testing.T, rdb server.Client) (keys []string) {
	t.Helper()
	now := rdb.Time(t.Context()).Val()
	of := make(map[string]bool)
	for _, f := range formats.All() {
		for _, s := range formats.Samples(f.Name) {
			w := s.Want
			if len(keys) == 20 || len(w.Holders) != 1 || !w.Holders[0].Since.IsZero() || s.TTL == 0 || w.Confidence < keyspace.Likely || w.Stamped || f.Actions == nil || f.Actions.Extend == "" || of[f.Name+"/2"] {
				continue
			}
			if n, _ := rdb.Exists(t.Context(), w.Key).Result(); n > 0 {
				continue // a lock of another sample
			}
			for _, c := range formats.At(s, now).Commands {
				issue(t, rdb, c)
			}
			keys = append(keys, w.Key)
			of[f.Name+"/2"] = of[f.Name]
			of[f.Name] = true
		}
	}
	formats := 0
	for name := range of {
		if !strings.Contains(name, "/") {
			formats++
		}
	}
	check.Require(t, len(keys) >= 20 && formats >= 10, "%d locks of %d formats", len(keys), formats)
	return keys
}

// Locks that are held and renewed since before locktop has started are overdue as soon as
// locktop has seen them for longer than the limit.
func TestLocksHeldBeforeTheStartBecomeOverdue(t *testing.T) {
	long(t, "it waits until locks are overdue")
	addr := servertest.RedisForTest(t).Addr()
	rdb := clientTo(t, addr)
	keys := mixedLocks(t, rdb)
	repeat(t, 300*time.Millisecond, func(ctx context.Context) {
		for _, key := range keys {
			_ = rdb.PExpire(ctx, key, time.Minute).Err() // the test may end
		}
	})
	const limit, observed = "2s", "3s"
	flags := []string{"-u", "redis://" + addr, "--overdue", limit}
	wanted := func(from, text string) {
		t.Helper()
		for _, key := range keys {
			check.True(t, strings.Contains(text, strings.Trim(fmt.Sprintf("%q", key), `"`)), "%s: %q is not overdue:\n%s", from, key, text)
		}
	}
	term := openTerminal(t, 180, 45, flags...)
	exported := append([]string{"--record", filepath.Join(t.TempDir(), "box")}, flags...)
	e := startReadyExport(t, exported...)

	doc, _ := listedOn(t, append([]string{"--stuck", "--for", observed}, flags...)...)
	var listed strings.Builder
	atLeast := 0
	for _, l := range doc.Locks {
		if slices.ContainsFunc(l.Findings, func(f render.Finding) bool { return f.ID == "overdue" }) {
			fmt.Fprintf(&listed, "%q\n", string(l.Key))
			if l.HeldAtLeast {
				atLeast++
			}
		}
	}
	check.True(t, atLeast >= 10, "%d locks are held for an unknown time; the test needs 10", atLeast)
	wanted("list", listed.String())
	wanted("doctor", locktop(t, append([]string{"doctor", "--json", "--for", observed}, flags...)...).out)
	within(t, longestWait, func() bool { return e.value("locktop_findings", `finding="overdue"`) == float64(len(keys)) })
	term.want(fmt.Sprintf("%d findings", len(keys)), "Held for at least", "≥")
	term.quit()

	e.kill() // it loses what it knows, but not its recording
	e = startReadyExport(t, exported...)
	n := e.value("locktop_findings", `finding="overdue"`)
	check.True(t, n == float64(len(keys)), "after a restart %v locks are overdue", n)
}
