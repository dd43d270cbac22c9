package classic

import "context"

var blindDelete = script("blind_delete")

// BlindDelete is one of the articles' forms: a script does SETNX and EXPIRE in one step.
// This repairs [SetnxExpire], but the lock stores a 1, and DEL unlocks it.
//
// The flaw: not only the owner can unlock. A holder whose work took longer than the
// TTL deletes the lock of the next holder, and a third client gets in beside that one.
// Unlock returns nil. TestWhoIsLateDeletesTheNextOwnersLock and the scene blind-delete show it.
//
// The Mutex of package lock is sound: every attempt has its own token, and a script
// deletes the key only if it has that token.
type BlindDelete struct{ party }

// NewBlindDelete returns a client's view of the lock; key is used unchanged.
func NewBlindDelete(rdb Client, key string, o Options) *BlindDelete {
	return &BlindDelete{newParty(rdb, key, o)}
}

// TryLock implements [Lock].
func (l *BlindDelete) TryLock(ctx context.Context) (Hold, error) {
	deadline := l.deadline()
	taken, err := blindDelete.Run(ctx, l.rdb, []string{l.key}, l.ttl.Milliseconds()).Bool()
	if err != nil || !taken {
		return nil, l.refused(err)
	}
	return l.blindHold(deadline), nil
}
