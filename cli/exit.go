package cli

import (
	"errors"
	"fmt"

	"locktop/shell"
	"locktop/tui/widget"
)

// The exit codes that scripts rely on.
const (
	exitFine        = 0
	exitFailure     = 1
	exitUsage       = 2
	exitFindings    = 3
	exitNoLock      = 4
	exitChanged     = 5 // it was not as it had been seen, and nothing was done
	exitNoConnect   = 6
	exitUnsafe      = 98 // an overlap on a sound lock
	exitThreshold   = 99
	exitInterrupted = 130
)

// exitCodes explains them to people.
const exitCodes = `  0    fine
  1    something failed on the way; what is known was printed
  2    a wrong command line
  3    something is wrong with a lock: list --fail-if-stuck, doctor
  4    there is no such lock
  5    the lock was not as it had been seen, and nothing was done
  6    no connection to the server
  98   load: an overlap on a lock that should exclude it
  99   load: a threshold was missed
  130  interrupted
`

// exitError is an error that knows its exit code and, where there is something the
// user can do about it, a hint.
type exitError struct {
	code int
	err  error
	hint string
}

func (f *exitError) Error() string { return f.err.Error() }
func (f *exitError) Unwrap() error { return f.err }

// usageErrorf is a fault of the command line.
func usageErrorf(hint, format string, args ...any) *exitError {
	return &exitError{code: exitUsage, err: fmt.Errorf(format, args...), hint: hint}
}

// noLock is a fault of a key that is no lock.
func noLock(hint, format string, args ...any) *exitError {
	return &exitError{code: exitNoLock, err: fmt.Errorf(format, args...), hint: hint}
}

// asExitError returns the fault within err, or err as a plain error.
func asExitError(err error) *exitError {
	var f *exitError
	if errors.As(err, &f) {
		return f
	}
	return &exitError{code: exitFailure, err: err}
}

// onlyMine is a hint at the command that hides a file from others. There is none
// for a name that a line for people would show changed.
func onlyMine(path string) string {
	line, _ := shell.Line("chmod", "600", path)
	if widget.Plain(line) != line {
		return ""
	}
	return line
}
