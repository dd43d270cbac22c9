package classic

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// GetThenDel is one of the articles' forms: it acquires the lock with SET NX PX and a token,
// and unlocks in three steps: GET the key, compare the token in the client, DEL.
//
// The flaw: not only the owner can unlock, as with [BlindDelete], but only at one
// moment. If the lock expires after the GET and another client acquires it before the
// DEL, the DEL deletes that client's lock. Everything that delays the client between
// the two commands (a garbage collection, a slow network) makes this more likely.
// Unlock returns nil. TestWhatTimeRunsOutUnderIsDeleted and the scene get-then-del show it.
//
// The Mutex of package lock is sound: the server compares and deletes in one step.
type GetThenDel struct{ party }

// NewGetThenDel returns a client's view of the lock; key is used unchanged.
func NewGetThenDel(rdb Client, key string, o Options) *GetThenDel {
	return &GetThenDel{newParty(rdb, key, o)}
}

// TryLock implements [Lock].
func (l *GetThenDel) TryLock(ctx context.Context) (Hold, error) {
	token, deadline := newToken(), l.deadline()
	taken, err := l.rdb.SetNX(ctx, l.key, token, l.ttl).Result()
	if err != nil || !taken {
		return nil, l.refused(err)
	}
	return &grant{deadline, func(ctx context.Context) error {
		return l.unlock(ctx, token)
	}}, nil
}

func (l *GetThenDel) unlock(ctx context.Context, token string) error {
	holder, err := l.rdb.Get(ctx, l.key).Result()
	if errors.Is(err, redis.Nil) || err == nil && holder != token {
		err = ErrLost
	}
	if err == nil {
		err = l.between(ctx, BeforeDel)
	}
	if err != nil {
		return l.unlocked(0, err)
	}
	return l.del(ctx, l.key)
}
