package main

import (
	"sync"
	"time"

	"locktop/loadgen"
)

// aftermath is for how long after a fault a lease may still be lost to it: one
// that it kept from being renewed, at the very end.
const aftermath = ttl + 500*time.Millisecond

// window is a time in which a fault had its effect.
type window struct {
	kind     string
	from, to time.Time // to is zero while it lasts
	client   int       // the one that was struck, counted from 1; 0 = everybody
	nodes    int       // how many servers were struck, if any
}

// stalled is the kind of a window in which the machine had other things to do.
// It is no fault of ours, and counted by itself.
const stalled = "stall"

// mishap is something that should happen under a fault alone.
type mishap struct {
	event loadgen.Event
	since time.Time // when what ended so had begun
}

// ledger holds what happened to the clients of one kind against what was done
// to them. Safe for concurrent use.
type ledger struct {
	enough int // servers that have to be struck before a lease may be lost to it

	mu      sync.Mutex
	windows []window
	mishaps []mishap
	since   map[int]time.Time // by client: its newest arrival or acquisition
	struck  map[string]int    // faults, by kind
}

func newLedger(servers int) *ledger {
	return &ledger{enough: servers/2 + 1, since: make(map[int]time.Time), struck: make(map[string]int)}
}

// hear takes in an event of the clients.
func (l *ledger) hear(e loadgen.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch e.Kind {
	case loadgen.Arrived, loadgen.Acquired:
		l.since[e.Client] = e.At
		l.end(string(loadgen.Crash), e.Client, e.At) // another one has taken its place
	case loadgen.Lost, loadgen.Expired, loadgen.Failed:
		l.mishaps = append(l.mishaps, mishap{e, l.since[e.Client]})
	case loadgen.WasStuck:
		l.mishaps = append(l.mishaps, mishap{e, e.At.Add(-e.Took)})
	case loadgen.Struck:
		l.begin(window{kind: string(e.Fault), from: e.At, client: e.Client})
	case loadgen.Healed:
		l.end(string(e.Fault), e.Client, e.At)
	}
}

func (l *ledger) begin(w window) {
	l.struck[w.kind]++
	l.windows = append(l.windows, w)
}

// end notes that the oldest fault of that kind of a client, or of everybody, is
// over, if there is one.
func (l *ledger) end(kind string, client int, at time.Time) {
	for i := range l.windows {
		if w := &l.windows[i]; w.kind == kind && w.client == client && w.to.IsZero() {
			w.to = at
			return
		}
	}
}

// strike notes a fault of some servers, and returns what notes its end.
func (l *ledger) strike(kind string, nodes int) (over func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begin(window{kind: kind, from: time.Now(), nodes: nodes})
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.end(kind, 0, time.Now())
	}
}

// stall notes that servers did not run for a while, or nothing did.
func (l *ledger) stall(from, to time.Time, nodes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begin(window{kind: stalled, from: from, to: to, nodes: nodes})
}

// account is what became of the leases and the requests of the clients.
type account struct {
	lost, stalled int // leases, to a fault or to a stall of the machine
	failed, alone int // requests, and those of them that failed without either
	unexplained   []mishap
}

// close returns the account. A request may fail at any time: it says so, and
// nobody is harmed. A lease may not be lost, nor a key be stuck, without a reason.
func (l *ledger) close() account {
	l.mu.Lock()
	defer l.mu.Unlock()
	var a account
	for _, m := range l.mishaps {
		fault, stall := l.explains(m, false), l.explains(m, true)
		switch {
		case m.event.Kind == loadgen.Failed:
			a.failed++
			if !stall {
				a.alone++
			}
		case !stall:
			a.unexplained = append(a.unexplained, m)
		case m.event.Kind == loadgen.WasStuck:
		case fault:
			a.lost++
		default:
			a.stalled++
		}
	}
	return a
}

// explains reports whether enough was struck while what ended badly went on.
// What nobody could take is nobody's: the fault of any client explains it.
func (l *ledger) explains(m mishap, stalls bool) bool {
	nodes := 0
	for _, w := range l.windows {
		if w.kind == stalled && !stalls || !w.from.Before(m.event.At) || !w.to.IsZero() && !w.to.Add(aftermath).After(m.since) {
			continue
		}
		if w.client > 0 && (w.client == m.event.Client || m.event.Kind == loadgen.WasStuck) {
			return true
		}
		nodes += w.nodes
	}
	return nodes >= l.enough
}

// calm returns for how much of a time no fault of the servers explained anything.
func (l *ledger) calm(from, to time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	calm := to.Sub(from)
	for _, w := range l.windows {
		if w.nodes < l.enough || w.kind == stalled {
			continue
		}
		end := to
		if !w.to.IsZero() && w.to.Add(aftermath).Before(to) {
			end = w.to.Add(aftermath)
		}
		if w.from.After(from) {
			from = w.from
		}
		if end.After(from) {
			calm -= end.Sub(from)
			from = end
		}
	}
	return calm
}
