package server

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// awaitStopped returns when a process has stopped after SIGSTOP. Until the kernel
// delivers the signal, the process can still answer a command.
func (p *process) awaitStopped() error {
	for p.running() {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid()))
		if err != nil {
			return err
		}
		// "pid (name) state …"; only the last parenthesis ends the name.
		if bytes.HasPrefix(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" T")) {
			return nil
		}
		time.Sleep(50 * time.Microsecond)
	}
	return errNotRunning
}

// dieWithParent makes the kernel kill the child when the thread that starts it
// ends. SIGKILL also ends a frozen server.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
