// Package labtest has what the tests of several packages of the laboratory share: locktop in the
// process of the test and in processes of its own, its recordings, and clients of its servers.
package labtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"locktop/cli"
	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/keyspace"
	"locktop/keyspace/recording"
	"locktop/lock"
)

// LongestWait is how long tests wait for an event. Only a failing test waits that long.
const LongestWait = time.Minute

// FreeIfMine releases a lock as most clients do: KEYS[1] if its value is ARGV[1].
var FreeIfMine = redis.NewScript(`if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0`)

// Main runs the tests of a package without the user's environment, some of them at the same time.
// It ends the process, and is for TestMain. If the first argument is a command, and not a flag of the
// tests, the process is locktop: [Command] starts it, and locktop itself does for MONITOR.
func Main(m *testing.M, parallel int) {
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		os.Exit(cli.Run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(isolated(m, parallel))
}

func isolated(m *testing.M, parallel int) int {
	logging.Disable() // go-redis logs every connection that it cannot open
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
	return servertest.Tests{M: m, Parallel: parallel}.Run()
}

// Outcome is the result of a run of locktop.
type Outcome struct {
	Code        int
	Out, Errors string
}

// Locktop runs locktop in this process and waits for its end.
func Locktop(t *testing.T, args ...string) Outcome {
	t.Helper()
	var out, errs bytes.Buffer
	code := cli.Run(t.Context(), args, strings.NewReader(""), &out, &errs)
	return Outcome{code, out.String(), errs.String()}
}

// Printed runs locktop in this process and returns what it prints. The test fails unless it ends well.
func Printed(t *testing.T, args ...string) string {
	t.Helper()
	got := Locktop(t, args...)
	check.Require(t, got.Code == 0, "locktop %q: %+v", args, got)
	return got.Out
}

// Command returns the command that runs locktop in a process of its own. The first argument is its command.
func Command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	return exec.Command(check.Must(os.Executable())(t), args...)
}

// Program is locktop in a process of its own.
type Program struct {
	*exec.Cmd
	Out, Errors *Text
	t           *testing.T
	ended       chan struct{} // closed at its end
}

// Text is what a process has written so far.
type Text struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (x *Text) Write(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.text.Write(p)
}

func (x *Text) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.text.String()
}

// Start starts locktop in a process of its own. It is killed at the end of the test.
func Start(t *testing.T, args ...string) *Program {
	t.Helper()
	p := &Program{Command(t, args...), new(Text), new(Text), t, make(chan struct{})}
	p.Stdout, p.Stderr = p.Out, p.Errors
	check.NoError(t, p.Cmd.Start())
	go func() {
		defer close(p.ended)
		_ = p.Wait() // the tests look at its state
	}()
	t.Cleanup(func() {
		_ = p.Process.Kill()
		<-p.ended
		if t.Failed() {
			t.Logf("locktop %q: %s\n%s%.3000s", args, p.ProcessState, p.Errors, p.Out)
		}
	})
	return p
}

// Signal sends a signal to the process.
func (p *Program) Signal(signal os.Signal) {
	p.t.Helper()
	check.NoError(p.t, p.Process.Signal(signal))
}

// Says waits until the process has written a text to stderr.
func (p *Program) Says(text string) {
	p.t.Helper()
	Within(p.t, LongestWait, func() bool { return strings.Contains(p.Errors.String(), text) })
}

// Ended waits for the end of the process, and returns its exit code.
func (p *Program) Ended() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(LongestWait):
		p.t.Fatalf("%q does not end", p.Args)
	}
	return p.ProcessState.ExitCode()
}

// Exits waits for the end of the process, with an exit code.
func (p *Program) Exits(code int) {
	p.t.Helper()
	check.Equal(p.t, p.Ended(), code, "the exit code of %q", p.Args)
}

// Client returns a client of a server until the end of the test.
func Client(t *testing.T, addr string, o server.ClientOptions) server.Client {
	t.Helper()
	rdb := server.NewClient(addr, o)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// LockClient returns a client of package lock until the end of the test.
func LockClient(t *testing.T, rdb server.Client, owner string) *lock.Client {
	t.Helper()
	client := check.Must(lock.New(rdb.(redis.UniversalClient), lock.Config{Owner: owner}))(t)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Sides returns the two sides of an owner of a read/write lock.
func Sides(t *testing.T, c *lock.Client, key string, o lock.Options) (reader, writer lock.Locker) {
	t.Helper()
	reader, writer, err := c.RW(key, o)
	check.NoError(t, err)
	return reader, writer
}

// Within waits until a condition holds, at most for some time. The pause between two looks grows
// with the time that has passed, because a look may cost a process.
func Within(t *testing.T, limit time.Duration, holds func() bool) {
	t.Helper()
	for began := time.Now(); !holds(); {
		passed := time.Since(began)
		check.Require(t, passed <= limit, "it does not come about within %v", limit)
		time.Sleep(min(max(passed/8, 5*time.Millisecond), 50*time.Millisecond))
	}
}

// RecordedUntil reads a recording until a condition is met at its end.
func RecordedUntil(t *testing.T, recorded, what string, ok func(keyspace.Snapshot) bool) {
	t.Helper()
	var last keyspace.Snapshot
	for deadline := time.Now().Add(LongestWait); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		r, err := recording.Open(recorded)
		if err != nil {
			continue // there is no frame yet
		}
		_, end := r.Span()
		last, err = r.At(end, end.Add(-time.Minute))
		check.NoError(t, errors.Join(err, r.Damage(), r.Close()))
		if ok(last) {
			return
		}
	}
	t.Fatalf("the recording never has %s; its end is %+v", what, last)
}

// Decoded decodes a JSON document.
func Decoded[T any](t *testing.T, text string) (document T) {
	t.Helper()
	err := json.Unmarshal([]byte(text), &document)
	check.Require(t, err == nil, "%v in %s", err, text)
	return document
}

// DecodedLines decodes a JSON document in each line.
func DecodedLines[T any](t *testing.T, text string) (all []T) {
	t.Helper()
	for line := range strings.Lines(text) {
		all = append(all, Decoded[T](t, line))
	}
	return all
}
