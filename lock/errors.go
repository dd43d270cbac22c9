package lock

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Errors on which callers decide. Test for them with [errors.Is].
var (
	// ErrHeld: another client holds the lock. The error is a [*HeldError].
	ErrHeld = errors.New("lock is held")
	// ErrLost: the lease ended before it was unlocked: it expired, its key was deleted or
	// replaced, or it reached a limit in [Renew].
	ErrLost = errors.New("lease was lost")
	// ErrClosed: the client was closed, or the lease was unlocked.
	ErrClosed = errors.New("lock client is closed")
	// ErrArgument: an argument or the receiver is invalid, or a reader asked for the write
	// lock of its owner. No command was sent.
	ErrArgument = errors.New("bad argument")
	// ErrWrongType: the key holds a value that is not this kind of lock. The value was
	// not changed.
	ErrWrongType = errors.New("key holds another kind of value")
	// ErrNoQuorum: too many nodes of a [Quorum] could not be reached or did not answer
	// in time. It is not known whether the lock is held. The error matches those of the
	// nodes, too, and its text names them.
	ErrNoQuorum = errors.New("no quorum")
	// ErrUnavailable: the server cannot do it now, or too few replicas have confirmed an
	// acquire, which was undone then: see [Options.Replicas]. A later attempt may succeed. The
	// error wraps the reply of the server, which says why: it is a replica, starts, is busy with a
	// script, has no memory or disk left, or lacks replicas. Without memory, leases can still be
	// renewed and released. [redis.HasErrorPrefix] tells the replies apart: READONLY, LOADING,
	// OOM, MISCONF, NOREPLICAS and so on.
	ErrUnavailable = errors.New("server is unavailable")
	// ErrNoPermission: the user lacks a permission or could not log in.
	ErrNoPermission = errors.New("no permission")
)

// Errors with a text of their own that match one of those above.
var (
	errReleased      error = &special{"lease was released", ErrClosed}
	errMaxHold       error = &special{"lease reached its longest hold", ErrLost}
	errUpgrade       error = &special{"a reader cannot become the writer: unlock, lock for writing, and read again", ErrArgument}
	errReadOnly      error = &special{"server is a read-only replica", ErrUnavailable}
	errNotReplicated error = &special{"too few replicas", ErrUnavailable}
)

// special is an error that matches another one.
type special struct {
	text string
	of   error
}

func (e *special) Error() string { return e.text }

func (e *special) Unwrap() error { return e.of }

// HeldError describes the holder of a lock that could not be acquired. It matches
// [ErrHeld].
type HeldError struct {
	Key   string
	Token string        // token of the holder; keep it secret: with it a client can release the lock
	TTL   time.Duration // remaining TTL, unless renewed; negative = never expires
}

func (e *HeldError) Error() string {
	expiry := "never expires"
	if e.TTL >= 0 {
		expiry = "expires in " + e.TTL.String()
	}
	return fmt.Sprintf("lock %q is held by %q, %s", e.Key, e.Owner(), expiry)
}

// Is matches [ErrHeld].
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// Owner returns the holder's label. For a lock of another library it returns the first
// characters of the token.
func (e *HeldError) Owner() string {
	if owner, ours := tokenOwner(e.Token); ours {
		return owner
	}
	if len(e.Token) > 6 {
		return e.Token[:6] + "…"
	}
	return e.Token
}

// replies are the beginnings of error replies, by their sentinel.
var replies = map[error][]string{
	ErrWrongType:   {"WRONGTYPE"},
	errReadOnly:    {"READONLY"},
	ErrUnavailable: {"LOADING", "NOREPLICAS", "MASTERDOWN", "CLUSTERDOWN", "MISCONF", "TRYAGAIN", "BUSY", "OOM", "ERR max number of clients reached"},
	ErrNoPermission: {"NOPERM", "NOAUTH", "WRONGPASS",
		// NOPERM inside a script: in Redis before 7.0, in 7.0, and in later versions and Valkey.
		"The user executing the script", "ERR The user executing the script", "ERR ACL failure in script"},
}

// describe wraps an error of a command. The result says what was being done, and matches the
// sentinel of a reply.
func describe(doing, key string, err error) error {
	if sentinel := sentinelOf(err); sentinel != nil {
		if _, alone := err.(redis.Error); alone { // else the end of a context is beside it
			text, _ := replyText(err)
			err = refusal(text)
		}
		return fmt.Errorf("lock: %s %q: %w: %w", doing, key, sentinel, err)
	}
	if errors.Is(err, redis.ErrClosed) {
		err = ErrClosed
	}
	return fmt.Errorf("lock: %s %q: %w", doing, key, err)
}

// refusal is an error reply without the text of a script. It is a [redis.Error].
type refusal string

func (e refusal) Error() string { return string(e) }

// RedisError implements [redis.Error].
func (refusal) RedisError() {}

// replyText returns the text of an error reply, without what a script adds before it.
func replyText(err error) (text string, is bool) {
	var reply redis.Error
	if !errors.As(err, &reply) || errors.Is(err, ErrNoQuorum) {
		return "", false
	}
	text = reply.Error()
	return text[len(scriptPrefix.FindString(text)):], true
}

// sentinelOf returns the sentinel for an error reply. It returns nil for other errors,
// for replies without a sentinel, and for the errors of several nodes.
func sentinelOf(err error) error {
	text, is := replyText(err)
	for sentinel, beginnings := range replies {
		if is && slices.ContainsFunc(beginnings, func(b string) bool { return strings.HasPrefix(text, b) }) {
			return sentinel
		}
	}
	return nil
}

// scriptPrefix matches the text that Redis before 7.0 adds to the error reply of a
// command inside a script.
var scriptPrefix = regexp.MustCompile(`^ERR Error running script \(call to f_[0-9a-f]{40}\): (?:@user_script: ?\d+: )+-?`)

// transient reports whether a later attempt may succeed. err may come from the
// connection or from describe.
func transient(err error) bool {
	if err == nil {
		return false
	}
	return errors.Is(sentinelOf(err), ErrUnavailable) || errors.Is(err, ErrNoQuorum) || outcomeUnknown(err) || neverSent(err)
}

// outcomeUnknown reports whether the server may have executed a command that ended
// with err, or may still do so: no reply came, or the caller stopped waiting for it.
func outcomeUnknown(err error) bool {
	if err == nil || errors.Is(err, errNotReplicated) {
		return false
	}
	var reply redis.Error
	return !errors.As(err, &reply) && !neverSent(err)
}

// neverSent reports whether a command that ended with err was not sent.
func neverSent(err error) bool {
	if err == nil { // the usual case: errors.As allocates
		return false
	}
	var op *net.OpError
	return errors.Is(err, ErrClosed) || errors.Is(err, ErrArgument) || errors.As(err, &op) && op.Op == "dial"
}
