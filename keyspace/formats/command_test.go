package formats_test

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/keyspace"
	"locktop/keyspace/formats"
	"locktop/keyspace/inspect"
	"locktop/keyspace/release"
)

// paste runs a command line in a POSIX shell.
func paste(t *testing.T, line string) string {
	t.Helper()
	for _, name := range []string{"sh", "redis-cli"} {
		if _, err := exec.LookPath(name); err != nil {
			check.Require(t, os.Getenv(servertest.RequireRedis) == "", "%v", err)
			t.Skipf("%v: install redis-server, which brings it (apt-get install redis-server, brew install redis), to run this test", err)
		}
	}
	run := exec.Command("sh")
	run.Stdin = strings.NewReader(line + "\n")
	out, err := run.CombinedOutput()
	check.Require(t, err == nil, "%s: %v: %s", line, err, out)
	return strings.TrimSpace(string(out))
}

// The command line for redis-cli changes a lock exactly as an Executor does, once.
func TestTheExactCommandReleasesALockOnce(t *testing.T) {
	testtier.Long(t, "it starts redis-cli for each sample")
	addr := servertest.RedisForTest(t).Addr()
	rdb := connect(t, addr)
	for _, f := range everyFormat {
		for _, s := range formats.Samples(f.Name) {
			if f.Actions == nil || len(s.Want.Holders) == 0 {
				continue
			}
			t.Run(f.Name+"/"+s.Name, func(t *testing.T) {
				seen := placed(t, rdb, s.Want.Key, clock(t, rdb), s.Commands)
				seen.Node = addr
				line := check.Must(keyspace.ExactCommand(everyFormat, keyspace.ForceRelease, seen, 0))(t)
				for _, want := range []string{"1", "0"} {
					got := paste(t, line)
					check.Require(t, got == want, "%s\nanswers %q, want %q", line, got, want)
				}
				for _, h := range holders(t, rdb) {
					check.True(t, !slices.ContainsFunc(seen.Holders, func(was keyspace.Holder) bool { return was.ID == h.ID }),
						"%s still holds it", h.ID)
				}
			})
		}
	}
}

// Keys and tokens may have any bytes and any length. The command line releases
// that lock, in that database, and is printable ASCII.
func TestTheExactCommandTakesAnyKeyAndToken(t *testing.T) {
	t.Parallel()
	addr := servertest.RedisForTest(t).Addr()
	rdb := server.NewClient(addr, server.ClientOptions{DB: 3})
	defer rdb.Close()
	for i, s := range []string{
		"lock:a'$(touch pwned)'b", `App\Jobs\X`, "lock:a\x00b", "a\n", "\n", "\x00", "\x1b[2J", "\xff\xfe", "!!", "it's 100%", `"\x41"`, "-n", strings.Repeat("long", 1<<16),
	} {
		seen := keyspace.Lock{Key: s, Format: "set-nx", Kind: keyspace.Mutex, Node: addr, DB: 3, Holders: []keyspace.Holder{{ID: s + "token"}}}
		for _, c := range []struct{ key, token, want string }{{s, s + "other", "0"}, {s, s + "token", "1"}} {
			if c.want == "0" && i > 0 && !testtier.InLong() {
				continue
			}
			check.NoError(t, rdb.Set(t.Context(), c.key, c.token, 0).Err())
			line := check.Must(keyspace.ExactCommand(everyFormat, keyspace.ForceRelease, seen, 0))(t)
			check.True(t, !strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r > '~' }), "%.200q is not printable", line)
			check.Equal(t, paste(t, line), c.want, "%.100q: %.300s\nanswers", s, line)
			check.Equal(t, fmt.Sprint(1-rdb.Exists(t.Context(), c.key).Val()), c.want, "%.100q: it was released", s)
		}
	}
}

// What --lock says of the fields is shown, and a release compares all of them.
func TestALockOfAPatternIsReleasedOnlyAsItWas(t *testing.T) {
	addr := servertest.RedisForTest(t).Addr()
	rdb := connect(t, addr)
	for _, c := range []struct{ pattern, commands, want, change string }{
		{"beat", "SET beat web-1:4711", "unknown web-1:4711///1/0", "SET beat web-1:4712"},
		{"job=owner:by", `SET job {"by":"x","n":1}`, `unknown {"by":"x","n":1}/x//1/0`, `SET job {"by":"x","n":2}`},
		{"zc=x", "HSET zc=x d 77-1b2c i 0", "mutex d=77-1b2c i=0///1/0", "HSET zc=x i 1"},
		{"row*=owner:xid,count:n,since:at", "HSET rows xid tx:8 pk 7 n 2 at {ms-9000}", "mutex tx:8///2/-9", "HSET rows pk 8"},
		{"row*=owner:xid,mode:m,until:at", "HSET rows xid tx:8 m W at {ms+9000}", "mutex tx:8//write/1/9", "HDEL rows m"},
		{"row*=owner:xid", "HSET rows pk 7", "mutex", ""},
		{"lockf7", "HSET lockf7 1_ab R 2_cd R", "rw 1_ab//read/1/0 2_cd//read/1/0", "HSET lockf7 3_ef R"},
		{"ids=owner:*", "HSET ids a x b y", "unknown a///1/0 b///1/0", "HSET ids b z"},
		{"sem", "ZADD sem {ms-2000} a {ms+9000} b", "unknown a///1/-2 b///1/9", "ZREM sem b"},
	} {
		known, now, got := formats.WithUserPatterns([]string{c.pattern}), clock(t, rdb), ""
		read := func() keyspace.Lock {
			snap := scanFor(t, rdb, inspect.ScanOptions{Formats: known})
			check.Require(t, len(snap.Locks) == 1, "%s: %d locks", c.pattern, len(snap.Locks))
			return *snap.Locks[0]
		}
		load(t, rdb, append([][]string{{"FLUSHALL"}}, formats.At(keyspace.Sample{Commands: commandsOf(c.commands)}, now).Commands...)...)
		seen := read()
		for _, h := range seen.Holders {
			got += fmt.Sprintf(" %s/%s/%s/%d/%.0f", h.ID, h.Label, h.Mode, h.Depth, cmp.Or(h.Expires, h.Since, now).Sub(now).Seconds())
		}
		if check.Equal(t, string(seen.Kind)+got, c.want, c.pattern); got == "" {
			continue
		}
		load(t, rdb, commandsOf(c.change)...)
		was := everything(t, rdb)
		_, err := release.NewExecutor(always(map[string]inspect.Client{addr: rdb}), known, &memoryLog{}).Act(t.Context(), keyspace.ForceRelease, seen, 0)
		check.ErrorIs(t, err, keyspace.ErrChanged, c.pattern)
		check.Equal(t, everything(t, rdb), was, c.pattern)
		line := check.Must(keyspace.ExactCommand(known, keyspace.ForceRelease, read(), 0))(t)
		check.Equal(t, paste(t, line)+everything(t, rdb), "1", line)
	}
	for _, f := range formats.WithUserPatterns([]string{"*", "big=owner:x"}) {
		l, sure := f.Decode(keyspace.Entry{Key: "big", Type: f.Type, Len: 1 << 20, Oversized: true})
		check.True(t, f.Name != "marked-hash" || sure == keyspace.Likely && l.Holders[0].ID == "?", "%s reads a value of megabytes as %+v", f.Name, l)
	}
}

// The user of docs/operators.md with the line for an action can do it to the locks of all formats.
func TestTheDocumentedPermissionsToActAreEnough(t *testing.T) {
	t.Parallel()
	admin := connect(t, servertest.RedisForTest(t).Addr())
	lines := regexp.MustCompile(`(?m)^ACL SETUSER locktop .*$`).FindAllString(string(check.Must(os.ReadFile("../../docs/operators.md"))(t)), -1)
	as := func(user string, marks ...string) server.Client { // with the first line of each mark that the server accepts
		for _, mark := range marks {
			accepted := false
			for _, line := range lines {
				argv := []any{"ACL", "SETUSER", user}
				for _, rule := range strings.Fields(strings.NewReplacer(`"`, "", "CHANGE-ME", "pw").Replace(line))[3:] {
					argv = append(argv, rule)
				}
				accepted = accepted || strings.Contains(line, mark) && admin.Do(t.Context(), argv...).Err() == nil
			}
			check.Require(t, accepted, "no line with %s is accepted", mark)
		}
		rdb := server.NewClient(servertest.AddrOf(admin), server.ClientOptions{Username: user, Password: "pw"})
		t.Cleanup(func() { _ = rdb.Close() })
		return rdb
	}
	releasing, extending := releaser(as("releasing", " reset ", "+eval +exists")), releaser(as("extending", " reset ", "+eval +get"))
	for i, f := range everyFormat {
		for _, s := range placesOf(f) {
			if f.Actions == nil || len(s.Want.Holders) == 0 || !testtier.InLong() && i%3 > 0 {
				continue
			}
			seen := placed(t, admin, s.Want.Key, clock(t, admin), s.Commands)
			if seen.Format == f.Name && f.Actions.Extend != "" {
				check.Must(extending.Act(t.Context(), later(seen), seen, 48*time.Hour))(t)
				seen = only(t, admin, s.Want.Key)
			}
			if seen.Format == f.Name {
				check.Must(releasing.Act(t.Context(), keyspace.ForceRelease, seen, 0))(t)
			}
		}
	}
	for _, r := range check.Must(admin.ACLLog(t.Context(), 100).Result())(t) {
		check.True(t, r.Object == "client", "%s is refused to %s", r.Object, r.Username) // CLIENT SETINFO of the test's client
	}
}
