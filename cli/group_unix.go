//go:build unix

package cli

import (
	"os/exec"
	"syscall"
)

// inGroupOfItsOwn keeps the signals of the terminal, such as Ctrl-Z, away from a command.
func inGroupOfItsOwn(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
