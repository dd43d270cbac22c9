package cli

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"locktop/cli/render"
	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/keyspace"
)

// Hundreds of findings of one kind are one paragraph with their number, so rare findings stay visible.
func TestDoctorGroupsFindingsOfAKind(t *testing.T) {
	var d diagnosis
	for i := range 500 {
		d.findings = append(d.findings, keyspace.Finding{
			Problem: keyspace.Problem{ID: "overdue", Severity: keyspace.Warning, Remedy: "Look at its holder."}, Lock: keyspace.ID{Key: fmt.Sprintf("job:%d", i)}, Text: "Held for 12m.",
		})
	}
	d.findings = append(d.findings, keyspace.Finding{
		Problem: keyspace.Problem{ID: "starving", Severity: keyspace.Warning, Remedy: "Use a fair lock."}, Lock: keyspace.ID{Key: "queue"}, Text: "A waiter was overtaken.",
	})
	var out strings.Builder
	check.NoError(t, d.write(&out, false))
	got, _, _ := strings.Cut(out.String(), "\nServer")
	want := `
Locks
  warning: overdue: 500 locks
    job:0: Held for 12m.
    job:1: Held for 12m.
    job:2: Held for 12m.
    job:3: Held for 12m.
    job:4: Held for 12m.
    and 495 more: locktop list --stuck, or locktop doctor --json
    Look at its holder.
  warning: starving: 1 lock
    queue: A waiter was overtaken.
    Use a fair lock.
`
	check.True(t, strings.HasSuffix(got, want), "got\n%s\nwant\n%s", got, want)
}

// The version decides whether doctor names HOTKEYS; a server that shows no requests is named with the reason.
func TestDoctorSaysWhetherRequestsAreSeen(t *testing.T) {
	for version, has := range map[string]bool{"8.6.0": true, "8.10.1": true, "9.0.0": true, "8.4.2": false, "7.2.4": false, "": false} {
		n := keyspace.Node{Server: keyspace.Server{Product: "redis", Version: version}}
		check.True(t, hasHotKeys(n) == has, "version %q has HOTKEYS: %v", version, !has)
		n.Product = "valkey"
		check.False(t, hasHotKeys(n), "Valkey %s has HOTKEYS", version)
	}
	got := requestLines([]keyspace.Node{{Up: true, AskBlind: "LFU", Server: keyspace.Server{Addr: "a:1"}}, {Up: true}, {AskBlind: "it is down"}})
	want := []string{"seen, as yes or no within the last second", "not seen on a:1: LFU"}
	check.True(t, slices.Equal(got, want), "got %q, want %q", got, want)
}

// Its deadlines then use the local clock.
func TestAServerWithoutTheTimeIsLookedAt(t *testing.T) {
	t.Parallel()
	addr := servertest.RedisForTest(t, "--rename-command", "TIME", "other-name").Addr()
	aLockOfEachType(t, addr)
	doc, said := listedOn(t, "-u", "redis://"+addr)
	l := lockNamed(t, doc, "lock:a")
	check.True(t, l.TTLMS >= 500_000 && l.TTLMS <= 600_000, "it has %d ms left", l.TTLMS)
	check.True(t, strings.Count(said, "\n") == 1 && strings.Contains(said, "the server does not have TIME"), "it says %q", said)
	shown := func(got outcome) bool { return got.code == exitFine && strings.Contains(got.out, "lock:a") }
	got := locktopFor(t, shown, "watch", "-u", "redis://"+addr)
	check.True(t, shown(got), "watch ends with %d: %s%s", got.code, got.out, got.errors)
}

// Without CLIENT and INFO, a permission would not help, and risks are not known.
func TestAServerWithoutClientAndInfoIsNotJudged(t *testing.T) {
	t.Parallel()
	addr := servertest.RedisForTest(t, "--rename-command", "CLIENT", "other-client", "--rename-command", "INFO", "other-info").Addr()
	send(t, addr, "SET", "lock:a", token, "PX", "600000")
	if got := locktop(t, "who", "lock:a", "-u", "redis://"+addr); !strings.Contains(got.errors, "the server does not have CLIENT LIST") || strings.Contains(got.errors, "+client") {
		t.Errorf("who: %s%s", got.out, got.errors)
	}
	if got := locktop(t, "doctor", "--for", "1ms", "-u", "redis://"+addr); !strings.Contains(got.out, "risks for the server are not known") || strings.Contains(got.out, "no server-wide risks") {
		t.Errorf("doctor: %s%s", got.out, got.errors)
	}
}

// With -n all, the same key may be a lock in each database. Every line names the database.
func TestEveryLineOfAllDatabasesNamesOne(t *testing.T) {
	long(t, "it watches all databases for seconds")
	addr := servertest.RedisForTest(t).Addr()
	for _, db := range []int{0, 3, 11} {
		rdb := clientWith(t, addr, server.ClientOptions{DB: db})
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
		{[]string{"watch", "--for", "1s", "--json"}, []string{`"node":"` + addr + `","db":0,`, `"node":"` + addr + `","db":3,`, `"db":11,`}},
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
	long(t, "it reads hundreds of keys with every command")
	addr := servertest.RedisForTest(t).Addr()
	for _, middle := range []string{"a", "b"} {
		send(t, addr, "SET", "lock:\x1b"+strings.Repeat("é", 1<<19)+middle+strings.Repeat("\x9b", 100), token)
	}
	send(t, addr, "SET", "lock:c", strings.Repeat("w", 1<<20)) // not a token, but a name
	flags := []string{"-u", "redis://" + addr, "--all"}
	for _, args := range [][]string{{"list"}, {"list", "--plain"}, {"doctor", "--for", "1ms"}, {"watch", "--for", "10s"}} { // a busy machine reads such keys for a second
		got := locktop(t, append(args, flags...)...)
		check.True(t, len(got.out) <= 20_000, "%v prints %d bytes", args, len(got.out))
		digests := regexp.MustCompile(`\[1048683 bytes, sha256 [0-9a-f]{8}\]`).FindAllString(got.out, -1)
		check.True(t, len(digests) >= 2 && digests[0] != digests[1], "%v: %q", args, got.out)
	}
	doc := decoded[render.Document](t, locktop(t, append([]string{"list", "--json"}, flags...)...).out)
	check.True(t, len(doc.Locks) == 3 && len(doc.Locks[0].Key) >= 1<<20, "JSON has not all of it")
}
