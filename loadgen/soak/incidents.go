package main

import (
	"sync"
	"time"

	"locktop/loadgen"
)

// faultEffect is how long after its end a fault may still cost a lease: it may have
// prevented the last renewal.
const faultEffect = ttl + 500*time.Millisecond

// faultWindow is the time in which a fault was active.
type faultWindow struct {
	kind     string
	from, to time.Time // to is zero while the fault is active
	client   int       // the affected client, counted from 1; 0 = all
	nodes    int       // number of affected servers
}

// stalled is the kind of a window in which the machine ran other programs. It is not
// an injected fault and is counted separately.
const stalled = "stall"

// incident is an event that only a fault may cause.
type incident struct {
	event loadgen.Event
	since time.Time // when the hold or the request began
}

// incidentLog records the faults and the incidents of the clients of one kind, and
// explains the incidents by the faults. Safe for concurrent use.
type incidentLog struct {
	majority int // number of affected servers that can cost a lease

	mu          sync.Mutex
	faults      []faultWindow
	incidents   []incident
	since       map[int]time.Time // time of the newest arrival or acquire, by client
	faultCounts map[string]int    // number of faults, by kind
}

func newIncidentLog(servers int) *incidentLog {
	return &incidentLog{majority: servers/2 + 1, since: make(map[int]time.Time), faultCounts: make(map[string]int)}
}

// onEvent records an event of the clients.
func (l *incidentLog) onEvent(e loadgen.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch e.Kind {
	case loadgen.Arrived, loadgen.Acquired:
		l.since[e.Client] = e.At
		l.end(string(loadgen.Crash), e.Client, e.At) // a new client has replaced the crashed one
	case loadgen.Lost, loadgen.Expired, loadgen.Failed:
		l.incidents = append(l.incidents, incident{e, l.since[e.Client]})
	case loadgen.StuckKey:
		l.incidents = append(l.incidents, incident{e, e.At.Add(-e.Took)})
	case loadgen.FaultBegan:
		l.begin(faultWindow{kind: string(e.Fault), from: e.At, client: e.Client})
	case loadgen.FaultEnded:
		l.end(string(e.Fault), e.Client, e.At)
	}
}

func (l *incidentLog) begin(w faultWindow) {
	l.faultCounts[w.kind]++
	l.faults = append(l.faults, w)
}

// end ends the oldest active fault of this kind and client, if there is one.
func (l *incidentLog) end(kind string, client int, at time.Time) {
	for i := range l.faults {
		if w := &l.faults[i]; w.kind == kind && w.client == client && w.to.IsZero() {
			w.to = at
			return
		}
	}
}

// serverFault records the begin of a fault of some servers. The caller calls over at
// its end.
func (l *incidentLog) serverFault(kind string, nodes int) (over func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begin(faultWindow{kind: kind, from: time.Now(), nodes: nodes})
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.end(kind, 0, time.Now())
	}
}

// stall records that some servers, or the whole machine, did not run for a while.
func (l *incidentLog) stall(from, to time.Time, nodes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begin(faultWindow{kind: stalled, from: from, to: to, nodes: nodes})
}

// summary counts lost leases and failed requests.
type summary struct {
	lost, stalled               int // leases lost to a fault or to a stall of the machine
	failed, unexplainedFailures int // requests, and those that failed without a fault or a stall
	unexplained                 []incident
}

// summarize explains the incidents. A request may fail at any time: the client gets an
// error. A lost lease or a stuck key needs a cause.
func (l *incidentLog) summarize() summary {
	l.mu.Lock()
	defer l.mu.Unlock()
	var s summary
	for _, i := range l.incidents {
		fault, stall := l.explains(i, false), l.explains(i, true)
		switch {
		case i.event.Kind == loadgen.Failed:
			s.failed++
			if !stall {
				s.unexplainedFailures++
			}
		case !stall:
			s.unexplained = append(s.unexplained, i)
		case i.event.Kind == loadgen.StuckKey:
		case fault:
			s.lost++
		default:
			s.stalled++
		}
	}
	return s
}

// explains reports whether a fault of the client, or faults of enough servers, can have
// caused an incident. A fault of any client explains a stuck key.
func (l *incidentLog) explains(i incident, stalls bool) bool {
	nodes := 0
	for _, w := range l.faults {
		if w.kind == stalled && !stalls || !w.from.Before(i.event.At) || !w.to.IsZero() && !w.to.Add(faultEffect).After(i.since) {
			continue
		}
		if w.client > 0 && (w.client == i.event.Client || i.event.Kind == loadgen.StuckKey) {
			return true
		}
		nodes += w.nodes
	}
	return nodes >= l.majority
}

// faultFree returns for how much of the time no server fault could explain an incident.
func (l *incidentLog) faultFree(from, to time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	free := to.Sub(from)
	for _, w := range l.faults {
		if w.nodes < l.majority || w.kind == stalled {
			continue
		}
		end := to
		if !w.to.IsZero() && w.to.Add(faultEffect).Before(to) {
			end = w.to.Add(faultEffect)
		}
		if w.from.After(from) {
			from = w.from
		}
		if end.After(from) {
			free -= end.Sub(from)
			from = end
		}
	}
	return free
}
