package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
)

func TestMain(m *testing.M) {
	executable = func() (string, error) { return exec.LookPath("locktop") } // not this test
	end := func() {}
	if filepath.Base(os.Args[0]) != "locktop" { // Main makes a directory before it runs the tests
		end = servertest.OwnTempDir()
	}
	testscript.Main(isolated{m, end}, map[string]func(){
		"locktop": func() { os.Exit(Run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) },
	})
}

// isolated runs the tests without the user's environment: its addresses, its passwords and its audit log.
type isolated struct {
	*testing.M
	end func()
}

func (m isolated) Run() int {
	defer m.end()
	for _, name := range []string{"LOCKTOP_URL", "REDIS_URL", "REDISCLI_AUTH"} {
		os.Unsetenv(name)
	}
	state, remove, err := server.TempDir()
	if err != nil {
		panic(err)
	}
	defer func() { _ = remove() }()
	os.Setenv("XDG_STATE_HOME", state)
	os.Setenv("XDG_CONFIG_HOME", state)
	// The tests of the first tier mostly wait; those of the long tier start servers and programs.
	return servertest.Tests{M: m.M, Parallel: testtier.Size(20, 6, 6)}.Run()
}

// socketDir is t.TempDir with a short path, because that of a socket has about 100 bytes at most.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, remove, err := server.TempDir()
	check.NoError(t, err)
	t.Cleanup(func() { _ = remove() })
	return dir
}

func TestScriptsOnRedis(t *testing.T) {
	long(t, "the scripts start a redis-server each")
	testscript.Run(t, scripts("redis", func(tb servertest.TB) string { return servertest.RedisForTest(tb).Addr() }))
}

func TestScriptsOnTheEmbeddedServer(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err == nil {
		testtier.Long(t, "where there is a redis-server, the scripts run only in the long tier")
	}
	t.Parallel()
	testscript.Run(t, scripts("embedded", func(tb servertest.TB) string { return servertest.EmbeddedForTest(tb).Addr() }))
}

// scripts returns the parameters for the files in testdata, each with a server
// of its own. Besides the commands of testscript they have:
//
//	redis COMMAND ARGUMENTS…   sends a command; arguments have the escapes of Go strings
//	user NAME RULES…           creates a user with these permissions, as far as the server has them
//	keys NAME…                 expects exactly these keys on the server
//	exits CODE ARGUMENTS…      runs locktop and expects that exit code
//	lock KEY FIELD=VALUE…      expects that lock in the JSON on stdout; a field is a path, as in
//	                           holders.0.count; holders.len is a length
//	ttl KEY                    compares the lock's ttl_ms with the server's present answer
//
// The condition [long] is true in the long tier of the tests.
//
// $addr, $host, $port and LOCKTOP_URL contain the address of the server.
func scripts(name string, start func(servertest.TB) string) testscript.Params {
	return testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			addr := start(scriptTB{env})
			host, port, _ := strings.Cut(addr, ":")
			env.Vars = append(env.Vars, "addr="+addr, "host="+host, "port="+port, "LOCKTOP_URL=redis://"+addr)
			rdb := server.NewClient(addr, server.ClientOptions{})
			env.Values[redisKey{}] = rdb
			env.Defer(func() { _ = rdb.Close() })
			return nil
		},
		Condition: func(cond string) (bool, error) { return cond == name || cond == "long" && testtier.InLong(), nil },
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"redis": scriptRedis,
			"user":  scriptUser,
			"keys":  scriptKeys,
			"exits": scriptExits,
			"lock":  scriptLock,
			"ttl":   scriptTTL,
		},
	}
}

// redisKey is the key of the script's client.
type redisKey struct{}

func clientOf(ts *testscript.TestScript) server.Client {
	return ts.Value(redisKey{}).(server.Client)
}

// scriptTB lets a script start a server that stops at the end of the script.
type scriptTB struct{ env *testscript.Env }

func (s scriptTB) Helper()           {}
func (s scriptTB) Cleanup(f func())  { s.env.Defer(f) }
func (s scriptTB) Skip(args ...any)  { s.env.T().Skip(args...) }
func (s scriptTB) Fatal(args ...any) { s.env.T().Fatal(args...) }

func scriptRedis(ts *testscript.TestScript, _ bool, args []string) {
	argv := make([]any, len(args))
	for i, a := range args {
		raw, err := strconv.Unquote(`"` + strings.ReplaceAll(a, `"`, `\"`) + `"`)
		ts.Check(err)
		argv[i] = raw
	}
	ts.Check(clientOf(ts).Do(context.Background(), argv...).Err())
}

func scriptUser(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(servertest.SetUser(context.Background(), clientOf(ts), args[0], args[1:]...))
}

func scriptKeys(ts *testscript.TestScript, _ bool, want []string) {
	keys, err := clientOf(ts).Keys(context.Background(), "*").Result()
	ts.Check(err)
	slices.Sort(keys)
	if !slices.Equal(keys, want) {
		ts.Fatalf("keys %q, want %q", keys, want)
	}
}

func scriptExits(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	code := 0
	if err := ts.Exec("locktop", args[1:]...); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("run locktop: %v", err)
		}
		code = exit.ExitCode()
	}
	if code != want {
		ts.Fatalf("exit code %d, want %d", code, want)
	}
}

func scriptLock(ts *testscript.TestScript, _ bool, args []string) {
	l := lockOnStdout(ts, args[0])
	for _, a := range args[1:] {
		path, want, _ := strings.Cut(a, "=")
		if got := at(l, path); fmt.Sprint(got) != want && (got != nil || want != "") { // what is unknown has no key
			ts.Fatalf("%s of %s is %v, want %s", path, args[0], got, want)
		}
	}
}

// tolerance is the allowed difference of a TTL.
const tolerance = 50 * time.Millisecond

func scriptTTL(ts *testscript.TestScript, _ bool, args []string) {
	l := lockOnStdout(ts, args[0])
	said, err := at(l, "ttl_ms").(json.Number).Int64()
	ts.Check(err)
	looked, err := time.Parse(time.RFC3339, at(document(ts), "at").(string))
	ts.Check(err)

	pipe := clientOf(ts).Pipeline()
	now, left := pipe.Time(context.Background()), pipe.PTTL(context.Background(), args[0])
	_, err = pipe.Exec(context.Background())
	ts.Check(err)
	expires := now.Val().Add(left.Val())
	if off := looked.Add(time.Duration(said) * time.Millisecond).Sub(expires).Abs(); off > tolerance {
		ts.Fatalf("%s expires at %v and was said to in %d ms at %v, off by %v", args[0], expires, said, looked, off)
	}
}

func document(ts *testscript.TestScript) any {
	d := json.NewDecoder(strings.NewReader(ts.ReadFile("stdout")))
	d.UseNumber()
	var doc any
	ts.Check(d.Decode(&doc))
	return doc
}

func lockOnStdout(ts *testscript.TestScript, key string) any {
	for _, l := range at(document(ts), "locks").([]any) {
		if at(l, "key") == key {
			return l
		}
	}
	ts.Fatalf("there is no lock %s", key)
	return nil
}

// at follows a path such as holders.0.count into decoded JSON. It returns nil if there is no such value.
func at(v any, path string) any {
	if rest, ok := strings.CutSuffix(path, ".len"); ok {
		list, _ := at(v, rest).([]any)
		return len(list)
	}
	for step := range strings.SplitSeq(path, ".") {
		switch node := v.(type) {
		case map[string]any:
			v = node[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i >= len(node) {
				return nil
			}
			v = node[i]
		default:
			return nil
		}
	}
	return v
}
