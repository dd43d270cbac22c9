//go:build unix

package external

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"locktop/internal/sigstop"
)

// group is a process group. All methods are safe for concurrent use.
type group struct {
	mu   sync.Mutex
	id   int
	gone bool // another process may get the ID
}

// register is what the shell of a client runs first: it reports its process group to the
// guard before the client exists.
const register = "echo + $$ >&3; exec 3>&-\n"

// startGroup starts a command of the shell in a process group of its own.
func startGroup(command string, prepare func(*exec.Cmd)) (*exec.Cmd, *group, error) {
	lines, err := theGuard.enter()
	if err != nil {
		return nil, nil, fmt.Errorf("start its guard: %w", err)
	}
	cmd := exec.Command("/bin/sh", "-c", register+command)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.ExtraFiles = []*os.File{lines}
	prepare(cmd)
	if err := cmd.Start(); err != nil {
		theGuard.leave(0)
		return nil, nil, err
	}
	return cmd, &group{id: cmd.Process.Pid}, nil
}

// kill ends all processes of the group at once.
func (g *group) kill() { _ = g.signal(syscall.SIGKILL) }

// freeze returns when no process of the group runs any more.
func (g *group) freeze() error {
	g.mu.Lock() // no resume before the group has stopped
	defer g.mu.Unlock()
	if err := g.send(syscall.SIGSTOP); err != nil {
		return err
	}
	return sigstop.AwaitGroup(g.id)
}

func (g *group) resume() error { return g.signal(syscall.SIGCONT) }

func (g *group) signal(s syscall.Signal) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.send(s)
}

// send sends a signal to all processes of the group. g.mu must be held.
func (g *group) send(s syscall.Signal) error {
	if g.gone {
		return os.ErrProcessDone
	}
	err := syscall.Kill(-g.id, s)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// forget must be called after the last process of the group has ended.
func (g *group) forget() {
	g.mu.Lock()
	g.gone = true
	g.mu.Unlock()
	theGuard.leave(g.id)
}

// guard is a shell that kills the process groups of the clients when this process ends,
// however it ends. It reads from a pipe which groups there are, and the pipe ends with
// this process. It runs while there are clients.
type guard struct {
	mu      sync.Mutex
	clients int
	lines   *os.File
	cmd     *exec.Cmd
}

var theGuard guard

const guardScript = `trap '' HUP INT TERM
groups=
while read -r op group; do
	case $op in
	+) groups="$groups $group" ;;
	-) kept=
	   for g in $groups; do [ "$g" = "$group" ] || kept="$kept $g"; done
	   groups=$kept ;;
	esac
done
for g in $groups; do kill -s KILL -- "-$g"; done 2>/dev/null
`

// enter starts the guard for the first client. A client must write its process group to
// the returned file.
func (g *guard) enter() (*os.File, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.clients == 0 {
		if err := g.start(); err != nil {
			return nil, err
		}
	}
	g.clients++
	return g.lines, nil
}

// start starts the guard. It has a process group of its own, so that an interrupt from
// the terminal does not end it. g.mu must be held.
func (g *guard) start() error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd := exec.Command("/bin/sh", "-c", guardScript)
	cmd.Stdin = r
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return errors.Join(err, w.Close())
	}
	g.lines, g.cmd = w, cmd
	return nil
}

// leave removes a process group, 0 if it has not started, and ends the guard after the
// last client.
func (g *guard) leave(id int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if id > 0 {
		_, _ = io.WriteString(g.lines, fmt.Sprintf("- %d\n", id)) // without a guard there is nothing to remove
	}
	if g.clients--; g.clients == 0 {
		_ = g.lines.Close()
		_ = g.cmd.Wait()
	}
}
