package classic

import (
	"context"
	_ "embed"

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

// TwoKeyRW is a read/write lock made of two strings: key:readLock, which every
// reader sets anew, and key:writeLock, which a writer sets with NX, each unless
// the other's is there. Unlocking is DEL of one's own key.
//
// What breaks is exclusion between readers and writers: one key stands for all
// readers, so the first of them to unlock frees them all, and a writer gets in
// beside those who still read. In the same way the last to come sets the time
// to live for all, also to a shorter one. And a writer that is late deletes the
// next one's lock, as with [BlindDelete]. Lock twice as a reader, unlock once,
// and lock as a writer to see it.
//
// On a cluster the two keys lie in different slots, and no script may touch
// both, unless the name has a {tag}: TryLock then returns CROSSSLOT.
//
// Sound is the RW of package lock: one key in which every reader stands by
// itself, with a deadline of its own.
type TwoKeyRW struct {
	party
	readKey, writeKey string
}

// NewTwoKeyRW returns a client's view of the lock; key is where the names of its
// two keys begin.
func NewTwoKeyRW(rdb redis.UniversalClient, key string, o Options) *TwoKeyRW {
	return &TwoKeyRW{newParty(rdb, key, o), key + ":readLock", key + ":writeLock"}
}

// Reader returns the lock that readers share.
func (l *TwoKeyRW) Reader() Lock {
	return tryFunc(func(ctx context.Context) (Hold, error) { return l.take(ctx, twoKeyRead, l.readKey) })
}

// Writer returns the lock that a writer has alone.
func (l *TwoKeyRW) Writer() Lock {
	return tryFunc(func(ctx context.Context) (Hold, error) { return l.take(ctx, twoKeyWrite, l.writeKey) })
}

// take runs one of the scripts, which sets the key called own.
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
