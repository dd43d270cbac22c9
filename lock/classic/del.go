package classic

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

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

// ExistsSet is a form of the fourth article: EXISTS and, if the key does not exist, SET with
// an expiry. DEL unlocks.
//
// The flaw: exclusion breaks. Of two clients that ask before either has set the key, both
// set it, and the second replaces the first one's expiry.
// TestTwoThatAskBeforeEitherSetsHoldTogether and the scene exists-set show it. A late unlock
// deletes the lock of the next owner, as with [BlindDelete].
//
// The Mutex of package lock is sound: the server checks and sets in one step.
type ExistsSet struct{ party }

// NewExistsSet returns a client's view of the lock; key is used unchanged.
func NewExistsSet(rdb Client, key string, o Options) *ExistsSet {
	return &ExistsSet{newParty(rdb, key, o)}
}

// TryLock implements [Lock].
func (l *ExistsSet) TryLock(ctx context.Context) (Hold, error) {
	deadline := l.deadline()
	n, err := l.rdb.Exists(ctx, l.key).Result()
	if err == nil && n == 0 {
		err = l.between(ctx, BeforeSet)
	}
	if err == nil && n == 0 {
		err = l.rdb.Set(ctx, l.key, "1", l.ttl).Err()
	}
	if err != nil || n > 0 {
		return nil, l.refused(err)
	}
	return l.blindHold(deadline), nil
}

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
