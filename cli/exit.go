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
	exitChanged     = 5 // the lock differs from the one that was seen; nothing was done
	exitNoConnect   = 6
	exitUnsafe      = 98 // overlap on a lock that must be safe
	exitThreshold   = 99
	exitInterrupted = 130
)

// exitCodes is the explanation in the help.
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

// exitError is an error with an exit code and, if the user can do something, a hint.
type exitError struct {
	code int
	err  error
	hint string
}

func (f *exitError) Error() string { return f.err.Error() }
func (f *exitError) Unwrap() error { return f.err }

// usageErrorf returns the exitError for a wrong command line.
func usageErrorf(hint, format string, args ...any) *exitError {
	return &exitError{code: exitUsage, err: fmt.Errorf(format, args...), hint: hint}
}

// noLock returns the exitError for a key that is not a lock.
func noLock(hint, format string, args ...any) *exitError {
	return &exitError{code: exitNoLock, err: fmt.Errorf(format, args...), hint: hint}
}

// asExitError returns the exitError in err, or err with exitFailure.
func asExitError(err error) *exitError {
	var f *exitError
	if errors.As(err, &f) {
		return f
	}
	return &exitError{code: exitFailure, err: err}
}

// onlyMine returns a hint with the command that hides a file from other users. It
// returns "" if the name has characters that a line for people cannot show.
func onlyMine(path string) string {
	line, _ := shell.Line("chmod", "600", path)
	if widget.Plain(line) != line {
		return ""
	}
	return line
}
