package classic

import (
	"context"
)

// SetnxExpire acquires the lock with SETNX and sets its expiry with a second command,
// as was necessary before SET could do both. It stores a token and unlocks with a
// comparison in Lua, so it has no other flaw.
//
// The flaw: a client that dies between the two commands, or whose second command is
// lost, leaves a lock that no client can ever acquire again. To see it, stop a client
// at [BeforeExpire]: PTTL of the key is −1, and stays so.
//
// The Mutex of package lock is sound: one script sets the value and the expiry.
type SetnxExpire struct{ party }

var _ Lock = (*SetnxExpire)(nil)

// NewSetnxExpire returns a client's view of the lock; key is used unchanged.
func NewSetnxExpire(rdb Client, key string, o Options) *SetnxExpire {
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
