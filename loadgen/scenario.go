// Package loadgen is a fleet of simulated clients that fight over locks, and an
// oracle that watches whether the locks keep their promise.
//
// The clients use nothing but the public API of package lock: what they show is
// what a user gets.
package loadgen

import "time"

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

// Dist is a distribution of durations: exponential around Mean, or constant.
type Dist struct {
	Mean  time.Duration
	Const bool
}
