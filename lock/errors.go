package lock

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Errors that callers decide by, to be tested with [errors.Is].
var (
	// ErrHeld: somebody else holds the lock. The error is a [*HeldError].
	ErrHeld = errors.New("lock is held")
	// ErrLost: the lease ended before it was released, because its time ran
	// out or because the key was taken away.
	ErrLost = errors.New("lease was lost")
	// ErrReleased: the lease was given back by Unlock. It is also the cause of
	// the lease's context then, so that a release can be told from a loss.
	ErrReleased = errors.New("lease was released")
	// ErrMaxHold: the lease reached the bound set by [Renew] and was not renewed.
	ErrMaxHold = errors.New("lease reached its longest hold")
	// ErrNoQuorum: too many nodes of a [Quorum] could not be asked, or did not
	// answer in time; who holds the lock, if anybody, is not known. The error is a
	// [*NoQuorumError].
	ErrNoQuorum = errors.New("no quorum")
	// ErrClosed: the client was closed.
	ErrClosed = errors.New("lock client is closed")
	// ErrUpgrade: a reader asked for the write lock of a read/write lock. Two
	// that did would wait for each other for ever. Unlock the read lock, take
	// the write lock, and look again at what was read.
	ErrUpgrade = errors.New("a reader cannot become the writer")
	// ErrArgument: a value that can never work. No command was sent.
	ErrArgument = errors.New("bad argument")

	// ErrWrongType: the key holds something that is not this kind of lock. It
	// was not touched.
	ErrWrongType = errors.New("key holds another kind of value")
	// ErrReadOnly: the server is a replica.
	ErrReadOnly = errors.New("server is a read-only replica")
	// ErrNotReplicated: too few replicas follow the server. Either they did not
	// confirm an acquire in time, see [Options.Replicas], which was undone then;
	// or the server itself refuses to write without them (min-replicas-to-write):
	// then leases cannot be renewed or released, either. Redis before 7.0 lets
	// scripts write all the same.
	ErrNotReplicated = errors.New("too few replicas")
	// ErrLoading: the server is starting, or busy with a script; it will be
	// back.
	ErrLoading = errors.New("server is not ready")
	// ErrMisconfigured: the server does not write because it cannot save to disk. It
	// matches ErrLoading, too.
	ErrMisconfigured = fmt.Errorf("server cannot save its data: %w", ErrLoading)
	// ErrOOM: the server's memory is full. Leases held already can still be
	// renewed and released.
	ErrOOM = errors.New("server is out of memory")
	// ErrNoPermission: the user lacks a right, or could not log in.
	ErrNoPermission = errors.New("no permission")
)

// HeldError says who holds a lock that could not be had. It matches [ErrHeld].
type HeldError struct {
	Key   string
	Token string        // the holder's; keep it secret, it is the key to the lock
	TTL   time.Duration // for how long yet, unless renewed; negative = never expires
}

func (e *HeldError) Error() string {
	until := "for ever"
	if e.TTL >= 0 {
		until = "for another " + e.TTL.String()
	}
	return fmt.Sprintf("lock %q is held by %q %s", e.Key, e.Owner(), until)
}

// Is matches [ErrHeld].
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// Owner returns the holder's label, or for another library's lock the first
// characters of its token.
func (e *HeldError) Owner() string {
	if owner, ours := tokenOwner(e.Token); ours {
		return owner
	}
	if len(e.Token) > 6 {
		return e.Token[:6] + "…"
	}
	return e.Token
}

// replies maps the first word of an error reply, or a part of its text, to a
// sentinel. In order: the first match counts.
var replies = []struct {
	text     string
	sentinel error
}{
	{"WRONGTYPE", ErrWrongType},
	{"READONLY", ErrReadOnly},
	{"LOADING", ErrLoading},
	{"NOREPLICAS", ErrNotReplicated},
	{"MASTERDOWN", ErrLoading},
	{"CLUSTERDOWN", ErrLoading},
	{"MISCONF", ErrMisconfigured},
	{"TRYAGAIN", ErrLoading},
	{"BUSY", ErrLoading},
	{"OOM", ErrOOM},
	{"NOPERM", ErrNoPermission},
	{"NOAUTH", ErrNoPermission},
	{"WRONGPASS", ErrNoPermission},
	// NOPERM, as seen from inside a script: by Redis before 7.0, by 7.0, and by
	// later ones and Valkey.
	{"The user executing the script", ErrNoPermission},
	{"ERR The user executing the script", ErrNoPermission},
	{"ERR ACL failure in script", ErrNoPermission},
	{"ERR max number of clients reached", ErrLoading},
}

// describe wraps what came back from the wire: it says what was being done, and
// keeps both the sentinel and the server's own words.
func describe(doing, key string, err error) error {
	if sentinel := sentinelOf(err); sentinel != nil {
		return fmt.Errorf("lock: %s %q: %w: %w", doing, key, sentinel, err)
	}
	if errors.Is(err, redis.ErrClosed) {
		err = ErrClosed
	}
	return fmt.Errorf("lock: %s %q: %w", doing, key, err)
}

// sentinelOf returns what an error reply amounts to; nil if err is none, or one
// that nobody decides by, or those of several nodes.
func sentinelOf(err error) error {
	var reply redis.Error
	if !errors.As(err, &reply) || errors.Is(err, ErrNoQuorum) {
		return nil
	}
	text := scriptError(reply.Error())
	for _, r := range replies {
		if strings.HasPrefix(text, r.text) {
			return r.sentinel
		}
	}
	return nil
}

// scriptPrefix is what Redis before 7.0 puts before the error reply to a command
// inside a script.
var scriptPrefix = regexp.MustCompile(`^ERR Error running script \(call to f_[0-9a-f]{40}\): (?:@user_script: ?\d+: )+-?`)

// scriptError returns the error reply to a command inside a script as it would be
// outside; any other as it is.
func scriptError(text string) string {
	return text[len(scriptPrefix.FindString(text)):]
}

// transient reports whether trying again later may help. It takes errors as they
// came from the wire, and described ones.
func transient(err error) bool {
	if err == nil {
		return false
	}
	switch sentinelOf(err) {
	case ErrLoading, ErrMisconfigured, ErrReadOnly, ErrNotReplicated, ErrOOM:
		return true
	}
	return errors.Is(err, ErrNoQuorum) || outcomeUnknown(err) || neverSent(err)
}

// outcomeUnknown reports whether a command that ended with err may have been
// executed, or may yet be: no reply came, or none that was waited for.
func outcomeUnknown(err error) bool {
	if err == nil || errors.Is(err, ErrNotReplicated) {
		return false
	}
	var reply redis.Error
	return !errors.As(err, &reply) && !neverSent(err)
}

// neverSent reports whether a command that ended with err never left.
func neverSent(err error) bool {
	if err == nil {
		return false
	}
	var op *net.OpError
	return errors.Is(err, ErrClosed) || errors.Is(err, ErrArgument) || errors.As(err, &op) && op.Op == "dial"
}
