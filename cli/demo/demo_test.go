package demo

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/keyspace"
	"locktop/keyspace/formats"
	"locktop/keyspace/inspect"
)

// started starts a demo until the end of the test.
func started(t *testing.T, factor int) *Demo {
	t.Helper()
	d := check.Must(Start(t.Context(), factor, false))(t)
	t.Cleanup(d.Close)
	return d
}

func TestTheDemoHasLocksOfManyKinds(t *testing.T) {
	d := started(t, 1)
	formats := map[string]bool{}
	falling := 0
	locks := found(t, d.main.rdb)
	for _, l := range locks {
		formats[l.Format] = true
		if !l.Expires.IsZero() {
			falling++
		}
	}
	check.True(t, len(locks) >= 8 && len(formats) >= 5 && falling >= 6,
		"%d locks of %d formats, %d of which expire", len(locks), len(formats), falling)
}

func TestTheLoadOfTheDemoIsUnderWay(t *testing.T) {
	t.Parallel()
	d := started(t, 5)
	s := d.Load.Scenario()
	check.True(t, s.Faults[0].At+2*s.Lock.TTL < 10*time.Second, "nobody sees a lease expire within 10 s: %+v", s.Faults[0])
	eventually(t, func() bool {
		m := d.Load.Metrics()
		return m.Acquired > 0 && m.Clients.Waiting > 0
	})
}

func TestEachHoldHasANewOwner(t *testing.T) {
	rdb := servertest.ClientForTest(t, servertest.EmbeddedForTest(t).Addr(), nil)
	c := check.Must(newTraffic(t.Context(), rdb))(t)
	for range 3 { // the earlier rounds must leave no keys
		for _, a := range c.owners {
			check.NoError(t, a.acquire(t.Context(), rdb))
		}
	}
	locks := found(t, rdb)
	for _, a := range c.owners {
		want := a.sample.Want
		l := locks[want.Key]
		check.True(t, l.Kind == want.Kind && l.Confidence == want.Confidence && len(l.Holders) == len(want.Holders) && l.Depth() == want.Depth(),
			"%s (%s) is a %s %s held by %s", want.Key, a.sample.Name, l.Format, l.Kind, holderIDs(l))
		check.True(t, holderIDs(l) != holderIDs(want) || len(holderIDs(want)) <= shortID,
			"%s (%s) is held by the sample's own %s", want.Key, a.sample.Name, holderIDs(l))
	}
}

func TestTheSampleLocksKeepChanging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := server.NewPiped()
		defer e.Close()
		rdb := servertest.ClientForTest(t, e.Addr(), e.Dial)
		c := check.Must(newTraffic(t.Context(), rdb))(t)
		before := found(t, rdb)
		var running sync.WaitGroup
		running.Go(func() { c.run(t.Context()) })
		t.Cleanup(running.Wait) // the context of the test has ended then
		time.Sleep(time.Minute)
		check.True(t, changed(before, found(t, rdb)), "after a minute each lock has the holders that it had")
	})
}

func TestTheDemoChangesItsSampleLocks(t *testing.T) {
	testtier.Long(t, "a lock changes about once in a second")
	t.Parallel()
	d := started(t, 1)
	before := found(t, d.main.rdb)
	eventually(t, func() bool { return changed(before, found(t, d.main.rdb)) })
}

// changed reports whether a lock has a holder who did not have it before. A holder less is no
// change: leases end by themselves.
func changed(before, after map[string]keyspace.Lock) bool {
	for key, l := range after {
		if was, known := before[key]; known && slices.ContainsFunc(l.Holders, func(h keyspace.Holder) bool { return !strings.Contains(holderIDs(was), h.ID) }) {
			return true
		}
	}
	return false
}

// found returns every lock on a server, by key.
func found(t *testing.T, rdb server.Client) map[string]keyspace.Lock {
	t.Helper()
	snap := check.Must(inspect.NewScanner(rdb, inspect.ScanOptions{Formats: formats.All()}).Scan(t.Context()))(t)
	locks := map[string]keyspace.Lock{}
	for _, l := range snap.Locks {
		locks[l.Key] = *l
	}
	return locks
}

func TestTheRealDemoHasRealServersOnly(t *testing.T) {
	t.Parallel()
	servertest.RedisForTest(t) // skips where there is no redis-server
	d := check.Must(Start(t.Context(), 3, true))(t)
	all := append([]node{d.main}, d.quorum.nodes...)
	check.True(t, len(all) == 6, "there are %d servers, want one and five", len(all))
	for _, n := range all {
		info, err := n.rdb.Info(t.Context(), "server").Result()
		check.True(t, err == nil && strings.Contains(info, "process_id"), "%s is no redis-server: %v", n.addr, err)
	}
	d.Close()
	for _, n := range all {
		again := servertest.ClientForTest(t, n.addr, nil)
		check.True(t, again.Ping(context.Background()).Err() != nil, "%s goes on", n.addr)
	}
}

// eventually waits until a condition holds.
func eventually(t *testing.T, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(50 * time.Millisecond) {
		check.Require(t, !time.Now().After(deadline), "it does not come about")
	}
}

// holderIDs returns the IDs of the holders of l, separated by spaces.
func holderIDs(l keyspace.Lock) string {
	var ids []string
	for _, h := range l.Holders {
		ids = append(ids, h.ID)
	}
	return strings.Join(ids, " ")
}
