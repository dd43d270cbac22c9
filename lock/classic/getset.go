package classic

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Getset stores the end of the lock, in Unix milliseconds, without an expiry on the
// server. A client that finds a stamp in the past replaces it by GETSET. It has
// acquired the lock if the returned stamp is in the past, too: of several clients at
// the same time, only the first gets the old stamp back. DEL unlocks.
//
// It has three flaws. Exclusion depends on the clients' clocks: for a client whose
// clock is ahead, a held lock seems to have ended, and two clients hold it. Every
// client can change the expiry: the GETSET of a loser has replaced the winner's stamp
// before the loser knows that it lost, so the lock ends earlier or later than its
// holder believes. The key does not name its owner: a late unlock deletes the lock of
// the next holder. To see it, give two clients different [Hooks].Now, or stop one at
// [BeforeGetset] while another acquires the lock, and read the key.
//
// The Mutex of package lock is sound: the TTL is relative and runs on the server, a
// refusal changes nothing, and the token names the owner.
type Getset struct{ party }

var _ Lock = (*Getset)(nil)

// NewGetset returns a client's view of the lock; key is used unchanged.
func NewGetset(rdb Client, key string, o Options) *Getset {
	return &Getset{newParty(rdb, key, o)}
}

// TryLock implements [Lock].
func (l *Getset) TryLock(ctx context.Context) (Hold, error) {
	ends := l.deadline()
	taken, err := l.setnx(ctx, ends.UnixMilli())
	if err == nil && !taken {
		ends, taken, err = l.takeOver(ctx)
	}
	if err != nil || !taken {
		return nil, l.refused(err)
	}
	return &grant{time.UnixMilli(ends.UnixMilli()), func(ctx context.Context) error {
		return l.del(ctx, l.key)
	}}, nil
}

// takeOver acquires a lock whose stamp has passed, and returns its new end.
func (l *Getset) takeOver(ctx context.Context) (ends time.Time, taken bool, err error) {
	if err := l.between(ctx, BeforeGet); err != nil {
		return ends, false, err
	}
	over, err := l.over(ctx, redis.NewStringCmd(ctx, "get", l.key))
	if err != nil || !over {
		return ends, false, err
	}
	if err := l.between(ctx, BeforeGetset); err != nil {
		return ends, false, err
	}
	ends = l.deadline()
	taken, err = l.over(ctx, redis.NewStringCmd(ctx, "getset", l.key, ends.UnixMilli()))
	return ends, taken, err
}

// over runs a command that returns a stamp, and reports whether the stamp has passed
// on this client's clock. A missing stamp has passed.
func (l *Getset) over(ctx context.Context, cmd *redis.StringCmd) (bool, error) {
	err := l.rdb.Process(ctx, cmd)
	if errors.Is(err, redis.Nil) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	stamp, err := cmd.Int64()
	if err != nil {
		return false, fmt.Errorf("not a lock of this form: %w", err)
	}
	return stamp <= l.hooks.Now().UnixMilli(), nil
}
