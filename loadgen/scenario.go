// Package loadgen is a fleet of simulated clients that fight over locks, and an
// oracle that watches whether the locks keep their promise.
//
// The clients use nothing but the public API of package lock: what they show is
// what a user gets.
package loadgen

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"time"
)

// The largest scenarios that [Scenario.Validate] accepts.
const (
	MaxClients = 10_000
	MaxKeys    = 100_000
)

// minTTL and maxTime bound every time of a scenario: below the one, package
// lock refuses a lease; above the other, nobody watches any more.
const (
	minTTL  = 10 * time.Millisecond
	maxTime = 24 * time.Hour
)

// Scenario says what a fleet does. The zero value of a field means its default,
// which [Scenario.WithDefaults] fills in.
type Scenario struct {
	Name    string
	Caption string // two sentences for people who watch

	Clients  int           // how many at the start; default 20
	Keys     int           // how many keys they fight over; default 3
	Prefix   string        // in front of every key; default "load:{<random>}:"
	TTL      time.Duration // lease; default 5s
	Renew    bool          // keep leases alive while they are held
	Hold     Dist          // time inside the critical section; default 20 ms on average
	Think    Dist          // time between two attempts; default 50 ms on average
	Patience time.Duration // gives up waiting after this; 0 = never
	Seed     uint64        // same seed, same sequence of choices per client; 0 = random
}

// WithDefaults returns s with every default filled in, random ones too: what it
// returns can be run again and makes the same choices.
func (s Scenario) WithDefaults() Scenario {
	s.Clients = cmp.Or(s.Clients, 20)
	s.Keys = cmp.Or(s.Keys, 3)
	s.Prefix = cmp.Or(s.Prefix, fmt.Sprintf("load:{%08x}:", rand.Uint32()))
	s.TTL = cmp.Or(s.TTL, 5*time.Second)
	s.Hold = cmp.Or(s.Hold, Dist{Mean: 20 * time.Millisecond})
	s.Think = cmp.Or(s.Think, Dist{Mean: 50 * time.Millisecond})
	s.Seed = cmp.Or(s.Seed, rand.Uint64())
	return s
}

// Validate returns an error, of one line, about the first field that cannot be
// run. Fields that are zero stand for their defaults and are in order.
func (s Scenario) Validate() error {
	s = s.WithDefaults()
	switch {
	case s.Clients < 1 || s.Clients > MaxClients:
		return fmt.Errorf("clients must be 1 to %d, not %d", MaxClients, s.Clients)
	case s.Keys < 1 || s.Keys > MaxKeys:
		return fmt.Errorf("keys must be 1 to %d, not %d", MaxKeys, s.Keys)
	case s.TTL < minTTL || s.TTL > maxTime || s.TTL%time.Millisecond != 0:
		return fmt.Errorf("ttl must be %s to %s in whole milliseconds, not %s", minTTL, maxTime, s.TTL)
	case s.Hold.Mean < 0 || s.Hold.Mean > maxTime:
		return fmt.Errorf("hold must be 0 to %s, not %s", maxTime, s.Hold.Mean)
	case s.Think.Mean < 0 || s.Think.Mean > maxTime:
		return fmt.Errorf("think must be 0 to %s, not %s", maxTime, s.Think.Mean)
	case s.Patience < 0 || s.Patience > maxTime:
		return fmt.Errorf("patience must be 0 to %s, not %s", maxTime, s.Patience)
	}
	return nil
}

// names returns the names of the scenario's keys.
func (s Scenario) names() []string {
	names := make([]string, s.Keys)
	for i := range names {
		names[i] = fmt.Sprintf("%s%d", s.Prefix, i+1)
	}
	return names
}
