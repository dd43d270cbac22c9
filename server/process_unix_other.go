//go:build unix && !linux

package server

import "os/exec"

// awaitStopped does nothing: no portable interface shows that a process has stopped.
func (p *process) awaitStopped() error { return nil }

// dieWithParent does nothing: only Linux can tie a child to its parent.
func dieWithParent(*exec.Cmd) {}
