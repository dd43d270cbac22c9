package server

import (
	"bytes"
	"fmt"
	"os"
	"time"
)

// awaitHalt returns when a process that was sent SIGSTOP no longer runs: the
// signal is on its way for a moment, in which a command could still be answered.
func (p *process) awaitHalt() error {
	for p.running() {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid()))
		if err != nil {
			return err
		}
		// "pid (name) state …"; only the last parenthesis ends the name.
		if bytes.HasPrefix(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" T")) {
			return nil
		}
		time.Sleep(50 * time.Microsecond)
	}
	return errNotRunning
}
