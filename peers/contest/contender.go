// Package contest measures lock libraries side by side: on one redis-server, in
// one process, one after the other in every round, so that whatever else the
// machine does meets them all. Figures are worth something only as ratios
// within a run.
package contest

import (
	"context"
	"slices"
	"time"

	"locktop/lock"
)

// Contender is a lock library, set up as it runs best.
type Contender struct {
	Name string
	Open func(addr string, l Lease) (Fleet, error)
	Runs Events
}

// Events are benchmarks, as a set.
type Events uint8

// The benchmarks: cycles that nobody contends, one key that everybody wants,
// and many leases that are kept.
const (
	Cycles Events = 1 << iota
	HotKey
	Keeping
)

// Contenders returns everybody. The first is the one that the others are
// compared with.
func Contenders() []Contender {
	return []Contender{
		{Name: "locktop", Open: openLocktop((*lock.Client).Mutex), Runs: Cycles | HotKey | Keeping},
		{Name: fairName, Open: openLocktop((*lock.Client).Fair), Runs: Cycles | HotKey},
		{Name: "raw", Open: openRaw, Runs: Cycles},
		{Name: "redsync", Open: openRedsync, Runs: Cycles | HotKey},
		{Name: "redislock", Open: openRedislock, Runs: Cycles | HotKey},
		{Name: "rueidislock", Open: openRueidislock, Runs: Cycles | HotKey | Keeping},
	}
}

// Lease is how long to hold.
type Lease struct {
	TTL   time.Duration
	Renew time.Duration // between renewals, by those who renew
}

// Fleet is what one process has of a library: connections, and clients that
// share them.
type Fleet interface {
	// Client returns somebody who locks key. It sends nothing.
	Client(key string) Client
	// Close ends the connections. Nothing must be held any more.
	Close() error
}

// Client is one who locks. It is used by one goroutine.
type Client interface {
	// Lock waits for the lock until ctx ends.
	Lock(ctx context.Context) error
	// Unlock returns once the server has confirmed the release.
	Unlock(ctx context.Context) error
}

// named returns those with these names, in order.
func named(who []Contender, names ...string) []Contender {
	return slices.DeleteFunc(who, func(c Contender) bool { return !slices.Contains(names, c.Name) })
}

// in returns the contenders that run an event, in order.
func in(e Events) []Contender {
	var some []Contender
	for _, c := range Contenders() {
		if c.Runs&e != 0 {
			some = append(some, c)
		}
	}
	return some
}
