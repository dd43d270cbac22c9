package formats_test

import (
	"testing"
	"time"

	"locktop/internal/check"
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
	l, sure := rates(t, now, "v", "1", "q", "1763651002000:"+rwProcess, "r:"+rwToken, "1:1763650999000")
	check.True(t, sure == keyspace.Certain && l.State(time.Time{}) == keyspace.Waiting && len(l.Waiters) == 1 && l.Waiters[0].ID == rwProcess,
		"decoded %+v, %v", l, sure)
}

func TestOtherHashesAreNotReadWriteLocks(t *testing.T) {
	now := time.UnixMilli(1_763_651_000_000)
	for name, fields := range map[string][]string{
		"no version":                   {"r:" + rwToken, "1:1763651002000"},
		"a later version":              {"v", "2", "r:" + rwToken, "1:1763651002000"},
		"another field":                {"v", "1", "r:" + rwToken, "1:1763651002000", "name", "Zoe"},
		"no count":                     {"v", "1", "r:" + rwToken, ":1763651002000"},
		"no deadline":                  {"v", "1", "r:" + rwToken, "1:soon"},
		"a foreign token":              {"v", "1", "r:4711", "1:1763651002000"},
		"a claim with a foreign token": {"v", "1", "q", "1763651002000:4711"},
		"a claim without a process":    {"v", "1", "q", "1763651002000:web-1:31~4711"},
		"no living holder":             {"v", "1", "s", "1", "t", "1763651002000:1763651001900", "w", "1:1763650999000:" + rwToken},
		"a vector":                     {"v", "1", "w", "2", "t", "3"},
	} {
		l, sure := rates(t, now, fields...)
		check.True(t, sure == keyspace.No, "%s: taken for %+v", name, l)
	}
}
