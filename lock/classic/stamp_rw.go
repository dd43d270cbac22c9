package classic

import (
	"context"
	"time"
)

var (
	stampTake    = script("stamp_rw_take")
	stampRelease = script("stamp_rw_release")
)

// StampRW is a read/write lock in one hash. This repairs [TwoKeyRW], because it works
// on a cluster. The fields read and write hold the time in Unix milliseconds at which
// that side was acquired last. A client regards a side as held until its own TTL has
// passed since then. Unlocking deletes the field if the stamp is still the holder's.
//
// The flaw: exclusion between readers and writers breaks, because all readers share
// one stamp. The second reader overwrites the stamp of the first. Then the first
// cannot unlock ([ErrLost], although its time has not passed), and when the second
// unlocks, a writer gets in beside the first. To see it, lock twice as a reader and
// unlock in either order. Readers of the same millisecond have the same stamp, and the
// first to unlock frees both.
//
// The stamps come from the clients' clocks, so a client whose clock is ahead gets in,
// as with [Getset]. Nothing expires on the server: the hash of a dead holder remains
// until the side is acquired and unlocked again.
//
// The RW of package lock is sound: every reader has its own token, with a deadline on
// the server's clock.
type StampRW struct{ party }

// NewStampRW returns a client's view of the lock; key is used unchanged.
func NewStampRW(rdb Client, key string, o Options) *StampRW {
	return &StampRW{newParty(rdb, key, o)}
}

// Reader returns the side that readers share.
func (l *StampRW) Reader() Lock {
	return tryFunc(func(ctx context.Context) (Hold, error) { return l.take(ctx, "read", "write") })
}

// Writer returns the side that one writer holds alone.
func (l *StampRW) Writer() Lock {
	return tryFunc(func(ctx context.Context) (Hold, error) { return l.take(ctx, "write", "write", "read") })
}

// take sets the stamp of a side unless one of the sides in against is held.
func (l *StampRW) take(ctx context.Context, side string, against ...any) (Hold, error) {
	stamp := l.hooks.Now().UnixMilli()
	args := append([]any{side, stamp, l.ttl.Milliseconds()}, against...)
	taken, err := stampTake.Run(ctx, l.rdb, []string{l.key}, args...).Bool()
	if err != nil || !taken {
		return nil, l.refused(err)
	}
	return &grant{time.UnixMilli(stamp).Add(l.ttl), func(ctx context.Context) error {
		return l.unlocked(stampRelease.Run(ctx, l.rdb, []string{l.key}, side, stamp).Int64())
	}}, nil
}
