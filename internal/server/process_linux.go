package server

import (
	"bytes"
	"fmt"
	"os"
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

// ownGroup is for a child in a process group of its own. The kernel kills it when the
// thread that starts it ends. SIGKILL also ends a frozen server.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
