package formats_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/servertest"
	"locktop/keyspace"
)

// rates decodes a hash as locktop's read/write lock.
func rates(t *testing.T, now time.Time, fields ...string) (keyspace.Lock, keyspace.Confidence) {
	t.Helper()
	e := keyspace.Entry{Key: "rates", Type: "hash", Now: now, Len: int64(len(fields) / 2)}
	for i := 0; i < len(fields); i += 2 {
		e.Members = append(e.Members, keyspace.Member{Name: fields[i], Value: fields[i+1]})
	}
	return format(t, "locktop-rw").Decode(e)
}

const (
	rwToken   = "web-1:31~019aa1ca-7398-7a4a-8a4a-4a4a4a4a4a4a"
	rwProcess = "cron-1:8~4a4a4a4a4a4a"
)

func TestAWriterThatWaitsAloneIsShown(t *testing.T) {
	now := time.UnixMilli(1_763_651_000_000)
	l, sure := rates(t, now, "v", "locktop-rw-1", "q", "1763651002000:"+rwProcess, "r:"+rwToken, "1:1763650999000")
	check.True(t, sure == keyspace.Certain && l.State(time.Time{}) == keyspace.Waiting && len(l.Waiters) == 1 && l.Waiters[0].ID == rwProcess,
		"decoded %+v, %v", l, sure)
}

func TestOtherHashesAreNotReadWriteLocks(t *testing.T) {
	now := time.UnixMilli(1_763_651_000_000)
	for name, fields := range map[string][]string{
		"no version":                   {"r:" + rwToken, "1:1763651002000"},
		"a later version":              {"v", "locktop-rw-2", "r:" + rwToken, "1:1763651002000"},
		"a number as its version":      {"v", "1", "r:" + rwToken, "1:1763651002000"},
		"another field":                {"v", "locktop-rw-1", "r:" + rwToken, "1:1763651002000", "name", "Zoe"},
		"no count":                     {"v", "locktop-rw-1", "r:" + rwToken, ":1763651002000"},
		"no deadline":                  {"v", "locktop-rw-1", "r:" + rwToken, "1:soon"},
		"a foreign token":              {"v", "locktop-rw-1", "r:4711", "1:1763651002000"},
		"a claim with a foreign token": {"v", "locktop-rw-1", "q", "1763651002000:4711"},
		"a claim without a process":    {"v", "locktop-rw-1", "q", "1763651002000:web-1:31~4711"},
		"no living holder":             {"v", "locktop-rw-1", "s", "1", "t", "1763651002000:1763651001900", "w", "1:1763650999000:" + rwToken},
		"a vector":                     {"v", "locktop-rw-1", "w", "2", "t", "3"},
	} {
		l, sure := rates(t, now, fields...)
		check.True(t, sure == keyspace.No, "%s: taken for %+v", name, l)
	}
}

// A waiter of a fair lock has its own token with a mark. Of older versions the queue is another key.
func TestWaitersTellAFairLock(t *testing.T) {
	const fair, other = "web-2:7~019aa1ca-7398-7a4a-8a4a-4a4a4a4a4a4a", "web-2:7~019aa1ca-7398-7a4a-ba4a-4a4a4a4a4a4a"
	for _, c := range []struct {
		part, waiter string
		score        float64
		want         keyspace.Kind
		since        int64 // s
	}{
		{"waiters", fair, 1_763_650_990_000_000 - 4e15, keyspace.Fair, 1_763_650_990},
		{"waiters", other, 1_763_650_990_000_000 - 4e15, keyspace.Mutex, 1_763_650_990}, // it was passed over too often
		{"waiters", rwProcess, 1_763_650_990_000_000, keyspace.Mutex, 1_763_650_990},
		{"queue", fair, 1, keyspace.Fair, 0x019aa1ca7398 / 1000},
	} {
		key := "{job}:" + c.part
		beside := map[string]keyspace.Entry{key: {Key: key, Type: "zset", Members: []keyspace.Member{{Name: c.waiter, Score: c.score}}}}
		l, sure := format(t, "locktop").Decode(keyspace.Entry{Key: "job", Type: "string", Value: rwToken, Now: time.UnixMilli(1_763_651_000_000), Related: beside})
		check.True(t, sure == keyspace.Certain && l.Kind == c.want && len(l.Waiters) == 1 && l.Waiters[0].ID == c.waiter && l.Waiters[0].Since.Unix() == c.since,
			"%s %s: decoded %+v, %v", c.part, c.waiter, l, sure)
	}
}

// pool decodes a zset as locktop's semaphore.
func pool(t *testing.T, now time.Time, length int64, members ...keyspace.Member) (keyspace.Lock, keyspace.Confidence) {
	t.Helper()
	e := keyspace.Entry{Key: "pool", Type: "zset", Now: now, Len: length, Members: members}
	return format(t, "locktop-semaphore").Decode(e)
}

func TestOtherZsetsAreNotSemaphoresOfLocktop(t *testing.T) {
	now := time.UnixMilli(1_763_651_000_000)
	permit := keyspace.Member{Name: rwToken, Score: 1_763_651_002_000}
	limit := keyspace.Member{Name: "locktop-limit:3", Score: math.Inf(1)}
	l, sure := pool(t, now, 2, permit, limit)
	check.Require(t, sure == keyspace.Certain && l.Limit == 3 && l.Remaining == 2, "decoded %+v, %v", l, sure)
	for name, members := range map[string][]keyspace.Member{
		"no limit":          {permit},
		"another element":   {{Name: "7", Score: 1_763_651_001_000}, permit, limit},
		"no deadline":       {{Name: rwToken, Score: 12}, limit},
		"only dead permits": {{Name: rwToken, Score: 1_763_650_999_000}, limit},
		"no permits":        {limit},
		"a limit in time":   {permit, {Name: "locktop-limit:3", Score: 1_763_651_002_000}},
		"a limit of words":  {permit, {Name: "locktop-limit:three", Score: math.Inf(1)}},
	} {
		l, sure := pool(t, now, int64(len(members)), members...)
		check.True(t, sure == keyspace.No, "%s: taken for %+v", name, l)
	}
	l, sure = pool(t, now, 300, permit)
	check.True(t, sure == keyspace.Certain && l.Limit == 0, "the beginning of a long zset is %+v, %v", l, sure)
}

// The end of a permit does not let an extend bring it back, which could exceed the limit.
func TestAnExtendBringsNoPermitBack(t *testing.T) {
	rdb := connect(t, servertest.RedisForTest(t).Addr())
	now := clock(t, rdb)
	until := func(deadline string) keyspace.Lock {
		return placed(t, rdb, "pool", now, [][]string{
			{"ZADD", "pool", deadline, "pay-7:52~{v7-4000/4d}", "{ms+60000}", "pay-8:1~{v7-4000/4e}", "+inf", "locktop-limit:2"}, {"PEXPIRE", "pool", "60000"},
		})
	}
	seen := until("{ms+30000}")
	until("{ms-1}")
	_, err := releaser(rdb).Act(t.Context(), keyspace.Extend, seen, time.Minute)
	check.True(t, err != nil, "a dead permit was extended")
	_, err = releaser(rdb).Act(t.Context(), keyspace.ForceRelease, seen, 0)
	check.True(t, err != nil, "a dead permit was released")
	until("{ms+30000}")
	check.Must(releaser(rdb).Act(t.Context(), keyspace.Extend, seen, 90*time.Second))(t)
	check.Between(t, rdb.PTTL(t.Context(), "pool").Val(), 89*time.Second, 90*time.Second, "the permits last for 90 s, and the key")
	n := rdb.ZCount(t.Context(), "pool", fmt.Sprint(clock(t, rdb).Add(89*time.Second).UnixMilli()), "(inf").Val()
	check.True(t, n == 2, "%d permits have the new deadline", n)
}
