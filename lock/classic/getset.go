package classic

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Getset stores when the lock ends, in Unix milliseconds, and no expiry that
// the server knows of. Who finds a stamp that has passed replaces it by GETSET,
// and has the lock if what came back had passed as well: of several who try at
// once, only the first gets the old stamp back. Unlocking is DEL.
//
// Three guarantees break. Exclusion depends on the clients' clocks: to one whose
// clock is ahead, a lock that is held looks over, and two are inside. The
// expiry is anybody's: a loser's GETSET has replaced the winner's stamp with its
// own by the time it knows that it lost, so the lock ends sooner or later than
// its holder believes. And nobody is named as the owner: who unlocks after its
// time was up deletes the next one's lock. Give two clients different
// [Hooks].Now, or stop one at [BeforeGetset] while another takes the lock, and
// read the key.
//
// Sound is the Mutex of package lock: the time to live is relative and the
// server's, a refusal changes nothing, and the token says whose it is.
type Getset struct{ party }

var _ Lock = (*Getset)(nil)

// NewGetset returns a client's view of the lock; key is used as it is.
func NewGetset(rdb redis.UniversalClient, key string, o Options) *Getset {
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

// takeOver takes a lock that was set but is over, and returns when it ends now.
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

// over runs a command that returns a stamp and reports whether it has passed,
// on this client's clock. No stamp has passed, too.
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
