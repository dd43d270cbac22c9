//go:build unix

package cli

import (
	"os"
	"syscall"
	"testing"
)

// stopGroup stops the process group of a process, as Ctrl-Z does.
func stopGroup(t *testing.T, p *os.Process) {
	t.Helper()
	if err := syscall.Kill(-p.Pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
}

// stopProcess stops a process until continueProcess.
func stopProcess(t *testing.T, p *os.Process) {
	t.Helper()
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
}

func continueProcess(t *testing.T, p *os.Process) {
	t.Helper()
	if err := p.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}
