package keyspace

import (
	"errors"
	"testing"
)

// serverError is an error as a server sends it.
type serverError string

func (e serverError) Error() string { return string(e) }
func (serverError) RedisError()     {}

// The texts are those of Redis 6.0.16, 7.0.15, 8.0.2 and Valkey 8.1.1.
func TestARefusedCommandIsToldFromAHiddenKeyOnEveryServer(t *testing.T) {
	for _, c := range []struct {
		text              string
		forbidden, hidden bool
	}{
		{"NOPERM this user has no permissions to access one of the keys used as arguments", false, true}, // 6.0, 7.0
		{"NOPERM No permissions to access a key", false, true},                                           // 8.0, Valkey
		{"NOPERM this user has no permissions to run the 'type' command or its subcommand", true, false}, // 6.0
		{"NOPERM this user has no permissions to run the 'client|list' command", true, false},            // 7.0
		{"NOPERM User ann has no permissions to run the 'type' command", true, false},                    // 8.0, Valkey
		{"ERR unknown command `TIME`, with args beginning with: ", true, false},                          // 6.0
		{"ERR unknown command 'TIME', with args beginning with: ", true, false},                          // 7.0 and later
		{"NOPERM No permissions to access a channel", true, false},
		{"WRONGTYPE Operation against a key holding the wrong kind of value", false, false},
		{"LOADING Redis is loading the dataset in memory", false, false},
		{"ERR No permissions to access a key", false, false},
	} {
		err := serverError(c.text)
		if isCommandDenied(err) != c.forbidden || isKeyDenied(err) != c.hidden || isDenied(err) != (c.forbidden || c.hidden) {
			t.Errorf("%q: forbidden %v, hidden %v, refused %v", c.text, isCommandDenied(err), isKeyDenied(err), isDenied(err))
		}
	}
	if isCommandDenied(nil) || isKeyDenied(nil) {
		t.Error("no error is a refusal")
	}
}

// The texts are those of the four servers, for a script that runs the failing
// command.
func TestAnErrorInAScriptIsTheSameOnEveryServer(t *testing.T) {
	const sha = "6032e38da737c7d1cb20194c33c2c71a7efd3edf"
	const before, after = "ERR Error running script (call to f_" + sha + "): @user_script:9: ", " script: " + sha + ", on @user_script:9."
	for _, c := range []struct {
		text, want string
		kind       error
	}{
		{before + "@user_script: 9: -READONLY You can't write against a read only replica.", "READONLY You can't write against a read only replica.", ErrReadOnly},
		{"READONLY You can't write against a read only replica." + after, "READONLY You can't write against a read only replica.", ErrReadOnly},
		{"READONLY You can't write against a read only replica.", "READONLY You can't write against a read only replica.", ErrReadOnly},
		{before + "@user_script: 9: -OOM command not allowed when used memory > 'maxmemory'.", "OOM command not allowed when used memory > 'maxmemory'.", nil},
		{"OOM command not allowed when used memory > 'maxmemory'." + after, "OOM command not allowed when used memory > 'maxmemory'.", nil},
		{before + "WRONGTYPE Operation against a key holding the wrong kind of value", "WRONGTYPE Operation against a key holding the wrong kind of value", nil},
		{"WRONGTYPE Operation against a key holding the wrong kind of value" + after, "WRONGTYPE Operation against a key holding the wrong kind of value", nil},
		{before + "@user_script: 9: The user executing the script can't run this command or subcommand", "NOPERM The user executing the script can't run this command or subcommand", ErrNoPermission},
		{before + "@user_script: 9: The user executing the script can't access at least one of the keys mentioned in the command arguments",
			"NOPERM The user executing the script can't access at least one of the keys mentioned in the command arguments", ErrNoPermission},
		{"ERR The user executing the script can't run this command or subcommand" + after, "NOPERM The user executing the script can't run this command or subcommand", ErrNoPermission},
		{"ERR ACL failure in script: User u has no permissions to run the 'set' command" + after, "NOPERM User u has no permissions to run the 'set' command", ErrNoPermission},
		{"ERR ACL failure in script: No permissions to access a key" + after, "NOPERM No permissions to access a key", ErrNoPermission},
		{"NOPERM No permissions to access a key", "NOPERM No permissions to access a key", ErrNoPermission},
		{"ERR something else", "ERR something else", nil},
	} {
		err := scriptError(serverError(c.text))
		if err.Error() != c.want {
			t.Errorf("%q\nbecomes %q,\nwant    %q", c.text, err, c.want)
		}
		for _, kind := range []error{ErrReadOnly, ErrNoPermission} {
			if errors.Is(err, kind) != (kind == c.kind) {
				t.Errorf("%q is %v: %v", c.text, kind, errors.Is(err, kind))
			}
		}
	}
	if err := errors.New("broken pipe"); scriptError(err) != err || scriptError(nil) != nil {
		t.Error("an error that is not the server's does not stay as it is")
	}
}
