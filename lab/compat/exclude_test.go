package compat

import (
	"context"
	"errors"
	"testing"

	"locktop/internal/check"
	"locktop/lock"
)

// ourClient returns a client of package lock that is closed at the end of the
// test.
func ourClient(t *testing.T, addr string, observe func(lock.Event)) *lock.Client {
	t.Helper()
	c := check.Must(lock.New(connect(t, addr), lock.Config{Owner: "us", Observe: observe}))(t)
	t.Cleanup(func() { c.Close() })
	return c
}

func TestOurHolderKeepsPeersOut(t *testing.T) {
	onServer(t, func(t *testing.T, addr string, p peer) {
		us := ourClient(t, addr, nil)
		for _, k := range kinds() {
			lease := check.Must(check.Must(k.lock(us, p.key(k.name)))(t).TryLock(t.Context()))(t)
			check.True(t, p.try(t, addr, k.name) == nil, "%s: the peer got in beside us", k.name)
			check.ErrorIs(t, lease.Unlock(t.Context()), nil, "%s: the peer's attempt cost us the lock", k.name)
			release := p.try(t, addr, k.name)
			check.Require(t, release != nil, "%s: the peer cannot have the lock after our release", k.name)
			release()
		}
	})
}

// A peer's lock keeps us out until its release, for which we wait.
func TestPeersHolderKeepsUsOut(t *testing.T) {
	onServer(t, func(t *testing.T, addr string, p peer) {
		refused := make(chan struct{}, 1)
		us := ourClient(t, addr, func(e lock.Event) {
			if e.Kind == lock.Contended {
				refused <- struct{}{}
			}
		})
		other := ourClient(t, addr, nil)
		ctx, cancel := context.WithTimeout(t.Context(), ttl/2) // well before the peer's lock expires
		defer cancel()
		for _, k := range kinds() {
			release := p.try(t, addr, k.name)
			check.Require(t, release != nil, "%s: the peer cannot have a lock that is free", k.name)
			stored := connect(t, addr).Get(t.Context(), p.key(k.name)).Val()
			_, err := check.Must(k.lock(other, p.key(k.name)))(t).TryLock(t.Context())
			var held *lock.HeldError
			check.True(t, errors.As(err, &held) && held.Token == stored && held.TTL > 0 && held.TTL <= ttl,
				"%s: TryLock says %v; want that %q holds it for up to %v", k.name, err, stored, ttl)
			got := make(chan error, 1)
			go func() {
				lease, err := check.Must(k.lock(us, p.key(k.name)))(t).Lock(ctx)
				if err == nil {
					err = lease.Unlock(ctx)
				}
				got <- err
			}()
			select {
			case <-refused:
			case err := <-got:
				t.Fatalf("%s: Lock returned while the peer held the lock: %v", k.name, err)
			}
			release()
			check.ErrorIs(t, <-got, nil, "%s: after the peer's release", k.name)
		}
	})
}
