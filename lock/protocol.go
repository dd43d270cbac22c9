package lock

import (
	"context"
	"time"
)

// protocol is how one lock of one kind stands in Redis: the requests that take it,
// keep it and give it back. Its methods put a request on its way, in the order
// in which they are called; [pending] waits for what comes of it.
//
// A hold is one token's possession of the lock. Kinds that can be entered again
// count entries; the count travels as it should become, never as a step, so that
// a request may be lost or repeated without harm.
type protocol interface {
	// acquire asks for the lock, or for another entry of a token that has it.
	// The reply is an integer (the fencing token, 0 = none) if it is ours now,
	// else {token of a holder, its PTTL in ms}.
	acquire(ctx context.Context, token string, ttl time.Duration, entries int) future
	// extend asks for ttl from now. The reply is 1, or 0 if the token has lost
	// the lock.
	extend(ctx context.Context, token string, ttl time.Duration) future
	// release gives back all but left entries. The reply is 1 if the lock is
	// free, the next holder's token if it was handed over, 0 if entries are left,
	// nil if the token has lost the lock.
	release(ctx context.Context, token string, left int) future
	// channel is where releases are announced.
	channel() string
	// lockKey is the name of the lock.
	lockKey() string
}

// peeker is a form whose holder is asked for by one request. The reply is {token of a
// holder, its PTTL in ms}; the token is empty if nobody holds the lock.
type peeker interface {
	peek(ctx context.Context) future
}

// undoer is a form that knows better than [transport.undo] how to take back what
// may stand of it.
type undoer interface{ undo() }

// future is a request under way.
type future interface {
	// wait returns the reply. When ctx ends first, or the connection, the
	// request may still be carried out.
	wait(ctx context.Context) (reply any, err error)
}

// resender is a future whose request may have to be sent a second time. To have the
// second requests of a batch travel together, call resendIfNeeded for all futures of
// the batch before wait.
type resender interface {
	// resendIfNeeded waits for the first reply, and sends the request again if that
	// reply asks for it. It does not wait for the second reply.
	resendIfNeeded(ctx context.Context) error
}

// parseAcquire reads the reply to an acquire: the holder who stands in the way, or
// nil and the fencing token. What is neither grants nothing.
func parseAcquire(key string, reply any) (held *HeldError, fence int64, err error) {
	switch reply := reply.(type) {
	case int64:
		return nil, reply, nil
	case []any:
		if len(reply) < 2 {
			break
		}
		token, _ := reply[0].(string)
		ttl, _ := reply[1].(int64)
		return &HeldError{Key: key, Token: token, TTL: time.Duration(ttl) * time.Millisecond}, 0, nil
	}
	return nil, 0, errProtocol
}
