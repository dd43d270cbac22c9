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

// Errors on which callers decide. Test for them with [errors.Is].
var (
	// ErrHeld: another client holds the lock. The error is a [*HeldError].
	ErrHeld = errors.New("lock is held")
	// ErrLost: the lease ended before it was released: it expired, or its key was
	// deleted or replaced.
	ErrLost = errors.New("lease was lost")
	// ErrReleased: the lease was released by Unlock. It is also the cause of the
	// lease's context, to distinguish a release from a loss.
	ErrReleased = errors.New("lease was released")
	// ErrMaxHold: the lease reached a limit set in [Renew] and was not renewed.
	ErrMaxHold = errors.New("lease reached its longest hold")
	// ErrNoQuorum: too many nodes of a [Quorum] could not be reached or did not answer
	// in time. It is not known whether the lock is held. The error is a
	// [*NoQuorumError].
	ErrNoQuorum = errors.New("no quorum")
	// ErrClosed: the client was closed.
	ErrClosed = errors.New("lock client is closed")
	// ErrUpgrade: a reader asked for the write lock of a read/write lock. Two readers
	// that did so would wait for each other forever. Unlock the read lock, acquire the
	// write lock, and read the data again.
	ErrUpgrade = errors.New("a reader cannot become the writer")
	// ErrArgument: an argument is invalid. No command was sent.
	ErrArgument = errors.New("bad argument")

	// ErrWrongType: the key holds a value that is not this kind of lock. The value was
	// not changed.
	ErrWrongType = errors.New("key holds another kind of value")
	// ErrReadOnly: the server is a replica.
	ErrReadOnly = errors.New("server is a read-only replica")
	// ErrNotReplicated: too few replicas follow the server. Either they did not
	// confirm an acquire in time, which was undone then: see [Options.Replicas]. Or
	// the server refuses all writes without them (min-replicas-to-write): then leases
	// cannot be renewed or released, either. Redis before 7.0 still accepts writes of
	// scripts.
	ErrNotReplicated = errors.New("too few replicas")
	// ErrLoading: the server is starting, or is busy with a script. A later attempt
	// may succeed.
	ErrLoading = errors.New("server is not ready")
	// ErrMisconfigured: the server refuses writes because it cannot save to disk. The
	// error also matches ErrLoading.
	ErrMisconfigured = fmt.Errorf("server cannot save its data: %w", ErrLoading)
	// ErrOOM: the memory of the server is full. Existing leases can still be renewed
	// and released.
	ErrOOM = errors.New("server is out of memory")
	// ErrNoPermission: the user lacks a permission or could not log in.
	ErrNoPermission = errors.New("no permission")
)

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

// replies maps the beginning of an error reply to a sentinel. The first match counts.
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
	// NOPERM inside a script: in Redis before 7.0, in 7.0, and in later versions and
	// Valkey.
	{"The user executing the script", ErrNoPermission},
	{"ERR The user executing the script", ErrNoPermission},
	{"ERR ACL failure in script", ErrNoPermission},
	{"ERR max number of clients reached", ErrLoading},
}

// describe wraps an error of a command. The result says what was being done and
// matches both the sentinel and err.
func describe(doing, key string, err error) error {
	if sentinel := sentinelOf(err); sentinel != nil {
		return fmt.Errorf("lock: %s %q: %w: %w", doing, key, sentinel, err)
	}
	if errors.Is(err, redis.ErrClosed) {
		err = ErrClosed
	}
	return fmt.Errorf("lock: %s %q: %w", doing, key, err)
}

// sentinelOf returns the sentinel for an error reply. It returns nil for other errors,
// for replies without a sentinel, and for the errors of several nodes.
func sentinelOf(err error) error {
	var reply redis.Error
	if !errors.As(err, &reply) || errors.Is(err, ErrNoQuorum) {
		return nil
	}
	text := reply.Error()
	text = text[len(scriptPrefix.FindString(text)):]
	for _, r := range replies {
		if strings.HasPrefix(text, r.text) {
			return r.sentinel
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
	switch sentinelOf(err) {
	case ErrLoading, ErrMisconfigured, ErrReadOnly, ErrNotReplicated, ErrOOM:
		return true
	}
	return errors.Is(err, ErrNoQuorum) || outcomeUnknown(err) || neverSent(err)
}

// outcomeUnknown reports whether the server may have executed a command that ended
// with err, or may still do so: no reply came, or the caller stopped waiting for it.
func outcomeUnknown(err error) bool {
	if err == nil || errors.Is(err, ErrNotReplicated) {
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
