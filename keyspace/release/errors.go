package release

import (
	"errors"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Errors of a server that refuses an action, independent of its version.
var (
	ErrReadOnly     = errors.New("the server is a read-only replica")
	ErrNoPermission = errors.New("the ACL does not let this user act on the lock")
)

// releaseError is an error that a server returned for a script that changes a lock.
type releaseError struct {
	said string // the message without what the server adds to errors in scripts
	kind error  // ErrReadOnly, ErrNoPermission, or what go-redis returned
}

func (e *releaseError) Error() string { return e.said }
func (e *releaseError) Unwrap() error { return e.kind }

// scriptError returns the error of a script as if its command had been sent alone.
// Errors that no server returned are not changed.
func scriptError(err error) error {
	if _, answered := errors.AsType[redis.Error](err); !answered {
		return err
	}
	e := &releaseError{said: stripScriptError(err.Error()), kind: err}
	code, _, _ := strings.Cut(e.said, " ")
	switch code {
	case "READONLY":
		e.kind = ErrReadOnly
	case "NOPERM":
		e.kind = ErrNoPermission
	}
	return e
}

// What servers add to an error of a command in a script.
var (
	// Redis 6: ERR Error running script (call to f_<sha>): @user_script:9: @user_script: 9:
	// -OOM … The position appears twice if the server refused to run the command. The
	// error of a command that ran has no dash.
	beforeError = regexp.MustCompile(`^ERR Error running script \(call to f_[0-9a-f]+\): @user_script:\d+: (@user_script: \d+: )?-?`)
	// Redis 7 and later, Valkey: OOM … script: <sha>, on @user_script:9.
	afterError = regexp.MustCompile(` script: [0-9a-f]+, on @user_script:\d+\.$`)
)

// stripScriptError removes what a server adds to the error of a command in a script,
// and gives a missing permission its usual code.
func stripScriptError(text string) string {
	text = beforeError.ReplaceAllString(text, "")
	text = afterError.ReplaceAllString(text, "")
	if what, denied := strings.CutPrefix(text, "ERR ACL failure in script: "); denied { // Redis 7.2 and later, Valkey
		return "NOPERM " + what
	}
	plain := strings.TrimPrefix(text, "ERR ")
	if strings.HasPrefix(plain, "The user executing the script can't ") { // Redis 6.0 and 7.0
		return "NOPERM " + plain
	}
	return text
}
