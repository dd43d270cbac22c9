package server

import (
	"errors"
	"os"
	"os/exec"
)

var errNoSignals = errors.New("windows cannot freeze a process")

// shutDown kills the process: Windows has no SIGTERM, and the server has no data to
// save.
func (p *process) shutDown() error { return p.cmd.Process.Signal(os.Kill) }

func (p *process) freeze() error { return errNoSignals }

func (p *process) resume() error { return errNoSignals }

// dieWithParent does nothing: only Linux can tie a child to its parent.
func dieWithParent(*exec.Cmd) {}
