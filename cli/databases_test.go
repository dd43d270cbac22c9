package cli

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"locktop/cli/render"
	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/testtier"
)

// With -n all, the same key may be a lock in each database. Every line names
// the database.
func TestEveryLineOfAllDatabasesNamesOne(t *testing.T) {
	testtier.Long(t, "it watches all databases for seconds")
	t.Parallel()
	addr := server.ForTest(t).Addr()
	for _, db := range []int{0, 3, 11} {
		rdb := clientWith(t, redis.Options{Addr: addr, DB: db})
		check.NoError(t, rdb.Set(t.Context(), "lock:a", token, 0).Err())
	}
	flags := []string{"-u", "redis://" + addr, "-n", "all"}
	for _, c := range []struct {
		args  []string
		lines []string
	}{
		{[]string{"list"}, []string{`^LOCK +DB +KIND`, `^lock:a +0 +mutex`, `^lock:a +3 +mutex`, `^lock:a +11 +mutex`}},
		{[]string{"list", "--plain"}, []string{`^lock:a \(database 0\) is held`, `^lock:a \(database 3\)`, `^lock:a \(database 11\)`}},
		{[]string{"list", "--csv"}, []string{`^lock:a,.*,0,never`, `^lock:a,.*,3,never`, `^lock:a,.*,11,never`}},
		{[]string{"list", "--json"}, []string{`"db":0,`, `"db":3,`, `"db":11,`}},
		{[]string{"doctor", "--for", "1ms"}, []string{`lock:a \(database 0\): Held`, `lock:a \(database 3\): Held`, `lock:a \(database 11\): Held`}},
		{[]string{"watch", "--for", "1s"}, []string{`appeared lock:a \(database 0\) by`, `lock:a \(database 3\) by`, `lock:a \(database 11\) by`}},
		{[]string{"watch", "--for", "1s", "--events", "finding"}, []string{`finding lock:a \(database 0\), c`, `lock:a \(database 3\), c`, `lock:a \(database 11\), c`}},
		{[]string{"watch", "--for", "1s", "--json"}, []string{`"node":"` + addr + `","db":0}`, `"node":"` + addr + `","db":3}`, `"db":11}`}},
		{[]string{"inspect", "lock:a"}, []string{`^  database +0$`, `in databases 0, 3, 11: -n says which`}},
		{[]string{"inspect", "lock:a", "-n", "3"}, []string{`locktop release .* -n 3 --write lock:a$`}},
		{[]string{"release", "lock:a", "--dry-run"}, []string{}},
	} {
		got := locktop(t, slices.Concat(c.args[:1], flags, c.args[1:])...)
		for _, line := range c.lines {
			check.True(t, regexp.MustCompile(`(?m)`+line).MatchString(got.out), "%v: no %s in\n%s%s", c.args, line, got.out, got.errors)
		}
		if c.args[0] == "release" && (got.code != exitUsage || !strings.Contains(got.errors, "is in databases 0, 3, 11 (choose one with -n)")) {
			t.Errorf("%v: %+v", c.args, got)
		}
	}
	got := locktop(t, "list", "-u", "redis://"+addr)
	check.False(t, strings.Contains(got.out, "DB"), "a table of one database names it in every line:\n%s", got.out)
}

// A key of 1 MB fits in one line, and two different keys are never shown alike.
func TestALongKeyIsShortInLinesForPeople(t *testing.T) {
	testtier.Long(t, "it reads hundreds of keys with every command")
	t.Parallel()
	addr := server.ForTest(t).Addr()
	for _, middle := range []string{"a", "b"} {
		send(t, addr, "SET", "lock:\x1b"+strings.Repeat("é", 1<<19)+middle+strings.Repeat("\x9b", 100), token)
	}
	send(t, addr, "SET", "lock:c", strings.Repeat("w", 1<<20)) // not a token, but a name
	flags := []string{"-u", "redis://" + addr, "--all"}
	for _, args := range [][]string{{"list"}, {"list", "--plain"}, {"doctor", "--for", "1ms"}, {"watch", "--for", "1s"}} {
		got := locktop(t, append(args, flags...)...)
		check.True(t, len(got.out) <= 20_000, "%v prints %d bytes", args, len(got.out))
		digests := regexp.MustCompile(`\[1048683 bytes, sha256 [0-9a-f]{8}\]`).FindAllString(got.out, -1)
		check.True(t, len(digests) >= 2 && digests[0] != digests[1], "%v: %q", args, got.out)
	}
	doc := decoded[render.Document](t, locktop(t, append([]string{"list", "--json"}, flags...)...).out)
	check.True(t, len(doc.Locks) == 3 && len(doc.Locks[0].Key) >= 1<<20, "JSON has not all of it")
}
