package cli

import (
	"os/exec"
	"syscall"
)

// inGroupOfItsOwn keeps the signals of the terminal, such as Ctrl-C, away from a command.
func inGroupOfItsOwn(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}
