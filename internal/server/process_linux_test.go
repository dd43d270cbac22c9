package server_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
)

// asProgram is the environment variable that makes this test binary another program: a
// parent, which starts a child and waits to be killed, tests that do, or a later start.
const asProgram = "LOCKTOP_TEST_PROGRAM"

func TestMain(m *testing.M) {
	switch os.Getenv(asProgram) {
	case "parent":
		parent()
	case "tests":
		servertest.Tests{Parallel: 1, M: testsFunc(func() {
			if _, err := os.MkdirTemp("", "of-a-test-"); err == nil {
				parent()
			}
		})}.Run()
	case "later start":
		if _, remove, err := server.TempDir(); err != nil || remove() != nil {
			os.Exit(1)
		}
	default:
		servertest.SetParallel(8) // without Tests: each test starts servers of its own
		os.Exit(m.Run())
	}
}

// parent starts a child from a thread that ends right after, prints the child's
// address, and runs until its input ends.
func parent() {
	thread := make(chan int)
	go onThreadOfItsOwn(func() {
		c, err := server.StartChild(context.Background(), server.ChildOptions{})
		if err != nil {
			fmt.Println(err)
		} else {
			fmt.Println(c.Addr())
		}
		thread <- syscall.Gettid()
	})
	task := fmt.Sprintf("/proc/self/task/%d", <-thread)
	for !errors.Is(stat(task), fs.ErrNotExist) {
		time.Sleep(time.Millisecond)
	}
	fmt.Println("thread gone")
	_, _ = bufio.NewReader(os.Stdin).ReadByte()
}

// onThreadOfItsOwn runs f on a thread that ends with the calling goroutine. The
// first thread of a program never ends, so onThreadOfItsOwn occupies it until f
// has another thread.
func onThreadOfItsOwn(f func()) {
	runtime.LockOSThread() // not unlocked: the thread ends with the goroutine
	if syscall.Gettid() != os.Getpid() {
		f()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		onThreadOfItsOwn(f)
	}()
	<-done
}

func stat(name string) error {
	_, err := os.Stat(name)
	return err
}

// Ctrl-C in a terminal is SIGINT for all processes of a group. A server that received it would
// end before the program has released its locks.
func TestCtrlCDoesNotReachAChild(t *testing.T) {
	t.Parallel()
	child := servertest.RedisForTest(t)
	pid := child.PID()
	group, err := syscall.Getpgid(pid)
	check.True(t, err == nil && group == pid, "its process group is %d, %v; want one of its own, %d", group, err, pid)
}

// When the parent is killed, the child ends, too, and the next start removes its directory, and those
// of the parent's tests.
func TestChildDiesWithItsParentAndNotWithTheThreadThatAskedForIt(t *testing.T) {
	for what, folders := range map[string]int{"parent": 1, "tests": 2} {
		t.Run(what, func(t *testing.T) { testKill(t, what, folders) })
	}
}

// testKill expects so many directories in the temporary folder while a program runs, and none after its kill.
func testKill(t *testing.T, parent string, want int) {
	t.Parallel()
	servertest.RedisForTest(t) // skips where there is no redis-server
	tmp := t.TempDir()
	program := func(what string) *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), asProgram+"="+what, "TMPDIR="+tmp)
		return cmd
	}
	folders := func() int {
		check.NoError(t, program("later start").Run())
		names := check.Must(filepath.Glob(filepath.Join(tmp, "*")))(t)
		return len(names)
	}
	cmd := program(parent)
	stdin := check.Must(cmd.StdinPipe())(t)
	defer stdin.Close()
	stdout := check.Must(cmd.StdoutPipe())(t)
	check.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	lines := bufio.NewReader(stdout)
	addr := check.Must(lines.ReadString('\n'))(t)
	addr = strings.TrimSpace(addr)
	line, err := lines.ReadString('\n')
	check.Require(t, line == "thread gone\n", "the parent says %q, %v", line, err)
	check.Require(t, answers(addr), "no child answers on %q once the thread that asked for it is gone", addr)
	check.Equal(t, folders(), want, "directories beside a start")

	check.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	for end := time.Now().Add(10 * time.Second); answers(addr); time.Sleep(time.Millisecond) {
		check.Require(t, !time.Now().After(end), "the child on %s outlived its parent", addr)
	}
	for end := time.Now().Add(10 * time.Second); folders() > 0; time.Sleep(time.Millisecond) {
		check.Require(t, !time.Now().After(end), "the directory of a killed %s stays", parent)
	}
}

func TestServerHasStoppedWhenFreezeReturns(t *testing.T) {
	t.Parallel()
	c := servertest.RedisForTest(t)
	for range 200 { // usually the server has stopped before the check even without waiting
		check.NoError(t, c.Freeze())
		status := check.Must(os.ReadFile(fmt.Sprintf("/proc/%d/status", c.PID())))(t)
		check.Require(t, strings.Contains(string(status), "State:\tT"), "it still runs:\n%s", status)
		check.NoError(t, c.Continue())
	}
}
