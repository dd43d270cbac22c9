package server

import (
	"errors"
	"os"
	"syscall"
)

var errNoSignals = errors.New("windows cannot freeze a process")

// shutDown kills the process: Windows has no SIGTERM, and the server has no data to
// save.
func (p *process) shutDown() error { return p.cmd.Process.Signal(os.Kill) }

func (p *process) freeze() error { return errNoSignals }

func (p *process) resume() error { return errNoSignals }

// ownGroup is for a child in a process group of its own. Only Linux can tie a child to its
// parent.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}
