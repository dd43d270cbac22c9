package inspect

import (
	"strings"

	"github.com/redis/go-redis/v9"
)

// isWrongType reports whether a key has another type.
func isWrongType(err error) bool { return redis.HasErrorPrefix(err, "WRONGTYPE") }

// isDenied reports whether a server does not know a command, or the user may not send
// it, at all or for this key.
func isDenied(err error) bool { return isCommandDenied(err) || isKeyDenied(err) }

// isCommandDenied reports whether a server does not know a command, or the user may not
// send it at all.
func isCommandDenied(err error) bool {
	return err != nil && redis.HasErrorPrefix(err, "NOPERM") && !isKeyDenied(err) || isUnknownCommand(err)
}

// isUnknownCommand reports whether a server does not know a command: it is too old, or
// the command is renamed.
func isUnknownCommand(err error) bool { return redis.HasErrorPrefix(err, "unknown command") }

// isKeyDenied reports whether this user may not read a key. Names of users and
// commands, which are part of other messages, contain no spaces.
func isKeyDenied(err error) bool {
	if err == nil || !redis.HasErrorPrefix(err, "NOPERM") {
		return false
	}
	text := err.Error()
	return strings.Contains(text, "no permissions to access one of the keys") || // Redis 6.0 and 7.0
		strings.Contains(text, "No permissions to access a key") // Redis 7.2 and later, Valkey
}
