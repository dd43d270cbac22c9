package classic

import (
	"context"

	"github.com/redis/go-redis/v9"
)

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
