package classic

import (
	"context"
	_ "embed"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed blind_delete.lua
	blindDeleteSource string

	blindDelete = redis.NewScript(blindDeleteSource)
)

// BlindDelete takes the lock with a script that does SETNX and EXPIRE in one
// step, and so repairs [SetnxExpire]; but it stores a 1, and unlocks by DEL.
//
// What breaks is that only the owner unlocks: a holder whose work took longer
// than the TTL deletes, when it is done, the lock of whoever came after it, and
// a third gets in beside that one. Unlock returns nil. Let the deadline of a
// hold pass, take the lock with a second client, unlock the first, and the key
// is gone.
//
// Sound is the Mutex of package lock: a token of its own for every attempt, and
// a script that deletes what holds it and nothing else.
type BlindDelete struct{ party }

var _ Lock = (*BlindDelete)(nil)

// NewBlindDelete returns a client's view of the lock; key is used as it is.
func NewBlindDelete(rdb redis.UniversalClient, key string, o Options) *BlindDelete {
	return &BlindDelete{newParty(rdb, key, o)}
}

// TryLock implements [Lock].
func (l *BlindDelete) TryLock(ctx context.Context) (Hold, error) {
	deadline := l.deadline()
	taken, err := blindDelete.Run(ctx, l.rdb, []string{l.key}, l.ttl.Milliseconds()).Bool()
	if err != nil || !taken {
		return nil, l.refused(err)
	}
	return &grant{deadline, func(ctx context.Context) error {
		return l.del(ctx, l.key)
	}}, nil
}
