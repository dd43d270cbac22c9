package server

import "syscall"

// ownGroup is for a child in a process group of its own. The kernel kills it when the
// thread that starts it ends. SIGKILL also ends a frozen server.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
