package classic

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// SetnxExpire takes the lock with SETNX and then gives it an expiry with a
// second command, as one had to before SET could do both. It stores a token and
// unlocks by comparing in Lua, so this is all that is wrong with it.
//
// What breaks is freedom from deadlock: a client that dies between the two, or
// whose second command never arrives, leaves a lock that nobody can ever take
// again. Stop a client at [BeforeExpire] to see it: PTTL of the key is −1, and
// stays so.
//
// Sound is the Mutex of package lock: value and expiry are set by one script.
type SetnxExpire struct{ party }

var _ Lock = (*SetnxExpire)(nil)

// NewSetnxExpire returns a client's view of the lock; key is used as it is.
func NewSetnxExpire(rdb redis.UniversalClient, key string, o Options) *SetnxExpire {
	return &SetnxExpire{newParty(rdb, key, o)}
}

// TryLock implements [Lock].
func (l *SetnxExpire) TryLock(ctx context.Context) (Hold, error) {
	token, deadline := newToken(), l.deadline()
	taken, err := l.setnx(ctx, token)
	if err != nil || !taken {
		return nil, l.refused(err)
	}
	if err := l.between(ctx, BeforeExpire); err != nil {
		return nil, l.refused(err)
	}
	if err := l.rdb.PExpire(ctx, l.key, l.ttl).Err(); err != nil {
		return nil, l.refused(err)
	}
	return &grant{deadline, func(ctx context.Context) error {
		return l.compareAndDelete(ctx, token)
	}}, nil
}
