package cli

import (
	"context"
	"encoding/gob"
	"fmt"
	"net"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/cli/connect"
	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/keyspace/inspect"
)

// renewing holds a lock and renews it, on one connection, until the test ends. It returns
// the address of the connection.
func renewing(t *testing.T, rdb server.Client, key, value string, ttl, period time.Duration) string {
	t.Helper()
	cn := servertest.ConnOf(t, rdb)
	check.NoError(t, cn.Set(t.Context(), key, value, ttl).Err())
	from := addressOf(t, cn)
	renew := "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) end return 0"
	repeat(t, period, func(ctx context.Context) { _ = cn.Eval(ctx, renew, []string{key}, value, ttl.Milliseconds()).Err() })
	return from
}

// addressOf returns the address of a connection.
func addressOf(t *testing.T, cn redis.Cmdable) string {
	t.Helper()
	id := fmt.Sprintf("id=%d addr=", cn.ClientID(t.Context()).Val())
	_, rest, found := strings.Cut(cn.ClientList(t.Context()).Val(), id) // Redis 6.0 has no CLIENT INFO
	check.Require(t, found, "the connection is not in the list")
	addr, _, _ := strings.Cut(rest, " ")
	return addr
}

// identified runs who with --json and returns its result.
func identified(t *testing.T, args ...string) jsonIdentity {
	t.Helper()
	return documentIn[jsonIdentity](t, locktop(t, append([]string{"who", "--json"}, args...)...))
}

func namedClient(t *testing.T, addr string, name string) server.Client {
	return clientWith(t, addr, server.ClientOptions{Name: name})
}

func TestWhoNamesTheClientThatTheValueNames(t *testing.T) {
	t.Parallel()
	addr := servertest.RedisForTest(t).Addr()
	where := []string{"-u", "redis://" + addr}
	rdb := namedClient(t, addr, "batch-57")
	connection := servertest.ConnOf(t, rdb)
	if err := connection.Set(t.Context(), "job-lock:default:report", "ADDED:"+time.Now().UTC().Format("2006-01-02T15:04:05.000Z")+"@batch-57", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	from := addressOf(t, connection)
	id := identified(t, append(where, "job-lock:default:report")...)
	check.True(t, id.KnownBy == bySaying && len(id.Clients) == 1 && id.Clients[0].Addr == from && id.Clients[0].Name == "batch-57",
		"it is %+v, want the connection from %s", id, from)
	_, port, _ := strings.Cut(from, ":")
	want := fmt.Sprintf("ss -tnpH 'sport = :%s'", port)
	check.True(t, slices.Equal(id.Commands, []string{want}), "next is %q, want %q", id.Commands, want)

	send(t, addr, "SET", "stock:lock", "web-1:4711~0190b1a0-7f63-7a09-8c4e-2b1f6d7c8e90", "PX", 60_000)
	id = identified(t, append(where, "stock:lock")...)
	if id.KnownBy != bySaying || id.Process.Host != "web-1" || id.Process.PID != 4711 || !slices.Equal(id.Commands, []string{"ssh web-1 ps -o pid,lstart,args -p 4711"}) {
		t.Errorf("it is %+v", id)
	}
	shown := locktop(t, append([]string{"who", "stock:lock"}, where...)...)
	wantAll(t, shown.out, "  process    4711 on web-1, if that is a host\n", "  known by   said: the value of the lock looks like a host and a process ID\n", "  next       ssh web-1 ")
	shown = locktop(t, append([]string{"inspect", "stock:lock"}, where...)...)
	check.True(t, strings.Contains(shown.out, "  process    4711 on web-1, if that is a host\n"), "inspect says:\n%s", shown.out)
}

// The name of another service within a value, and the name of a field, are no proof.
func TestWhoCallsANameWithinTheValueAHint(t *testing.T) {
	long(t, "it watches a server for a while")
	addr := servertest.RedisForTest(t).Addr()
	for _, name := range []string{"worker", "token", "service"} {
		check.NoError(t, namedClient(t, addr, name).Ping(t.Context()).Err())
	}
	send(t, addr, "SET", "lock:invoice", "invoice-worker-3", "PX", 60_000)
	send(t, addr, "SET", "lock:json", `{"host":"db-7","service":"main","token":"5f0c9a4e-2d3b-4c8a-9e1f-7a6b5c4d3e2f"}`, "PX", 60_000)
	send(t, addr, "SET", "lock:job", "nightly-report:2024", "PX", 60_000)
	where := []string{"-u", "redis://" + addr, "--for", "200ms"}
	got := locktop(t, append([]string{"who", "lock:invoice"}, where...)...)
	if got.code != exitFine || !strings.Contains(got.out, "  process    perhaps 127.0.0.1:") || !strings.Contains(got.out, "  known by   hint: the value contains the name worker; it may be another service") {
		t.Errorf("it ends with %d:\n%s%s", got.code, got.out, got.errors)
	}
	id := identified(t, append(where, "lock:invoice")...)
	check.True(t, id.KnownBy == byHint && len(id.Clients) == 1 && id.Clients[0].Name == "worker", "it is %+v", id)
	for _, key := range []string{"lock:json", "lock:job"} {
		locktop(t, append([]string{"who", key}, where...)...).says(t, exitFailure, "no client can be named")
	}
}

func TestWhoNamesTheClientThatActsWhenTheLockChanges(t *testing.T) {
	long(t, "it watches changes for seconds")
	addr := servertest.RedisForTest(t).Addr()
	for i := range 20 {
		check.NoError(t, namedClient(t, addr, fmt.Sprint("other-", i)).Set(t.Context(), fmt.Sprint("thing:", i), "x", 0).Err())
	}
	from := renewing(t, namedClient(t, addr, ""), "lock:a", token, time.Minute, 1300*time.Millisecond)
	got := locktop(t, "who", "lock:a", "-u", "redis://"+addr, "--for", "30s")
	if got.code != exitFine || !strings.Contains(got.out, "  process    probably "+from+",") || !strings.Contains(got.out, "known by   coincidence: it ran eval just when") {
		t.Errorf("it ends with %d, the holder is %s:\n%s%s", got.code, from, got.out, got.errors)
	}
}

// The rig's default is 3 runs of MONITOR; 100 with LOCKTOP_PROOF, the goal of the design.
func TestWhoProvesTheClientWithMonitor(t *testing.T) {
	t.Parallel()
	child := servertest.RedisForTest(t, "--requirepass", "c4nary")
	rdb := clientWith(t, child.Addr(), server.ClientOptions{Password: "c4nary"})
	key := "lock:\xffa b"
	from := renewing(t, rdb, key, token, 10*time.Second, 150*time.Millisecond)
	for range testtier.Size(3, 3, 100) {
		got := locktopWith(t, strings.NewReader("c4nary\n"), append([]string{"who", "--json", "--monitor", "--askpass", "-u", "redis://" + child.Addr()}, keyArguments(key)...)...)
		if id := decoded[jsonIdentity](t, got.out); id.KnownBy != byProof || len(id.Clients) != 1 || id.Clients[0].Addr != from || id.Clients[0].User != "default" {
			t.Fatalf("it ends with %d: %s%s, want %s", got.code, got.out, got.errors, from)
		}
	}
	eventually(t, func() bool { return !monitors(t, rdb) })
}

func monitors(t *testing.T, rdb server.Client) bool {
	t.Helper()
	list := check.Must(rdb.ClientList(t.Context()).Result())(t)
	return strings.Contains(list, " flags=O ")
}

func TestMonitorIsRefusedOnABusyServer(t *testing.T) {
	long(t, "it keeps a server busy")
	addr := servertest.RedisForTest(t).Addr()
	rdb := namedClient(t, addr, "")
	from := renewing(t, namedClient(t, addr, ""), "lock:a", token, 10*time.Second, 200*time.Millisecond)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() {
		for ctx.Err() == nil {
			_, _ = rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
				for range 500 {
					p.Ping(ctx)
				}
				return nil
			})
		}
	})
	where := []string{"who", "lock:a", "--monitor", "-u", "redis://" + addr}
	eventually(t, func() bool {
		got := locktop(t, where...)
		return got.code == exitFailure && strings.Contains(got.errors, "MONITOR would cost about") && strings.Contains(got.errors, "--force")
	})
	locktop(t, append(where, "--force")...).prints(t, exitFine, from)
}

func TestWhoSaysWhyItNamesNone(t *testing.T) {
	long(t, "it watches locks for seconds")
	addr := aLock(t)
	send(t, addr, "HSET", "catalog", "mode", "read", "8743c9c0-0795-4907-87fd-6c719a6b4586:1", 1, "1d0b1a52-7f63-4a09-8c4e-2b1f6d7c8e90:51", 1)
	aUser(t, addr, "nolist", "reset", "on", ">pw", "~*", "+@all", "-client")
	aUser(t, addr, "nomonitor", "reset", "on", ">pw", "~*", "+@all", "-monitor")
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"lock:a", "--for", "300ms"}, exitFailure, `the lock did not change within 300 ms (--for watches longer, --monitor proves`},
		{[]string{"lock:a", "--user", "nolist", "-a", "pw"}, exitFailure, `this user may not run CLIENT LIST (it needs +client|list`},
		{[]string{"lock:a", "--user", "nomonitor", "-a", "pw", "--monitor"}, exitFailure, `this user may not run MONITOR (it needs +monitor`},
		{[]string{"catalog"}, exitUsage, `"catalog" has 2 holders (--token names one of them`},
		{[]string{"catalog", "--token", "8743c9c0-0795-4907-87fd-6c719a6b4586:1", "--for", "300ms"}, exitFailure, `share one deadline`},
		{[]string{"nothing-there"}, exitNoLock, `there is no key "nothing-there"`},
		{[]string{"lock:a", "--force"}, exitUsage, `--force needs --monitor`},
		{[]string{"lock:a", "--for", "0s"}, exitUsage, `--for: not a positive time`},
		{[]string{"soon", "--lock", "soon", "--monitor"}, exitFailure, `the server ran no command that only the holder sends`},
	} {
		send(t, addr, "SET", "soon", token, "PX", 2000) // each case may take longer
		got := locktop(t, append([]string{"who", "-u", "redis://" + addr}, c.args...)...)
		got.says(t, c.code, c.want)
		check.True(t, got.out == "", "who %q prints %s", c.args, got.out)
	}
}

// The page of a lock lists the clients once when it opens, and W watches the lock. Without the
// permission the page says so, and asks no server twice.
func TestTheLockPageShowsTheConnectionOfTheHolder(t *testing.T) {
	t.Parallel()
	onEachTopology(t, func(t *testing.T, s topology) {
		const key = "job-lock:default:report"
		check.NoError(t, s.stranger.Set(t.Context(), key, "ADDED:"+time.Now().UTC().Format("2006-01-02T15:04:05.000Z")+"@batch-57", time.Hour).Err())
		for _, addr := range s.servers {
			check.NoError(t, namedClient(t, addr, "batch-57").Ping(t.Context()).Err())
			aUser(t, addr, "nolist", "reset", "on", ">pw", "~*", "&*", "+@all", "-client", "+client|setname", "+client|id", "+client|tracking")
		}
		term := openTerminal(t, 80, 24, s.flags...)
		term.want(key).press("/").enter("report").want("1 of").press("Enter").press("Enter").want("is it stuck?", "batch-57 · 127.0.0.1:", "clients listed", "blocks ", "waits for no other lock", "W find the client")
		term.quit()

		term = openTerminal(t, 140, 40, append(slices.Clone(s.flags), "--user", "nolist", "-a", "pw")...)
		term.want(key).press("/").enter("report").want("1 of").press("Enter").press("Enter").want("connection not shown: this user may not run CLIENT LIST")
		term.quit()
	})
}

func TestTheLockPageWatchesForTheClientOfAHolder(t *testing.T) {
	long(t, "it watches a lock for up to 30 s")
	addr := servertest.RedisForTest(t).Addr()
	rdb := clientTo(t, addr)
	from := renewing(t, rdb, "lock:renewed", token, time.Minute, 500*time.Millisecond)
	term := openTerminal(t, 140, 40, "-u", "redis://"+addr)
	term.want("lock:renewed").press("Enter").want("Redis shows no connection of this").press("W").want("looking for its client")
	seen := regexp.MustCompile("probably " + regexp.QuoteMeta(from) + " · it ran eval just when the lock changed|not found in 30 s: [1-9][0-9]* changes") // a starved machine sees too little
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(term.screen())
		}
	})
	within(t, longestWait, func() bool { return seen.MatchString(term.screen()) })
	term.quit()
}

// The user of the documentation with the permissions of who is refused nothing, and servers are sent nothing else.
func TestWhoSendsOnlyWhatThePageLists(t *testing.T) {
	t.Parallel()
	onEachTopology(t, func(t *testing.T, s topology) {
		key := "lock:a"
		if s.moving {
			if got := locktop(t, slices.Concat([]string{"who", key}, s.flags)...); !strings.Contains(got.errors, `the slot of "lock:a" is moving to another node`) {
				t.Errorf("of a lock that moves it says: %s", got.errors)
			}
			key = "lock:stays"
			check.NoError(t, s.stranger.Set(t.Context(), key, token, time.Minute).Err())
		}
		s.forget(t)
		locktop(t, slices.Concat([]string{"who", key, "--for", "300ms"}, s.flags)...).says(t, exitFailure, "the lock did not change within")
		sent := s.sent(t)
		list := append(allowed(t, s.servers[0]), "client|list")
		for _, name := range sent {
			listed := slices.ContainsFunc(list, func(l string) bool { return l == name || strings.HasPrefix(l, name+"|") })
			check.True(t, name == "config|resetstat" || name == "config" || listed, "%s was sent, and is not on the list", name)
		}
		lines := slices.DeleteFunc(aclLines(t), func(argv []any) bool {
			return len(argv) > 4 || !strings.HasPrefix(argv[3].(string), "+") || argv[3] == "+hpexpiretime"
		}) // advised grants that
		check.Require(t, len(lines) == 2, "the page permits who in %d lines", len(lines))
		for _, addr := range s.servers {
			advised(t, addr)
			for _, line := range lines {
				send(t, addr, line...)
			}
		}
		as := []string{"--user", "locktop", "-a", "c4nary"}
		locktop(t, slices.Concat([]string{"who", key, "--for", "300ms"}, s.flags, as)...).says(t, exitFailure, "the lock did not change within")
		for _, addr := range s.servers {
			checkNothingRefused(t, addr)
		}
	})
}

// The client that runs MONITOR must not outlive its window, whatever happens to the
// locktop that asked for it: its output would grow on the server.
func TestMonitorEndsAlthoughItsParentIsStoppedOrDead(t *testing.T) {
	long(t, "processes are stopped and killed")
	child := servertest.RedisForTest(t)
	rdb := namedClient(t, child.Addr(), "")
	path := check.Must(exec.LookPath("locktop"))(t)
	for _, how := range []string{"stopped", "killed"} {
		lease := map[string]int{"stopped": 2000, "killed": 60_000}[how]
		send(t, child.Addr(), "SET", "lock:a", token, "PX", lease)
		cmd := exec.Command(path, "who", "lock:a", "--monitor", "-u", "redis://"+child.Addr())
		inGroupOfItsOwn(cmd)
		check.NoError(t, cmd.Start())
		eventually(t, func() bool { // the start of a process can take longer than the lock
			rdb.PExpire(t.Context(), "lock:a", time.Duration(lease)*time.Millisecond)
			return monitors(t, rdb)
		})
		window := 3 * time.Second
		if how == "stopped" {
			stopGroup(t, cmd.Process)
		} else {
			check.ErrorIs(t, cmd.Process.Kill(), nil)
			window = 0
		}
		within(t, window+time.Second, func() bool { return !monitors(t, rdb) })
		_ = cmd.Process.Kill() // a stopped one, too
		_ = cmd.Wait()
	}
}

// The child ends by its own timer, also if a server accepts its connection and is silent.
func TestTheChildEndsByItselfWhateverHangs(t *testing.T) {
	long(t, "every limit of a child is waited for")
	silent := check.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer silent.Close()
	cmd := exec.Command("locktop", monitorCommandName, "--timeout", "10m", "-u", "redis://"+silent.Addr().String())
	stdin, err := cmd.StdinPipe() // open until the child has ended
	check.NoError(t, err)
	check.NoError(t, cmd.Start())
	kill := time.AfterFunc(longestWait, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	if err := gob.NewEncoder(stdin).Encode(monitorTask{MonitorQuery: inspect.MonitorQuery{Key: "lock:a", Window: time.Millisecond}}); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait()
	check.True(t, cmd.ProcessState.ExitCode() == exitFailure, "it ends with %v", cmd.ProcessState)
}

func TestThePasswordOfWhoIsInNoListOfProcesses(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("it reads /proc: run it on Linux, as CI does")
	}
	child := servertest.RedisForTest(t, "--requirepass", canary)
	rdb := clientWith(t, child.Addr(), server.ClientOptions{Password: canary})
	check.NoError(t, rdb.Set(t.Context(), "lock:a", token, time.Minute).Err())
	cmd := exec.Command("locktop", "who", "lock:a", "--monitor", "--askpass", "-u", "redis://"+child.Addr())
	cmd.Stdin = strings.NewReader(canary + "\n")
	spawnCommand(t, cmd)
	eventually(t, func() bool { return monitors(t, rdb) })
	seen := false
	for _, p := range processes(t) {
		ours := strings.Contains(p.args, child.Addr())
		seen = seen || ours && strings.Contains(p.args, monitorCommandName)
		check.True(t, !ours || len(leaked(map[string]string{"": p.args + p.env})) == 0, "%q shows it", p.args)
	}
	check.True(t, seen, "the child is not in the list")
}

// A lock of Redisson does not change. Another lock of the same client is renewed.
func TestWhoLooksForTheOtherLocksOfAClient(t *testing.T) {
	long(t, "it samples connections for seconds")
	addr := servertest.RedisForTest(t).Addr()
	const id = "8743c9c0-0795-4907-87fd-6c719a6b4586"
	send(t, addr, "HSET", "orders", id+":51", 1)
	send(t, addr, "PEXPIRE", "orders", 60_000)
	rdb := namedClient(t, addr, "")
	cn := servertest.ConnOf(t, rdb)
	from := addressOf(t, cn)
	check.NoError(t, cn.HSet(t.Context(), "stock", id+":52", 1).Err())
	repeat(t, 1300*time.Millisecond, func(ctx context.Context) {
		_ = cn.Eval(ctx, "return redis.call('pexpire',KEYS[1],30000)", []string{"stock"}).Err()
	})
	eventually(t, func() bool { return rdb.PTTL(t.Context(), "stock").Val() > 0 })
	got := identified(t, "orders", "-u", "redis://"+addr, "--for", "1m")
	check.True(t, got.KnownBy == byCoincidence && len(got.Clients) == 1 && got.Clients[0].Addr == from, "it is %+v, want %s", got, from)
}

func TestTheChildGetsThePasswordNotAsAnArgument(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"-u", "rediss://ann:c4nary@10.0.0.1:6380/3", "--insecure"},
		{"-H", "10.0.0.1", "--user", "ann", "-a", "c4nary"},
		{"--sentinel", "10.0.0.9", "--user", "ann", "-a", "c4nary", "--tls"},
		{"--redlock", "redis://ann:c4nary@10.0.0.2:1,redis://ann:c4nary@10.0.0.1:6380"},
		{"--password-command", "echo c4nary", "--user", "ann"},
	} {
		var c connect.Flags
		set := c.FlagSet()
		check.NoError(t, set.Parse(args))
		r := check.Must(new(connect.Session).Resolve(t.Context(), &c, connect.Prompt{}))(t)
		got, password, err := r.Child(t.Context(), "10.0.0.1:6380", 3)
		check.NoError(t, err)
		tls := strings.Contains(strings.Join(args, " "), "tls") || strings.HasPrefix(args[1], "rediss")
		want := fmt.Sprintf("redis%s://ann@10.0.0.1:6380?db=3", map[bool]string{true: "s"}[tls])
		if password != "c4nary" || got[1] != want || !slices.Contains(got, "--askpass") || strings.Contains(strings.Join(got, " "), "c4nary") {
			t.Errorf("%q gives %q and %q, want %s", args, got, password, want)
		}
		check.True(t, strings.Contains(strings.Join(args, " "), "--insecure") == slices.Contains(got, "--insecure"), "%q gives %q", args, got)
	}
}
