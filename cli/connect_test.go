package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"path/filepath"
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
	"locktop/lock"
)

// long puts a test into the long tier, and runs it beside others.
func long(t *testing.T, why string) {
	t.Helper()
	testtier.Long(t, why)
	t.Parallel()
}

// outcome is the result of a run of the program.
type outcome struct {
	args        []string
	code        int
	out, errors string
}

// says fails the test unless the run ended with an exit code and stderr has all texts.
func (o outcome) says(t *testing.T, code int, texts ...string) {
	t.Helper()
	check.True(t, o.code == code && has(texts)(o.errors),
		"locktop %q: exit code %d, %q on stderr, %.2000s on stdout; want %d, %q", o.args, o.code, o.errors, o.out, code, texts)
}

// prints is says for stdout.
func (o outcome) prints(t *testing.T, code int, texts ...string) {
	t.Helper()
	o.says(t, code)
	wantAll(t, o.out, texts...)
}

// wantAll fails the test for each part that is not in a text.
func wantAll(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		check.Contains(t, text, part)
	}
}

// repeat calls do at each interval, until stop or the end of the test.
func repeat(t *testing.T, interval time.Duration, do func(ctx context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var repeating sync.WaitGroup
	repeating.Go(func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				do(ctx)
			}
		}
	})
	stop = func() { cancel(); repeating.Wait() }
	t.Cleanup(stop)
	return stop
}

// fails is says for a run that prints nothing but one line on stderr.
func (o outcome) fails(t *testing.T, code int, texts ...string) {
	t.Helper()
	o.says(t, code, texts...)
	check.True(t, o.out == "" && strings.Count(o.errors, "\n") == 1,
		"locktop %q: not one line, but %q on stderr and %q on stdout", o.args, o.errors, o.out)
}

// locktop runs the program and waits for its end.
func locktop(t *testing.T, args ...string) outcome {
	t.Helper()
	return locktopWith(t, strings.NewReader(""), args...)
}

// locktopFor runs the program with --for 300ms. On a slow machine it runs it with longer times, until ok returns true.
func locktopFor(t *testing.T, ok func(outcome) bool, args ...string) (got outcome) {
	t.Helper()
	for span := 300 * time.Millisecond; span < time.Minute; span *= 4 {
		if got = locktop(t, append(slices.Clone(args), "--for", span.String())...); ok(got) {
			break
		}
	}
	return got
}

func locktopWith(t *testing.T, in io.Reader, args ...string) outcome {
	t.Helper()
	var out, errs bytes.Buffer
	code := Run(t.Context(), args, in, &out, &errs)
	return outcome{args, code, out.String(), errs.String()}
}

// clientTo returns a client of a server until the end of the test.
func clientTo(t testing.TB, addr string) server.Client {
	return clientWith(t, addr, server.ClientOptions{})
}

// clientWith is clientTo with further options.
func clientWith(t testing.TB, addr string, o server.ClientOptions) server.Client {
	rdb := server.NewClient(addr, o)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// clusterClient returns a client of a cluster until the end of the test.
func clusterClient(t *testing.T, c *servertest.Cluster) server.Client {
	t.Helper()
	var f connect.Flags
	f.FlagSet()
	target := check.Must(new(connect.Session).Open(t.Context(), f.WithURL("--url", "redis://"+c.Addrs()[0]).AsCluster(), connect.Prompt{}))(t)
	t.Cleanup(target.Close)
	rdb, _, err := target.Writer()
	check.NoError(t, err)
	return rdb.(server.Client)
}

// newLockClient returns a client of package lock until the end of the test.
func newLockClient(t *testing.T, rdb server.Client, owner string) *lock.Client {
	t.Helper()
	client := check.Must(lock.New(rdb.(*redis.Client), lock.Config{Owner: owner}))(t)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// send sends one command as the default user.
func send(t *testing.T, addr string, args ...any) {
	t.Helper()
	err := sent(t, addr, args...).Err()
	check.Require(t, err == nil, "%v: %v", args, err)
}

// replicated sends one command, and waits until a replica has it: WAIT waits for the writes of its own connection.
func replicated(t *testing.T, addr string, args ...any) {
	t.Helper()
	rdb := server.NewClient(addr, server.ClientOptions{})
	defer rdb.Close()
	p := rdb.Pipeline()
	p.Do(t.Context(), args...)
	n := p.Do(t.Context(), "WAIT", 1, 10_000)
	_, err := p.Exec(t.Context())
	check.Require(t, err == nil && n.Val() == int64(1), "%v: %v, %v replicas have it", args, err, n.Val())
}

// sent sends one command on a connection of its own, and returns its reply.
func sent(t *testing.T, addr string, args ...any) *redis.Cmd {
	rdb := server.NewClient(addr, server.ClientOptions{})
	defer rdb.Close()
	return rdb.Do(t.Context(), args...)
}

// decoded decodes a JSON document.
func decoded[T any](t testing.TB, text string) (document T) {
	t.Helper()
	err := json.Unmarshal([]byte(text), &document)
	check.Require(t, err == nil, "%v in %s", err, text)
	return document
}

// documentIn decodes what a command printed that ended well.
func documentIn[T any](t testing.TB, got outcome) T {
	t.Helper()
	check.Require(t, got.code == exitFine, "it ends with %d: %s%s", got.code, got.out, got.errors)
	return decoded[T](t, got.out)
}

// decodedLines decodes a JSON document in each line.
func decodedLines[T any](t testing.TB, text string) (all []T) {
	t.Helper()
	for line := range strings.Lines(text) {
		all = append(all, decoded[T](t, line))
	}
	return all
}

// cannotConnect checks for the exit code and for an error of one line.
func (o outcome) cannotConnect(t *testing.T, address, said string) {
	t.Helper()
	o.fails(t, exitNoConnect, "locktop: connect "+address+": ", said)
}

func TestAServerThatDoesNotAnswerIsAnErrorInOneLine(t *testing.T) {
	t.Parallel()
	socket, frozen, plain := filepath.Join(socketDir(t), "r.sock"), servertest.RedisForTest(t), servertest.RedisForTest(t)
	check.NoError(t, frozen.Freeze())
	locktop(t, "list", "-s", socket).cannotConnect(t, "unix://"+socket, "no such file")
	locktop(t, "list", "-u", "redis://"+frozen.Addr(), "--timeout", "50ms").cannotConnect(t, "redis://"+frozen.Addr(), "50 ms")
	// A plain server takes the beginning of TLS for a command, and waits for the rest.
	tls := locktop(t, "list", "-u", "rediss://"+plain.Addr(), "--timeout", "300ms")
	tls.cannotConnect(t, "rediss://"+plain.Addr(), "does the server speak TLS there?")
}

func TestAPlainServerIsNoSentinelAndNoCluster(t *testing.T) {
	addr := aLock(t)
	o := locktop(t, "list", "--sentinel", addr)
	o.fails(t, exitNoConnect, "locktop: ask the Sentinel at "+addr+": ", "(that is no Sentinel; ")
	check.False(t, strings.Contains(o.errors, `\x20`), "%+v", o)
	locktop(t, "list", "--cluster", "-u", "redis://"+addr).fails(t, exitUsage, "no part of a cluster")
	o = locktop(t, "list", "--csv", "--redlock", "redis://"+addr) // a Redlock of one server is a plain one
	check.True(t, strings.Contains(o.out, "lock:a,mutex,set-nx,") && strings.Contains(o.errors, "--redlock is given once"), "%+v", o)
}

func TestAServerThatIsNoRedisIsAnError(t *testing.T) {
	l := check.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 400 Bad \x1b[2JRequest\r\n\r\n")
			conn.Close()
		}
	}()
	o := locktop(t, "list", "-u", "redis://"+l.Addr().String())
	o.cannotConnect(t, "redis://"+l.Addr().String(), "does not speak the protocol of Redis (is that the right port?)")
	check.False(t, strings.Contains(o.errors, "\x1b"), "an escape sequence of the server got through: %q", o.errors)
}

func TestAUnixSocketIsAConnection(t *testing.T) {
	path := filepath.Join(socketDir(t), "r.sock")
	servertest.RedisForTest(t, "--unixsocket", path)
	for _, args := range [][]string{{"-s", path}, {"-u", "unix://" + path}} {
		o := locktop(t, append([]string{"list", "--json"}, args...)...)
		check.True(t, o.code == exitFine && o.errors == "", "%v: %+v", args, o)
	}
}

func TestWithoutTheRightPasswordThereIsNoConnection(t *testing.T) {
	const canary = "c4nary"
	c := servertest.RedisForTest(t)
	address := "redis://" + c.Addr()
	aUser(t, c.Addr(), "ann", "on", ">"+canary, "~*", "+@all")
	send(t, c.Addr(), "ACL", "SETUSER", "eve", "on", ">"+canary, "~*", "+@all", "-select")
	withDefault := servertest.RedisForTest(t, "--requirepass", canary)

	tests := map[string]struct {
		args []string
		env  string
		addr string
		said string
	}{
		// The default user of c has all permissions and no password. A client that falls back to it gets access.
		"a user with a wrong password":    {args: []string{"-u", address, "--user", "ann"}, env: canary + "x", addr: c.Addr(), said: "WRONGPASS"},
		"a user that does not exist":      {args: []string{"-u", address, "--user", "bob"}, env: canary, addr: c.Addr(), said: "WRONGPASS"},
		"a user kept out of the database": {args: []string{"-u", address, "--user", "eve", "-n", "1"}, env: canary, addr: c.Addr(), said: "NOPERM"},
		"no password where one is due":    {args: []string{"-u", "redis://" + withDefault.Addr()}, addr: withDefault.Addr(), said: "NOAUTH"},
		"a wrong password of no user":     {args: []string{"-u", "redis://" + withDefault.Addr()}, env: canary + "x", addr: withDefault.Addr(), said: "WRONGPASS"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv("REDISCLI_AUTH", tt.env)
			o := locktop(t, append([]string{"list"}, tt.args...)...)
			o.cannotConnect(t, "redis://"+tt.addr, tt.said)
			check.False(t, strings.Contains(o.errors, canary), "the password is in %q", o.errors)
		})
	}
}

func TestEveryWayToGiveThePasswordLetsIn(t *testing.T) {
	const canary = "c4nary"
	c := servertest.RedisForTest(t)
	aUser(t, c.Addr(), "ann", "on", ">"+canary, "~*", "&*", "+@all")
	send(t, c.Addr(), "ACL", "SETUSER", "default", "off")
	address := "redis://" + c.Addr()

	tests := map[string]struct {
		args []string
		env  string
		in   string
	}{
		"in the URL":           {args: []string{"-u", "redis://ann:" + canary + "@" + c.Addr()}},
		"on the command line":  {args: []string{"-u", address, "--user", "ann", "-a", canary}},
		"from the environment": {args: []string{"-u", address, "--user", "ann"}, env: canary},
		"asked for":            {args: []string{"-u", address, "--user", "ann", "--askpass"}, in: canary + "\r\nmore"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv("REDISCLI_AUTH", tt.env)
			o := locktopWith(t, strings.NewReader(tt.in), append([]string{"list", "--plain"}, tt.args...)...)
			check.True(t, o.code == exitFine, "exit code %d: %s", o.code, o.errors)
			check.False(t, strings.Contains(o.out+o.errors, canary), "the password is in the output: %+v", o)
			check.True(t, strings.Contains(o.errors, "--askpass") == (name == "on the command line" || name == "in the URL"), "on stderr: %q", o.errors)
		})
	}
}

// The check that a load is on this machine needs no password, so it does not refuse one
// that is asked for later. Nothing listens at the address.
func TestALoadAsksForThePassword(t *testing.T) {
	for _, args := range []string{"load --duration 1s -u redis://127.0.0.1:1 --user ann --askpass", "load --redlock 127.0.0.1:1 --user ann --askpass"} {
		o := locktopWith(t, strings.NewReader("c4nary\n"), strings.Fields(args)...)
		check.True(t, strings.Contains(o.errors, "connection refused"), "%s: %+v", args, o)
	}
	var own ownLoad
	var c connect.Flags
	check.NoError(t, c.FlagSet().Parse([]string{"--user", "ann", "--askpass"}))
	err := own.refusal(&c, writeFlags{})
	check.True(t, err == nil, "--load: %v", err)
}

// The screen has the scenes that its servers can play, with the processes of --exec if there are any.
func TestTheScenesOfTheScreenAreThoseOfItsServers(t *testing.T) {
	for args, want := range map[string]string{"": "", "--redlock 127.0.0.1:1,127.0.0.1:2": "classic/quorum-semaphore", "--exec client": "exec"} {
		var own ownLoad
		var c connect.Flags
		flags := c.FlagSet()
		flags.AddFlagSet(own.flags())
		check.NoError(t, flags.Parse(strings.Fields(args)))
		all := own.scenes(&c)
		check.True(t, len(all) > 0, "%s: no scene", args)
		for _, s := range all { // those that stop servers are not there
			check.True(t, string(s.Lock.Kind) == want || want == "" && !s.Lock.Kind.Quorum(), "%s: %s has the lock %s", args, s.Name, s.Lock)
		}
	}
}

// A password for several servers is asked for once, and a warning about it is given once.
func TestSeveralServersHaveOnePassword(t *testing.T) {
	t.Parallel()
	var urls []string
	for range 3 {
		c := servertest.RedisForTest(t)
		aUser(t, c.Addr(), "ann", "on", ">c4nary", "~*", "&*", "+@all")
		urls = append(urls, "redis://"+c.Addr())
	}
	nodes := strings.Join(urls, ",")
	for name, run := range map[string]func(flags ...string) outcome{
		"list": func(flags ...string) outcome {
			return locktopWith(t, strings.NewReader("c4nary\n"), append([]string{"list", "--plain"}, flags...)...)
		},
		"load": func(flags ...string) outcome {
			return brieflyLoaded(t, "c4nary\n", append([]string{"--kind", "redlock", "--clients", "1"}, flags...)...)
		},
	} {
		for _, way := range []string{"--askpass", "-a c4nary"} {
			o := run(strings.Fields("--redlock " + nodes + " --user ann " + way)...)
			want := 0
			if way != "--askpass" {
				want = 1
			}
			n := strings.Count(o.errors, "a password on the command line")
			check.True(t, o.code == exitFine && n == want, "%s %s: exit code %d, %d warnings, want %d: %s", name, way, o.code, n, want, o.errors)
		}
	}
}

func TestAskingForAPasswordEndsWithTheProgram(t *testing.T) {
	in, silent := io.Pipe() // there is no input
	defer silent.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	done := make(chan int)
	go func() { done <- Run(ctx, []string{"list", "--askpass"}, in, io.Discard, io.Discard) }()
	select {
	case code := <-done:
		check.True(t, code == exitInterrupted, "exit code %d, want %d", code, exitInterrupted)
	case <-time.After(10 * time.Second):
		t.Fatal("still asking")
	}
}

func TestAnEmptyAnswerIsNoPassword(t *testing.T) {
	locktopWith(t, strings.NewReader("\n"), "list", "--askpass").fails(t, exitUsage, "--askpass got no password")
}

// eventually waits until a condition holds.
func eventually(t *testing.T, holds func() bool) {
	t.Helper()
	within(t, longestWait, holds)
}

// within waits until a condition holds, at most for some time. The pause between two looks grows
// with the time that has passed, because a look may cost a process.
func within(t *testing.T, limit time.Duration, holds func() bool) {
	t.Helper()
	for began := time.Now(); !holds(); {
		passed := time.Since(began)
		check.Require(t, passed <= limit, "it does not come about within %v", limit)
		time.Sleep(min(max(passed/8, 5*time.Millisecond), 50*time.Millisecond))
	}
}

func TestFlagsThatDoNotGoTogetherAreRefused(t *testing.T) {
	const at, away, agents = "-u redis://127.0.0.1:1", "-u redis://10.1.2.3:6379", "--control redis://127.0.0.1:2 --agents "
	for args, want := range map[string]string{
		"config a b": "config takes one argument at most", "demo a b": "one argument", "load a b": "one argument", "scenarios a b": "one argument", "formats a b": "one argument",
		"help nosuch": "unknown command", "export --web.listen-address nosuch": "as in --web.listen-address 127",
		"agent --control zzz": "--control is not a Redis address",
		"agent":               "an agent needs --control",
		"agent --control redis://127.0.0.1:1 " + at: "unknown flag -u",
		"load --agents 2":                                         "--agents needs --control",
		"load --control redis://127.0.0.1:1":                      "--control needs --agents",
		"load " + agents + "2000":                                 "1 to 1000",
		"load " + agents + "2 --demo":                             "--demo and --control contradict each other",
		"load " + agents + "2 --events e":                         "the events stay with the agents",
		"load " + agents + "2 --sentinel 127.0.0.1:1":             "agents do not ask Sentinels",
		at + " --load --agents 4":                                 "--agents needs --control",
		at + " --agents 4":                                        "--agents needs --control",
		at + " --control redis://127.0.0.1:2":                     "--control needs --agents",
		away + " " + agents + "4":                                 "is on another machine",
		at + " " + agents + "4 --production":                      "contradict",
		"--sentinel 127.0.0.1:1 --master m " + agents + "4":       "agents do not ask Sentinels",
		away + " --load":                                          "is on another machine",
		at + " --load --production":                               "contradict",
		at + " --load -n all":                                     "one database",
		"--redlock redis://127.0.0.1:1,redis://10.0.0.1:2 --load": "10.0.0.1:2 is on another machine",
		"list --cluster --redlock redis://a,redis://b":            "", "list --cluster --sentinel a": "", "list --sentinel a -H b": "",
		"list --redlock redis://a -p 1": "", "list --master m": "", "list --prefer-replica": "", "list --redlock http://a": "",
		"contention --force": "--force needs --monitor", "contention --for 0s": "--for: not a positive time", "contention --classes 0": "--classes: not a positive number",
		"contention --monitor --for 2m": "with --monitor, --for is at most 1 m", "contention --order --folded": "--folded excludes",
		"inspect --key-b64 b*se64": "this is not base64", "release --key-b64 bG9jazph lock:a": "KEY and --key-b64 exclude each other", "release": "needs the key of a lock",
		"list -n some": "", "list --budget 0": "", "list --budget 101": "", "list --budget fast": "",
	} {
		locktop(t, strings.Fields(args)...).fails(t, exitUsage, want)
	}
}

func TestDebugWritesWhatWasReadAndWhatWasRefused(t *testing.T) {
	t.Parallel()
	addr := servertest.RedisForTest(t).Addr()
	aLockOfEachType(t, addr)
	aUser(t, addr, "ann", "on", ">c4nary", "~*", "&*", "+@all", "-strlen")
	path := filepath.Join(t.TempDir(), "debug.jsonl")
	locktop(t, "list", "--debug", path, "-u", "redis://ann:c4nary@"+addr)
	text := readText(t, path)
	check.True(t, compiled(`"commands":"[^"]*strlen×1[^"]*","failed":1,.*"ms":[0-9.]+,"error":"NOPERM `).MatchString(text), "no refusal in %s", text)
	check.True(t, !compiled(`c4nary|lock:a|`+token).MatchString(text), "a key, a value or a password in %s", text)
	locktop(t, "list", "--debug", "/nowhere/file", "-u", "redis://"+addr).fails(t, exitUsage, "--debug: open /nowhere/file")
}

func TestAFaultIsOneLine(t *testing.T) {
	var out bytes.Buffer
	messages{to: &out}.fault(&exitError{code: 1, err: errors.New("read:\n\x1b[2J"), hint: "do\rthis"})
	check.Equal(t, out.String(), "locktop: read:\\n\\x1b[2J (do\\rthis)\n")
	out.Reset()
	messages{to: &out, json: true}.fault(&exitError{code: 6, err: errors.New("read:\n\x1b[2J")})
	var back struct {
		Error string
		Exit  int `json:"exit_code"`
	}
	err := json.Unmarshal(out.Bytes(), &back)
	check.True(t, err == nil && back.Error == "read:\n\x1b[2J" && back.Exit == 6, "%q came back as %+v, error %v", out.String(), back, err)
	n := strings.Count(out.String(), "\n")
	check.True(t, n == 1, "%d lines: %q", n, out.String())
}
