package classic

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	stampTake    = script("stamp_rw_take")
	stampRelease = script("stamp_rw_release")
)

// StampRW is the second form of the fifth article, a read/write lock in one hash. This
// repairs [TwoKeyRW], because it works on a cluster. The fields read and write hold the time
// in Unix milliseconds at which that side was acquired last. It counts as held for the time of
// its side: a writer's is the TTL, a reader's a third of it; in the article 3 s and 1 s.
// Each acquire lets the hash expire after the time of its side. Unlocking deletes the field
// if the stamp is still the holder's.
//
// The flaw: exclusion between readers and writers breaks, because all readers share
// one stamp. The second reader overwrites the stamp of the first. Then the first
// cannot unlock ([ErrLost], although its time has not passed), and when the second
// unlocks, a writer gets in beside the first. Readers of the same millisecond have the same
// stamp, and the first to unlock frees both. TestASecondReadersStampKeepsTheFirstFromUnlocking
// and the scene stamp-rw show it.
//
// The stamps come from the clients' clocks, so a client whose clock is ahead gets in,
// as with [Getset]. And the hash has one expiry for both sides: a reader that gets in
// beside a writer in this way also ends the writer's lock for all other clients, after a
// reader's time. TestAReaderCutsTheTimeOfAWriter shows it.
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
	return tryFunc(func(ctx context.Context) (Hold, error) {
		return l.take(ctx, "read", l.readTTL(), "write", l.ttl.Milliseconds())
	})
}

// Writer returns the side that one writer holds alone.
func (l *StampRW) Writer() Lock {
	return tryFunc(func(ctx context.Context) (Hold, error) {
		return l.take(ctx, "write", l.ttl, "write", l.ttl.Milliseconds(), "read", l.readTTL().Milliseconds())
	})
}

func (l *StampRW) readTTL() time.Duration { return (l.ttl / 3).Truncate(time.Millisecond) }

// take sets the stamp of a side, which lasts for ttl, unless one of the sides in against is
// held; each is followed by its time in ms.
func (l *StampRW) take(ctx context.Context, side string, ttl time.Duration, against ...any) (Hold, error) {
	stamp := l.hooks.Now().UnixMilli()
	args := append([]any{side, stamp, ttl.Milliseconds()}, against...)
	taken, err := stampTake.Run(ctx, l.rdb, []string{l.key}, args...).Bool()
	if err != nil || !taken {
		return nil, l.refused(err)
	}
	return &grant{time.UnixMilli(stamp).Add(ttl), func(ctx context.Context) error {
		return l.unlocked(stampRelease.Run(ctx, l.rdb, []string{l.key}, side, stamp).Int64())
	}}, nil
}

var (
	twoKeyRead  = script("two_key_rw_read")
	twoKeyWrite = script("two_key_rw_write")
)

// TwoKeyRW is the first form of the fifth article, a read/write lock in two strings. Every reader sets key:readLock; a
// writer sets key:writeLock with NX. Both require that the other key is absent. DEL of
// one's own key unlocks.
//
// The flaw: exclusion between readers and writers breaks, because one key stands for
// all readers. The first reader that unlocks frees all, and a writer gets in beside
// the others. In the same way the last reader sets the TTL for all, also to a shorter
// one. And a late writer deletes the lock of the next one, as with [BlindDelete].
// TestAReaderThatLeavesLetsAWriterInBesideAnother, TestAReaderSetsTheTimeOfAllReaders and the
// scene two-key-rw show it.
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
func NewTwoKeyRW(rdb Client, key string, o Options) *TwoKeyRW {
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
