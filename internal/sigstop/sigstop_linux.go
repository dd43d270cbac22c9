package sigstop

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// limit is longer than a busy machine takes to stop a process.
const limit = 10 * time.Second

// Await returns when a process that got SIGSTOP executes nothing any more, or has ended.
// The kernel tells one thread of the signal, and the others run on until that thread has been
// scheduled, which takes milliseconds on a busy machine. Await fails if the process still runs
// after 10 s, as when another process sends SIGCONT.
func Await(pid int) error {
	for end := time.Now().Add(limit); runs(pid); time.Sleep(50 * time.Microsecond) {
		if time.Now().After(end) {
			return fmt.Errorf("process %d has not stopped within %s", pid, limit)
		}
	}
	return nil
}

// AwaitGroup is [Await] for all processes of a process group.
func AwaitGroup(group int) error {
	names, err := os.ReadDir("/proc")
	for _, name := range names {
		pid, none := strconv.Atoi(name.Name())
		if of, ended := syscall.Getpgid(pid); none != nil || ended != nil || of != group {
			continue
		}
		if err := Await(pid); err != nil {
			return err
		}
	}
	return err
}

// runs reports whether a thread of a process runs or sleeps. A thread that sleeps can wake up
// and run before it stops. A thread in an uninterruptible wait (D) stops when the wait ends:
// a process that starts another one waits so, for ever if the other one has stopped.
func runs(pid int) bool {
	paths, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid)) // the pattern is valid
	for _, path := range paths {
		if fields := stat(path); len(fields) > 0 && (fields[0][0] == 'R' || fields[0][0] == 'S') {
			return true
		}
	}
	return false
}

// stat returns the fields after the name of a process or thread, none if it has ended.
func stat(path string) [][]byte {
	text, _ := os.ReadFile(path)
	return bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:]) // only the last parenthesis ends the name
}
