//go:build unix && !linux

package server

// awaitHalt does nothing: there is no portable way to see a process halt.
func (p *process) awaitHalt() error { return nil }
