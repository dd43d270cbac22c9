package lock

import (
	"context"
	"errors"
	"time"
)

// unlockTimeout bounds how long Do waits for the release.
const unlockTimeout = 5 * time.Second

// Do locks, calls f with a context that ends with ctx or with the lease, whichever is
// first, and unlocks, also if f panics. It waits for the lock as [Locker].Lock does.
// The error is that of f, joined with why the lease was lost or could not be released,
// if it was; after ctx has ended, the release is waited for some seconds yet.
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
