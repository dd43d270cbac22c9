// Package compat tests locktop with the real clients of other lock libraries:
// locktop recognises their locks, and their locks and those of package lock
// exclude each other.
package compat

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
	"github.com/valkey-io/valkey-go"
	"github.com/valkey-io/valkey-go/valkeylock"
	"github.com/zeromicro/go-zero/core/logx"
	zero "github.com/zeromicro/go-zero/core/stores/redis"

	"locktop/internal/check"
	"locktop/internal/servertest"
	"locktop/keyspace"
	"locktop/lock"
)

// ttl is the TTL of every lock in these tests, long enough for a slow machine.
const ttl = time.Minute

// peer is a lock of another library.
type peer struct {
	name   string
	format string // name of the format in locktop
	label  string // what the format says of the holder
	key    func(name string) string
	// try acquires the lock of that name if it is free, and returns a function
	// that releases it, or nil if another client holds it.
	try func(t *testing.T, addr, name string) (release func())
}

func peers() []peer {
	verbatim := func(name string) string { return name }
	return []peer{
		{name: "redsync", format: "redsync", key: verbatim, try: tryRedsync},
		{name: "redislock", format: "redislock", key: verbatim, try: tryRedislock("")},
		{name: "redislock with metadata", format: "redislock", label: "worker-3", key: verbatim, try: tryRedislock("worker-3")},
		{name: "rueidislock", format: "rueidislock", key: func(name string) string { return "rueidislock:0:" + name }, try: tryRueidislock},
		{name: "valkeylock", format: "valkeylock", key: func(name string) string { return "valkeylock:0:" + name }, try: tryValkeylock},
		{name: "go-zero", format: "go-zero", key: verbatim, try: tryGoZero},
	}
}

func tryRedsync(t *testing.T, addr, name string) func() {
	m := redsync.New(goredis.NewPool(connect(t, addr))).NewMutex(name, redsync.WithExpiry(ttl))
	if err := m.TryLock(); err != nil {
		return nil
	}
	return func() {
		ok, err := m.Unlock()
		check.True(t, ok, "redsync cannot unlock %q: %v", name, err)
	}
}

func tryRedislock(metadata string) func(*testing.T, string, string) func() {
	return func(t *testing.T, addr, name string) func() {
		l, err := redislock.Obtain(t.Context(), connect(t, addr), name, ttl, &redislock.Options{Metadata: metadata})
		if err != nil {
			return nil
		}
		return func() {
			check.ErrorIs(t, l.Release(context.Background()), nil, "redislock cannot release %q", name)
		}
	}
}

// tryRueidislock uses one key per lock, because a mutex of package lock has
// only one.
func tryRueidislock(t *testing.T, addr, name string) func() {
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{addr}},
		KeyValidity:  ttl,
		KeyMajority:  1,
	})
	check.NoError(t, err)
	t.Cleanup(locker.Close)
	_, release, err := locker.TryWithContext(t.Context(), name)
	if err != nil {
		return nil
	}
	return release
}

// tryValkeylock takes one key a lock, as tryRueidislock does.
func tryValkeylock(t *testing.T, addr, name string) func() {
	locker, err := valkeylock.NewLocker(valkeylock.LockerOption{
		ClientOption: valkey.ClientOption{InitAddress: []string{addr}},
		KeyValidity:  ttl,
		KeyMajority:  1,
	})
	check.NoError(t, err)
	t.Cleanup(locker.Close)
	_, release, err := locker.TryWithContext(t.Context(), name)
	if err != nil {
		return nil
	}
	return release
}

// tryGoZero asks for whole seconds, and go-zero adds half a second.
func tryGoZero(t *testing.T, addr, name string) func() {
	logx.Disable()
	store := check.Must(zero.NewRedis(zero.RedisConf{Host: addr, Type: zero.NodeType}))(t)
	l := zero.NewRedisLock(store, name)
	l.SetExpire(int(ttl/time.Second) - 1)
	if ok, err := l.Acquire(); !ok {
		check.ErrorIs(t, err, nil, "go-zero cannot ask for %q", name)
		return nil
	}
	return func() {
		ok, err := l.Release()
		check.True(t, ok, "go-zero cannot release %q: %v", name, err)
	}
}

func connect(t *testing.T, addr string) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

// kind is a kind of lock of package lock that excludes peers.
type kind struct {
	name string
	lock func(c *lock.Client, key string) (lock.Locker, error)
}

func kinds() []kind {
	o := lock.Options{TTL: ttl}
	return []kind{
		{"mutex", func(c *lock.Client, key string) (lock.Locker, error) { return c.Mutex(key, o) }},
		{"fair", func(c *lock.Client, key string) (lock.Locker, error) { return c.Fair(key, o) }},
	}
}

// onServer runs f for every peer, each on a redis-server of its own.
func onServer(t *testing.T, f func(t *testing.T, addr string, p peer)) {
	for _, p := range peers() {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			addr := servertest.RedisForTest(t).Addr()
			if p.name == "rueidislock" || p.name == "valkeylock" {
				needs62(t, addr)
			}
			f(t, addr, p)
		})
	}
}

// needs62 skips a test of a library that does not work with a server before Redis 6.2, or fails it if requirePeers is set: the
// library sends SET with PXAT, or another command of that version.
func needs62(t *testing.T, addr string) {
	t.Helper()
	if info := connect(t, addr).Info(t.Context(), "server").Val(); strings.Contains(info, "redis_version:6.0.") {
		lacks(t, "the library needs Redis 6.2 or later: put another redis-server on PATH")
	}
}

// known reports whether the scanner has a format of that name.
func known(format string, all []keyspace.Format) bool {
	for _, f := range all {
		if f.Name == format {
			return true
		}
	}
	return false
}
