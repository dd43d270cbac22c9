package server

import (
	"os/exec"
	"syscall"
)

// dieWithParent has the kernel kill the child when the thread that starts it
// ends. SIGKILL also ends a frozen server.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
