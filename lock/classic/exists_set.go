package classic

import "context"

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
