package formats_test

import (
	"crypto/md5"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/keyspace"
	"locktop/keyspace/inspect"
)

// ordinaryClasses are classes of keys that applications have by the thousand, each with the
// command that creates its key with a number, for [ordinary]. None of them is a lock.
var ordinaryClasses = strings.Split(`SET session:%[2]s {"uid":%[1]d,"csrf":"%[1]x7919"} EX 1800
SET session:pointer:%[1]d %[2]s EX 1800
SET idempotency:%[2]s %[3]s EX 200
SET jwt:revoked:%[2]s 1 EX 240
SET api:calls:10.0.%[6]d.%[7]d %[8]d EX 60
SET page:%[1]d %[5]x EX 280
SET fragment:product:%[1]d "<div class=price>19.99</div>" EX 300
HSET user:%[1]d name zoe email z@example.org created_at 176365%04[1]d
HSET cart:%[1]d sku-9 2 sku-10 1
HSET file:%[1]d owner user-%[1]d size %[1]d mime text/html created_at 176365%04[1]d
SET presence:user:%[1]d edge-%[8]d:8080 EX 60
SET worker:%[1]d:heartbeat 176365%04[1]d000 EX 30
HSET worker:%[1]d host node-%[8]d pid 1%02[1]d started 1763651000
SET otp:+43660%07[1]d 1%05[1]d EX 300
SET job:%[1]d:status processing EX 3600
SET order:%[1]d:owner_id 7%03[1]d
ZADD timeline:%[1]d 1763651000000 post-%[1]d
SADD tags:%[1]d red green
RPUSH feed:%[1]d a b
SET flag:%[1]d true
SET route:device:%[4]s 10.0.0.%[7]d:8080 EX 120
SET order:%[1]d:processing 1 EX 250`, "\n")

// ordinary returns the command that creates the key of a class with a number.
func ordinary(t *testing.T, class string, i int) (command []any) {
	t.Helper()
	digest := md5.Sum([]byte{byte(i), byte(i >> 8)})
	for _, word := range argv(t, fmt.Sprintf(class, i, id(i), id(i+1), name(i), digest, i/256, i%256, i%50)) {
		command = append(command, word)
	}
	return command
}

// id returns a UUID with a number.
func id(i int) string {
	return fmt.Sprintf("3f2b8c6a-1d4e-4a7b-9c5d-8e0f%08x", i*2654435761%0xffffffff)
}

// name returns a name without digits with a number.
func name(i int) string {
	letters := []byte("aaaa")
	for at := range letters {
		letters[at] += byte(i % 26)
		i /= 26
	}
	return string(letters)
}

// fillOrdinary creates so many keys of each class.
func fillOrdinary(t *testing.T, rdb server.Client, each int) (keys int) {
	t.Helper()
	for from := 0; from < each; from += 500 {
		p := rdb.Pipeline()
		for i := from; i < min(from+500, each); i++ {
			for _, class := range ordinaryClasses {
				p.Do(t.Context(), ordinary(t, class, i)...)
			}
		}
		check.Must(p.Exec(t.Context()))(t)
	}
	return each * len(ordinaryClasses)
}

// Thousands of alike keys are no locks, not even possible ones, and the ones among them are
// still found.
func TestClassesOfOrdinaryKeysAreNotPossibleLocks(t *testing.T) {
	t.Parallel()
	each := testtier.Size(250, 3_000, 3_000)
	rdb := connect(t, servertest.RedisForTest(t).Addr())
	all := layouts(t, "handwritten")
	seen := len(atFirstSight(t, rdb, all))
	keys := fillOrdinary(t, rdb, each)
	for _, l := range all { // again, because they expire
		load(t, rdb, l.acquiredBy(1, clock(t, rdb))...)
	}
	begin := time.Now()
	snap := scanFor(t, rdb, inspect.ScanOptions{Formats: everyFormat, MinConfidence: keyspace.Possible})
	t.Logf("scanned %d keys in %v, %d commands, the server was busy for %v", keys, time.Since(begin), snap.Cost.Commands, snap.Cost.ServerTime)
	locks := found(snap)
	for _, l := range all {
		delete(locks, l.key())
	}
	byClass := make(map[string]int)
	for key, l := range locks {
		byClass[keyspace.ClassOf(key)]++
		check.True(t, l.Confidence <= keyspace.Possible, "%s is %s to be a %s: %q", l.Key, l.Confidence, l.Format, l.Evidence)
	}
	t.Logf("%d of %d are possible: %v", len(locks), keys, byClass)
	t.Logf("problems: %q", snap.Problems)
	check.True(t, 200*len(locks) <= keys,
		"of %d ordinary keys, %d are possible locks: %v", keys, len(locks), slices.Sorted(maps.Keys(byClass)))
	check.Equal(t, len(snap.Locks)-len(locks), seen, "of %d layouts that were found alone, some are not found among ordinary keys", seen)
	likely := scan(t, rdb)
	for _, l := range likely.Locks {
		check.True(t, slices.ContainsFunc(all, func(one layout) bool { return one.key() == l.Key }),
			"%s is %s to be a %s: %q", l.Key, l.Confidence, l.Format, l.Evidence)
	}
}

// What applications do with ordinary keys for a minute does not make locks of them: they
// extend sessions, note that workers live, count, cache anew, and delete what was used.
func TestOrdinaryKeysInUseAreNotLikelyLocks(t *testing.T) {
	t.Parallel()
	each := testtier.Size(12, 40, 40)
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2026, 11, 24, 3, 0, 0, 0, time.UTC)))
		embedded := server.NewPiped()
		defer embedded.Close()
		rdb := server.NewClient(embedded.Addr(), server.ClientOptions{Dial: embedded.Dial})
		defer rdb.Close()
		fillOrdinary(t, rdb, each)
		w := inspect.NewWatcher(inspect.NewScanner(rdb, inspect.ScanOptions{Formats: everyFormat}))
		defer w.Close()
		for second := range testtier.Size(30, 60, 60) {
			p := rdb.Pipeline()
			ctx := t.Context()
			for i := second % 5; i < each; i += 5 {
				p.Expire(ctx, "session:"+id(i), 30*time.Minute)
				p.Expire(ctx, fmt.Sprintf("session:pointer:%d", i), 30*time.Minute)
				p.Set(ctx, fmt.Sprintf("worker:%d:heartbeat", i), time.Now().UnixMilli(), 30*time.Second)
				p.Expire(ctx, fmt.Sprintf("worker:%d", i), 30*time.Second)
				p.Incr(ctx, fmt.Sprintf("api:calls:10.0.%d.%d", i/256, i%256))
				p.Expire(ctx, fmt.Sprintf("presence:user:%d", i), time.Minute)
				p.Expire(ctx, "route:device:"+name(i), 2*time.Minute)
				p.Set(ctx, fmt.Sprintf("job:%d:status", i), []string{"processing", "done", "queued"}[second%3], time.Hour)
				p.Del(ctx, fmt.Sprintf("otp:+43660%07d", i), fmt.Sprintf("cart:%d", i))
				p.Do(ctx, ordinary(t, ordinaryClasses[13], i+1000*second)...)
			}
			check.Must(p.Exec(ctx))(t)
			time.Sleep(time.Second)
			s := check.Must(w.Snapshot(ctx))(t)
			for _, l := range s.Locks {
				t.Fatalf("after %d s, %s is %s to be a %s: %q", second, l.Key, l.Confidence, l.Format, l.Evidence)
			}
		}
	})
}
