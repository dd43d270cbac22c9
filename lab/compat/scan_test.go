package compat

import (
	"testing"

	"locktop/internal/check"
	"locktop/keyspace"
	"locktop/keyspace/formats"
	"locktop/keyspace/inspect"
)

func TestScannerNamesThePeersLocks(t *testing.T) {
	onServer(t, func(t *testing.T, addr string, p peer) {
		all := formats.All()
		check.Require(t, known(p.format, all), "there is no format %q", p.format)
		const name = "lock:inventory:sku-9"
		release := p.try(t, addr, name)
		check.Require(t, release != nil, "the peer cannot have a lock that is free")
		rdb := connect(t, addr)
		token := rdb.Get(t.Context(), p.key(name)).Val()
		scanner := inspect.NewScanner(rdb, inspect.ScanOptions{Formats: all})
		found, err := scanner.Scan(t.Context())
		check.NoError(t, err)
		check.Require(t, len(found.Locks) == 1, "the scanner found %d locks, want 1: %+v", len(found.Locks), found.Locks)
		checkLock(t, *found.Locks[0], p, p.key(name), token)
		left, expires := found.Locks[0].TTL(found.At)
		check.True(t, expires && left > 0 && left <= ttl, "its TTL is %v, %v; want up to %v", left, expires, ttl)

		release()
		if found, err = scanner.Scan(t.Context()); err != nil || len(found.Locks) != 0 {
			t.Errorf("after the release the scanner found %+v, %v", found.Locks, err)
		}
	})
}

// checkLock checks everything except the TTL.
func checkLock(t *testing.T, l keyspace.Lock, p peer, key, token string) {
	t.Helper()
	if l.Key != key || l.Format != p.format || l.Kind != keyspace.Mutex || l.Confidence < keyspace.Likely {
		t.Errorf("the scanner found %q: a %s of %s, %v; want %q: a mutex of %s, likely at least",
			l.Key, l.Kind, l.Format, l.Confidence, key, p.format)
	}
	check.True(t, len(l.Holders) == 1 && l.Holders[0].ID == token && l.Holders[0].Label == p.label && l.Holders[0].Depth == 1,
		"its holders are %+v; want %q alone, called %q, once", l.Holders, token, p.label)
}
