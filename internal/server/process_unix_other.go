//go:build unix && !linux

package server

import "syscall"

// ownGroup is for a child in a process group of its own. Only Linux can tie a child to its
// parent.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
