package loadgen

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// fleet is the clients of a run from one start to one stop, with the oracle and
// the figures of that time. It is used once. All methods may be called from any
// goroutine.
type fleet struct {
	scenario Scenario
	keys     []string
	root     identity
	oracle   *oracle
	recorder *recorder

	ctx     context.Context // ends when the fleet is stopped
	cancel  context.CancelFunc
	clients errgroup.Group

	mu      sync.Mutex
	stopped bool
	seats   []*seat // by client number; nil is free
}

// seat is a client's place in a fleet.
type seat struct {
	leave   context.CancelFunc
	leaving bool // asked to, but perhaps still holding something
}

// newFleet lets a fleet begin whose clients lock with identities made from root.
func newFleet(s Scenario, root identity) *fleet {
	ctx, cancel := context.WithCancel(context.Background())
	f := &fleet{
		scenario: s,
		keys:     s.names(),
		root:     root,
		oracle:   newOracle(s.Keys),
		recorder: newRecorder(time.Now()),
		ctx:      ctx,
		cancel:   cancel,
	}
	f.resize(s.Clients)
	return f
}

// resize adds clients, or asks those with the highest numbers to leave, until n
// stay. It waits for none of them, and does nothing once the fleet is stopped.
func (f *fleet) resize(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopped {
		return
	}
	staying := 0
	for _, s := range f.seats {
		if s != nil && !s.leaving {
			staying++
		}
	}
	for number := 0; staying < n; number++ {
		if number == len(f.seats) {
			f.seats = append(f.seats, nil)
		}
		if f.seats[number] == nil {
			f.admit(number)
			staying++
		}
	}
	for number := len(f.seats) - 1; staying > n; number-- {
		if s := f.seats[number]; s != nil && !s.leaving {
			s.leaving = true
			s.leave()
			staying--
		}
	}
}

// admit lets a client begin. The fleet's mutex must be held.
func (f *fleet) admit(number int) {
	stay, leave := context.WithCancel(f.ctx)
	f.seats[number] = &seat{leave: leave}
	f.recorder.join(number)
	c := &client{
		number:   number,
		identity: f.root.as(fmt.Sprintf("client-%d", number+1)),
		choices:  newChoices(f.scenario, number),
		keys:     f.keys,
		patience: f.scenario.Patience,
		oracle:   f.oracle,
		recorder: f.recorder,
	}
	f.clients.Go(func() error {
		defer f.vacate(number)
		return c.run(f.ctx, stay)
	})
}

// vacate frees the seat of a client that has ended.
func (f *fleet) vacate(number int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.recorder.part(number)
	f.seats[number].leave()
	f.seats[number] = nil
}

// stop ends all clients, waits for them, closes the root identity, and returns
// the first error that kept a lease from being released.
func (f *fleet) stop() error {
	f.mu.Lock()
	f.stopped = true
	f.mu.Unlock()
	f.cancel()
	err := f.clients.Wait()
	f.recorder.stop(time.Now())
	return cmp.Or(err, f.root.close())
}

func (f *fleet) metrics() Metrics {
	m := f.recorder.metrics(time.Now())
	m.Overlap = f.oracle.overlap()
	return m
}
