package classic

import (
	"context"
	_ "embed"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed stamp_rw_take.lua
	stampTakeSource string
	//go:embed stamp_rw_release.lua
	stampReleaseSource string

	stampTake    = redis.NewScript(stampTakeSource)
	stampRelease = redis.NewScript(stampReleaseSource)
)

// StampRW is a read/write lock in one hash, which a cluster can run, and so
// repairs [TwoKeyRW]. Its fields read and write hold when that side was taken
// last, in Unix milliseconds; a side is held until the TTL of whoever looks has
// passed since. Unlocking deletes the field if the stamp is still the holder's.
//
// What breaks is exclusion between readers and writers: there is one stamp for
// all readers. The second overwrites the first one's, so the first cannot unlock
// any more ([ErrLost], though its time is not up), and when the second unlocks,
// a writer gets in beside the first. Lock twice as a reader and unlock in either
// order to see it. Readers within one millisecond have the same stamp, and the
// first to unlock frees both.
//
// The stamps are read on the clients' clocks, so one that is ahead gets in as
// with [Getset]. Nothing on the server expires: the hash of a holder that died
// stays until the side is taken and unlocked again.
//
// Sound is the RW of package lock: every reader stands by itself, under its own
// token, with a deadline on the server's clock.
type StampRW struct{ party }

// NewStampRW returns a client's view of the lock; key is used as it is.
func NewStampRW(rdb redis.UniversalClient, key string, o Options) *StampRW {
	return &StampRW{newParty(rdb, key, o)}
}

// Reader returns the lock that readers share.
func (l *StampRW) Reader() Lock {
	return tryFunc(func(ctx context.Context) (Hold, error) { return l.take(ctx, "read", "write") })
}

// Writer returns the lock that a writer has alone.
func (l *StampRW) Writer() Lock {
	return tryFunc(func(ctx context.Context) (Hold, error) { return l.take(ctx, "write", "write", "read") })
}

// take puts the stamp on a side unless one of those sides is held.
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
