package tui

import (
	"time"

	"locktop/keyspace"
	"locktop/loadgen"
)

// tickMsg carries the time: nothing else on the screen knows what o'clock it is.
type tickMsg struct{ now time.Time }

// lookedMsg answers a look at the server. Exactly one of its parts is set.
type lookedMsg struct {
	at      time.Time // our clock, when the answer had come
	picture *picture
	err     error
}

// measuredMsg is what the generator is doing.
type measuredMsg struct {
	metrics  loadgen.Metrics
	scenario loadgen.Scenario
	resizes  int // changes of the number of clients before it was asked
}

// resizedMsg says that the load has been told to have so many clients.
type resizedMsg struct{ clients int }

// doneMsg tells how something turned out that a key had asked for.
type doneMsg struct {
	text string
	err  error
}

// crashMsg is a panic in a command, on its way to where the terminal can be
// restored before anything is printed.
type crashMsg struct {
	value any
	stack []byte
}

// picture is one snapshot with all that follows from it. It is immutable.
type picture struct {
	snap     keyspace.Snapshot
	locks    []keyspace.Lock // those of the snapshot, what does most damage first
	findings []keyspace.Finding
	worst    map[keyspace.ID]keyspace.Severity // of the locks that have a finding
	offset   time.Duration                     // server's clock minus ours
}

func newPicture(snap keyspace.Snapshot, at time.Time) *picture {
	p := &picture{snap: snap, findings: keyspace.Findings(snap), offset: snap.At.Sub(at)}
	p.locks = keyspace.ByDamage(snap, p.findings)
	p.worst = make(map[keyspace.ID]keyspace.Severity, len(p.findings))
	for _, f := range p.findings {
		p.worst[f.Lock] = max(p.worst[f.Lock], f.Severity)
	}
	return p
}

// about returns the findings on one lock.
func (p *picture) about(id keyspace.ID) []keyspace.Finding {
	var all []keyspace.Finding
	for _, f := range p.findings {
		if f.Lock == id {
			all = append(all, f)
		}
	}
	return all
}

// waiting is the number of waiters on all locks together.
func (p *picture) waiting() int {
	n := 0
	for i := range p.locks {
		n += p.locks[i].Crowd()
	}
	return n
}
