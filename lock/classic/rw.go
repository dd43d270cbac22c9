package classic

import (
	"context"
	_ "embed"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed two_key_rw_read.lua
	twoKeyReadSource string
	//go:embed two_key_rw_write.lua
	twoKeyWriteSource string

	twoKeyRead  = redis.NewScript(twoKeyReadSource)
	twoKeyWrite = redis.NewScript(twoKeyWriteSource)
)

// TwoKeyRW is a read/write lock in two strings. Every reader sets key:readLock; a
// writer sets key:writeLock with NX. Both require that the other key is absent. DEL of
// one's own key unlocks.
//
// The flaw: exclusion between readers and writers breaks, because one key stands for
// all readers. The first reader that unlocks frees all, and a writer gets in beside
// the others. In the same way the last reader sets the TTL for all, also to a shorter
// one. And a late writer deletes the lock of the next one, as with [BlindDelete]. To
// see it, lock twice as a reader, unlock once, and lock as a writer.
//
// On a cluster the two keys are in different slots, unless the name has a {tag}, and
// no script may use both: TryLock then returns CROSSSLOT.
//
// The RW of package lock is sound: in its one key every reader has an entry with its
// own deadline.
type TwoKeyRW struct {
	party
	readKey, writeKey string
}

// NewTwoKeyRW returns a client's view of the lock; key is the prefix of the names of
// its two keys.
func NewTwoKeyRW(rdb redis.UniversalClient, key string, o Options) *TwoKeyRW {
	return &TwoKeyRW{newParty(rdb, key, o), key + ":readLock", key + ":writeLock"}
}

// Reader returns the side that readers share.
func (l *TwoKeyRW) Reader() Lock {
	return tryFunc(func(ctx context.Context) (Hold, error) { return l.take(ctx, twoKeyRead, l.readKey) })
}

// Writer returns the side that one writer holds alone.
func (l *TwoKeyRW) Writer() Lock {
	return tryFunc(func(ctx context.Context) (Hold, error) { return l.take(ctx, twoKeyWrite, l.writeKey) })
}

// take runs one of the scripts, which sets the key named own.
func (l *TwoKeyRW) take(ctx context.Context, script *redis.Script, own string) (Hold, error) {
	deadline := l.deadline()
	taken, err := script.Run(ctx, l.rdb, []string{l.readKey, l.writeKey}, l.ttl.Milliseconds()).Bool()
	if err != nil || !taken {
		return nil, l.refused(err)
	}
	return &grant{deadline, func(ctx context.Context) error {
		return l.del(ctx, own)
	}}, nil
}

var (
	//go:embed stamp_rw_take.lua
	stampTakeSource string
	//go:embed stamp_rw_release.lua
	stampReleaseSource string

	stampTake    = redis.NewScript(stampTakeSource)
	stampRelease = redis.NewScript(stampReleaseSource)
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
func NewStampRW(rdb redis.UniversalClient, key string, o Options) *StampRW {
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
