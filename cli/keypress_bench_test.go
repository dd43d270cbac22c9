//go:build linux

package cli

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"locktop/internal/check"
)

// BenchmarkKeyToFrame presses a key of the screen while the demo's load runs, and waits for the first output. The keys
// are pressed between two frames, so that a regular frame does not count as the reaction.
func BenchmarkKeyToFrame(b *testing.B) {
	t := openPseudoTerminal(b, 160, 60, "demo")
	t.until("m shows ")
	t.press("3") // starts the load
	t.until("no overlaps")
	t.press("1")
	t.until("OWNER")
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		t.quiet(30 * time.Millisecond)
		begin := time.Now()
		t.press("jk"[i%2 : i%2+1])
		t.some(time.Minute)
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	for _, percent := range []int{50, 90, 99} {
		b.ReportMetric(float64(took[len(took)*percent/100].Microseconds())/1000, fmt.Sprintf("p%d-ms", percent))
	}
}

// pseudoTerminal is a terminal without another program between the benchmark and locktop.
type pseudoTerminal struct {
	b      *testing.B
	master *os.File
	buf    []byte
}

// openPseudoTerminal runs locktop in a terminal of w columns and h lines until the end of the benchmark.
func openPseudoTerminal(b *testing.B, w, h uint16, args ...string) *pseudoTerminal {
	b.Helper()
	program := check.Must(exec.LookPath("locktop"))(b)
	master := check.Must(os.OpenFile("/dev/ptmx", os.O_RDWR, 0))(b)
	b.Cleanup(func() { master.Close() })
	slave := slaveOf(b, master, &unix.Winsize{Row: h, Col: w})
	defer slave.Close()
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "TERM=xterm-256color", "CI=", "XDG_STATE_HOME="+b.TempDir())
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	check.NoError(b, cmd.Start())
	b.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait() // the error is that it was interrupted
	})
	return &pseudoTerminal{b, master, make([]byte, 1<<16)}
}

// slaveOf returns the end of a pseudo terminal for the program.
func slaveOf(b *testing.B, master *os.File, size *unix.Winsize) *os.File {
	b.Helper()
	conn, err := master.SyscallConn()
	check.NoError(b, err)
	var number int
	var failed error
	err = conn.Control(func(fd uintptr) {
		if failed = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); failed != nil {
			return
		}
		if failed = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, size); failed != nil {
			return
		}
		number, failed = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
	})
	check.Require(b, err == nil && failed == nil, "%v %v", err, failed)
	slave := check.Must(os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0))(b)
	return slave
}

// press types a key.
func (t *pseudoTerminal) press(key string) {
	check.Must(t.master.WriteString(key))(t.b)
}

// some returns the next output of the program, or nothing if that takes too long.
func (t *pseudoTerminal) some(patience time.Duration) []byte {
	check.NoError(t.b, t.master.SetReadDeadline(time.Now().Add(patience)))
	n, err := t.master.Read(t.buf)
	check.Require(t.b, err == nil || os.IsTimeout(err), "%v", err)
	return t.buf[:n]
}

// quiet waits until the program has written nothing for d.
func (t *pseudoTerminal) quiet(d time.Duration) {
	for len(t.some(d)) > 0 {
	}
}

// until waits until the output contains a text.
func (t *pseudoTerminal) until(text string) {
	var seen bytes.Buffer
	for giveUp := time.Now().Add(time.Minute); !bytes.Contains(seen.Bytes(), []byte(text)); {
		if time.Now().After(giveUp) {
			t.b.Fatalf("waited a minute for %q, saw %q", text, seen.Bytes())
		}
		seen.Write(t.some(time.Second))
	}
}
