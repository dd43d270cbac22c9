package lock

import (
	"context"
	"errors"
	"time"
)

// unlockTimeout limits how long Do waits for the release.
const unlockTimeout = 5 * time.Second

// Do locks l, calls f and unlocks l, also if f panics. The context of f ends with ctx
// or with the lease, whichever is first. Do waits for the lock as [Locker].Lock does.
// It returns the error of f joined with the error of [Lease.Unlock], which tells
// whether the lease was lost. Do waits at most 5 s for the release, also after ctx has
// ended.
func Do(ctx context.Context, l Locker, f func(ctx context.Context) error) (err error) {
	lease, err := l.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), unlockTimeout)
		defer cancel()
		err = errors.Join(err, lease.Unlock(bounded))
	}()
	return f(lease.ContextFrom(ctx))
}
