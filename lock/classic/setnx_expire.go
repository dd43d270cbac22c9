package classic

import "context"

// SetnxExpire is a form of the first, the second and the fourth article, from before SET
// could set an expiry: SETNX of a 1, then EXPIRE, and DEL to unlock. The first article
// stores a token.
//
// The flaw: a client that dies between the two commands, or whose second command is
// lost, leaves a lock that no client can ever acquire again: its PTTL is −1, and stays so.
// TestACrashBeforeTheExpiryLeavesALockForEver and the scene setnx-crash show it. A late
// unlock deletes the lock of the next owner, as with [BlindDelete].
//
// The Mutex of package lock is sound: one command sets the value and the expiry.
type SetnxExpire struct{ party }

// NewSetnxExpire returns a client's view of the lock; key is used unchanged.
func NewSetnxExpire(rdb Client, key string, o Options) *SetnxExpire {
	return &SetnxExpire{newParty(rdb, key, o)}
}

// TryLock implements [Lock].
func (l *SetnxExpire) TryLock(ctx context.Context) (Hold, error) {
	deadline := l.deadline()
	taken, err := l.setnx(ctx, "1")
	if err == nil && taken {
		err = l.between(ctx, BeforeExpire)
	}
	if err == nil && taken {
		err = l.rdb.PExpire(ctx, l.key, l.ttl).Err()
	}
	if err != nil || !taken {
		return nil, l.refused(err)
	}
	return l.blindHold(deadline), nil
}
