// Package contest measures lock libraries side by side: on one redis-server, in
// one process, one after another in every round, so that other load on the
// machine affects all of them. Only ratios within a run are meaningful.
package contest

import (
	"context"
	"slices"
	"time"

	"locktop/lock"
)

// Contender is a lock library in its fastest configuration.
type Contender struct {
	Name string
	Open func(addr string, l Lease) (Fleet, error)
	Runs Events
}

// Events is a set of benchmarks.
type Events uint8

// The benchmarks: cycles without contention, one key that all clients want, and
// many leases.
const (
	Cycles Events = 1 << iota
	HotKey
	Keeping
)

// Contenders returns all contenders. The others are compared with the first.
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

// Lease describes the leases of a contender.
type Lease struct {
	TTL   time.Duration
	Renew time.Duration // between renewals, for contenders that renew
}

// Fleet holds a library's connections of one process, and the clients that
// share them.
type Fleet interface {
	// Client returns a client that locks key. It sends no command.
	Client(key string) Client
	// Close closes the connections. No lock may be held.
	Close() error
}

// Client locks one key. It is not safe for concurrent use.
type Client interface {
	// Lock waits for the lock until ctx ends.
	Lock(ctx context.Context) error
	// Unlock returns once the server has confirmed the release.
	Unlock(ctx context.Context) error
}

// named returns the contenders with these names, in order.
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
