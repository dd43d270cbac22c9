package classic

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// Getset is a form of the first article. The key has the end of the lock, in Unix
// milliseconds, and no expiry. A client that finds a stamp in the past replaces it by
// GETSET. It has acquired the lock if GETSET returns what GET returned: of several clients
// at the same time, only the first gets that back. DEL unlocks. That of the second article
// ([Options.Tolerant]) adds 1 s to the stamp and also sets an expiry of the key.
//
// It has three flaws. Exclusion depends on the clients' clocks: for a client whose clock is
// ahead, a held lock seems to have ended, and two clients hold it. Every client can change
// the expiry: the GETSET of a loser has replaced the winner's stamp before the loser knows
// that it lost. The key does not name its owner: a late unlock deletes the lock of the next
// holder. TestClientsWhoseClocksDifferHoldGetsetTogether, TestALoserOverwritesTheWinnersExpiry,
// TestWhoIsLateDeletesTheNextOwnersLock and the scene getset-skew show them.
//
// The Mutex of package lock is sound: the TTL is relative and runs on the server, a
// refusal changes nothing, and the token names the owner.
type Getset struct {
	party
	tolerance time.Duration // 0 = the form of the first article
}

// NewGetset returns a client's view of the lock; key is used unchanged.
func NewGetset(rdb Client, key string, o Options) *Getset {
	l := &Getset{party: newParty(rdb, key, o)}
	if o.Tolerant {
		l.tolerance = time.Second
	}
	return l
}

// stamp returns the value of the key for a lock until deadline.
func (l *Getset) stamp(deadline time.Time) string {
	return strconv.FormatInt(deadline.Add(l.tolerance).UnixMilli(), 10)
}

// TryLock implements [Lock].
func (l *Getset) TryLock(ctx context.Context) (Hold, error) {
	deadline := l.deadline()
	taken, err := l.setnx(ctx, l.stamp(deadline))
	if err == nil && !taken {
		deadline, taken, err = l.takeOver(ctx)
	}
	if err == nil && taken && l.tolerance > 0 {
		err = l.rdb.PExpire(ctx, l.key, l.ttl).Err()
	}
	if err != nil || !taken {
		return nil, l.refused(err)
	}
	return l.blindHold(deadline.Truncate(time.Millisecond)), nil
}

// takeOver acquires a lock whose stamp has passed on this client's clock, and returns its new end.
func (l *Getset) takeOver(ctx context.Context) (deadline time.Time, taken bool, err error) {
	if err := l.between(ctx, BeforeGet); err != nil {
		return deadline, false, err
	}
	found, err := l.rdb.Get(ctx, l.key).Result()
	if errors.Is(err, redis.Nil) {
		return deadline, false, nil // unlocked meanwhile
	}
	if err != nil {
		return deadline, false, err
	}
	stamp, err := strconv.ParseInt(found, 10, 64)
	if err != nil {
		return deadline, false, fmt.Errorf("not a lock of this form: %w", err)
	}
	if stamp >= l.hooks.Now().UnixMilli() {
		return deadline, false, nil
	}
	if err := l.between(ctx, BeforeGetset); err != nil {
		return deadline, false, err
	}
	deadline = l.deadline()
	replaced := redis.NewStringCmd(ctx, "getset", l.key, l.stamp(deadline))
	if err := l.rdb.Process(ctx, replaced); err != nil && !errors.Is(err, redis.Nil) {
		return deadline, false, err
	}
	return deadline, replaced.Val() == found, nil
}
