package cli

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/humanize"
	"locktop/internal/server"
	"locktop/internal/testtier"
)

// ofOwners sets n locks lock:0 … of owner, and one of another one.
func ofOwners(t *testing.T, addr string, n int, owner string) *redis.Client {
	t.Helper()
	rdb := clientTo(t, addr)
	handOver(t, rdb, 0, n, owner)
	send(t, addr, "SET", "lock:other", "web-2.prod:1", "PX", "600000")
	return rdb
}

// handOver gives the locks from first on to an owner.
func handOver(t *testing.T, rdb *redis.Client, first, end int, owner string) {
	t.Helper()
	p := rdb.Pipeline()
	for i := first; i < end; i++ {
		p.Do(t.Context(), "SET", fmt.Sprintf("lock:%d", i), owner, "PX", "600000")
	}
	check.Must(p.Exec(t.Context()))(t)
}

// Locks that change hands while the question is on the terminal are left to their new owner.
func TestReleaseOwnerReleasesTheLocksThatItStillHolds(t *testing.T) {
	t.Parallel()
	n := testtier.Size(50, 1000, 1000)
	stolen := n / 10
	addr := server.ForTest(t).Addr()
	const owner = "web-1.prod:4711"
	rdb := ofOwners(t, addr, n, owner)
	log := filepath.Join(t.TempDir(), "audit.jsonl")
	program := check.Must(executable())(t)
	line := fmt.Sprintf("%s release --owner %s --write --audit-log %s -u redis://%s; echo exit code $?; exec sleep 1000", program, owner, log, addr)
	term := openTerminalFor(t, 200, 24, "sh", "-c", line)
	term.want(fmt.Sprintf("%s holds %s: lock:", owner, humanize.Plural(n, "lock")), fmt.Sprintf("%d more; it is not notified", n-3), "Type y to confirm")
	handOver(t, rdb, 0, stolen, "web-3.prod:9")
	term.press("y").press("Enter")
	term.want(fmt.Sprintf("released %d of %s of %s", n-stolen, humanize.Plural(n, "lock"), owner), fmt.Sprintf("%d locks left as they are: lock:", stolen), "held by web-3.prod:9", "exit code 5")

	left, err := rdb.DBSize(t.Context()).Result()
	if err != nil || int(left) != stolen+1 || value(t, addr, "lock:0") != "web-3.prod:9" || value(t, addr, "lock:other") != "web-2.prod:1" {
		t.Errorf("%d keys are left, want %d: %v", left, stolen+1, err)
	}
	outcomes := map[string]int{}
	intended := map[string]bool{}
	for _, l := range auditedIn(t, log) {
		outcomes[string(l.Outcome)]++
		if l.Outcome == "intended" {
			intended[l.ID] = true
		} else if !intended[l.ID] {
			t.Errorf("%s: an outcome before its intent", l.Key)
		}
	}
	check.True(t, outcomes["intended"] == n && outcomes["done"] == n-stolen && outcomes["changed"] == stolen && len(outcomes) == 3,
		"audit lines: %v", outcomes)
}

func TestReleaseOwnerNeedsPermissionAndAnOwner(t *testing.T) {
	t.Parallel()
	addr := server.ForTest(t).Addr()
	ofOwners(t, addr, 5, "web-1.prod:4711")
	send(t, addr, "SET", "lock:endless", "web-1.prod:4711")
	for flags, c := range map[string]struct {
		code int
		said string
	}{
		"--owner web-1.prod:4711 --yes":                      {exitUsage, "web-1.prod:4711 holds 6 locks: lock:0, lock:1, lock:2, 3 more; it is not notified"},
		"--owner web-1.prod:4711 --write":                    {exitUsage, "there is no terminal for the question"},
		"--owner web-1 --write --yes":                        {exitNoLock, "web-1 has no lock"},
		"--owner web-1.prod:4711 lock:0 --write --yes":       {exitUsage, "excludes KEY"},
		"--owner web-1.prod:4711 --token x --write --yes":    {exitUsage, "excludes KEY"},
		"--owner= --write --yes":                             {exitUsage, "--owner takes the name of a holder"},
		"--owner web-2.prod:1 --give-ttl 1m --write --yes":   {exitNoLock, "web-2.prod:1 has no lock without TTL"},
		"--owner web-1.prod:4711 --match none --write --yes": {exitNoLock, "has no lock"},
	} {
		got := locktop(t, append(strings.Fields("release -u redis://"+addr), strings.Fields(flags)...)...)
		got.says(t, c.code, c.said)
		check.True(t, got.out == "", "%s prints %q", flags, got.out)
	}
	got := locktop(t, "release", "--owner", "web-1.prod:4711", "--dry-run", "-u", "redis://"+addr)
	check.True(t, got.code == exitFine && strings.Count(got.out, "EVAL") == 6, "a dry run: exit code %d, %s%s", got.code, got.out, got.errors)
	got = locktop(t, "release", "--owner", "web-1.prod:4711", "--give-ttl", "1m", "--write", "--yes", "--production", "-u", "redis://"+addr)
	check.True(t, got.code == exitFine && got.out == "set a deadline of 1 m for 1 of 1 lock of web-1.prod:4711\n",
		"a deadline: exit code %d, %q%s", got.code, got.out, got.errors)
	doc, _ := listedOn(t, "--owner", "web-1.prod:4711", "-u", "redis://"+addr)
	check.True(t, len(doc.Locks) == 6, "list --owner: %d locks", len(doc.Locks))
	doc, _ = listedOn(t, "--owner", "web-2.prod:1", "-u", "redis://"+addr)
	check.True(t, len(doc.Locks) == 1 && doc.Locks[0].Key == "lock:other", "list --owner: %+v", doc.Locks)
}
