package classic

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// GetThenDel takes the lock with SET NX PX and a token, and unlocks like this:
// GET the key, compare with the token in the client, DEL.
//
// What breaks is that only the owner unlocks, as with [BlindDelete] but in a
// moment instead of always: when the lock runs out after the GET, and somebody
// else takes it before the DEL, the DEL deletes what the GET did not see. A
// client that is slow between the two (a garbage collection, a busy network)
// makes the moment long. Pause it at [BeforeDel] for longer than what is left of
// the TTL to see it; Unlock returns nil.
//
// Sound is the Mutex of package lock: the server compares and deletes in one
// step, between which nothing comes.
type GetThenDel struct{ party }

var _ Lock = (*GetThenDel)(nil)

// NewGetThenDel returns a client's view of the lock; key is used as it is.
func NewGetThenDel(rdb redis.UniversalClient, key string, o Options) *GetThenDel {
	return &GetThenDel{newParty(rdb, key, o)}
}

// TryLock implements [Lock].
func (l *GetThenDel) TryLock(ctx context.Context) (Hold, error) {
	token, deadline := newToken(), l.deadline()
	taken, err := l.rdb.SetNX(ctx, l.key, token, l.ttl).Result()
	if err != nil || !taken {
		return nil, l.refused(err)
	}
	return &grant{deadline, func(ctx context.Context) error {
		return l.unlock(ctx, token)
	}}, nil
}

func (l *GetThenDel) unlock(ctx context.Context, token string) error {
	holder, err := l.rdb.Get(ctx, l.key).Result()
	if errors.Is(err, redis.Nil) || err == nil && holder != token {
		err = ErrLost
	}
	if err == nil {
		err = l.between(ctx, BeforeDel)
	}
	if err != nil {
		return l.unlocked(0, err)
	}
	return l.del(ctx, l.key)
}
