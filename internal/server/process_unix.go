//go:build unix

package server

import (
	"errors"
	"syscall"

	"locktop/internal/sigstop"
)

// shutDown asks the process to end. A frozen process needs SIGCONT to receive the
// signal.
func (p *process) shutDown() error {
	return errors.Join(p.cmd.Process.Signal(syscall.SIGTERM), p.cmd.Process.Signal(syscall.SIGCONT))
}

func (p *process) freeze() error {
	if !p.running() {
		return errNotRunning
	}
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return sigstop.Await(p.pid())
}

func (p *process) resume() error {
	if !p.running() {
		return errNotRunning
	}
	return p.cmd.Process.Signal(syscall.SIGCONT)
}
