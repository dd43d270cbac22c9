//go:build !linux

package server

import "os/exec"

// dieWithParent does nothing: only Linux can tie a child to its parent.
func dieWithParent(*exec.Cmd) {}
