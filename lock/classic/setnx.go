package classic

import (
	"context"
	_ "embed"
	"errors"

	"github.com/redis/go-redis/v9"
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

var (
	//go:embed blind_delete.lua
	blindDeleteSource string

	blindDelete = redis.NewScript(blindDeleteSource)
)

// BlindDelete acquires the lock with a script that does SETNX and EXPIRE in one step.
// This repairs [SetnxExpire], but the lock stores a 1, and DEL unlocks it.
//
// The flaw: not only the owner can unlock. A holder whose work took longer than the
// TTL deletes the lock of the next holder, and a third client gets in beside that one.
// Unlock returns nil. To see it, let the deadline of a hold pass, acquire the lock
// with a second client, and unlock the first: the key is gone.
//
// The Mutex of package lock is sound: every attempt has its own token, and a script
// deletes the key only if it has that token.
type BlindDelete struct{ party }

var _ Lock = (*BlindDelete)(nil)

// NewBlindDelete returns a client's view of the lock; key is used unchanged.
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

// GetThenDel acquires the lock with SET NX PX and a token. It unlocks in three steps:
// GET the key, compare the token in the client, DEL.
//
// The flaw: not only the owner can unlock, as with [BlindDelete], but only at one
// moment. If the lock expires after the GET and another client acquires it before the
// DEL, the DEL deletes that client's lock. Everything that delays the client between
// the two commands (a garbage collection, a slow network) makes this more likely. To
// see it, pause the client at [BeforeDel] until the TTL has passed. Unlock returns
// nil.
//
// The Mutex of package lock is sound: the server compares and deletes in one step.
type GetThenDel struct{ party }

var _ Lock = (*GetThenDel)(nil)

// NewGetThenDel returns a client's view of the lock; key is used unchanged.
func NewGetThenDel(rdb redis.UniversalClient, key string, o Options) *GetThenDel {
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
