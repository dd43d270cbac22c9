//go:build unix

package cli

import (
	"os"
	"syscall"
	"testing"

	"locktop/internal/check"
)

// stopGroup stops the process group of a process, as Ctrl-Z does.
func stopGroup(t *testing.T, p *os.Process) {
	t.Helper()
	check.NoError(t, syscall.Kill(-p.Pid, syscall.SIGSTOP))
}

// stopProcess stops a process until continueProcess.
func stopProcess(t *testing.T, p *os.Process) {
	t.Helper()
	check.NoError(t, p.Signal(syscall.SIGSTOP))
}

func continueProcess(t *testing.T, p *os.Process) {
	t.Helper()
	check.NoError(t, p.Signal(syscall.SIGCONT))
}
