// Package metrics turns snapshots of locks into Prometheus metrics. It reads neither
// Redis nor a clock: a scrape costs the watched servers nothing.
package metrics

import (
	"bufio"
	"io"
	"runtime"
	"slices"
	"sync"
	"time"

	"locktop/keyspace"
)

// MaxLocks is the maximum number of locks with metrics of their own.
const MaxLocks = 50

// Options configure an Exporter.
type Options struct {
	Version string   // of the program
	Locks   []string // keys of locks with metrics of their own; at most MaxLocks
	Classes bool     // count locks and findings by the pattern of the key
	// Shows reports whether a lock of a format shows its waiters; nil = all do.
	Shows func(format string) bool
}

func (o Options) hides(format string) bool { return o.Shows != nil && !o.Shows(format) }

// Reading is what was read of one target.
type Reading struct {
	keyspace.Snapshot
	DB         int              // the database of the target; AllDatabases
	Commands   map[string]int64 // commands sent so far, by name
	ServerTime time.Duration    // time that the servers were busy with them so far
}

// AllDatabases is the DB of a Reading of all databases.
const AllDatabases = -1

// Exporter has the metrics of several targets. It is safe for concurrent use.
type Exporter struct {
	options Options

	mu      sync.Mutex
	targets []*target
}

// Target is a target of an Exporter.
type Target struct {
	Name  string // differs from those of the other targets
	Flags string // with which a command of locktop reads the target, as words of a shell command
}

// New returns an Exporter for targets.
func New(o Options, targets ...Target) *Exporter {
	e := &Exporter{options: o}
	for _, of := range targets {
		t := &target{Target: of, groups: make(map[groupID]*group), locks: make(map[keyspace.ID]bool), findings: make(findings)}
		for _, kind := range keyspace.FindingProblems() {
			t.findings.add(kind, noClass, 0)
		}
		if o.Classes {
			t.classes, t.blocked = make(classes), make(map[classID]time.Duration)
		}
		e.targets = append(e.targets, t)
	}
	return e
}

// Observe takes the next reading of target i. The events of a reading are those since
// the reading before.
func (e *Exporter) Observe(i int, r Reading) {
	view := newView(r, e.options) // outside of the mutex: it takes long with many locks
	e.mu.Lock()
	defer e.mu.Unlock()
	e.targets[i].observe(r, view)
}

// Fail records that target i does not answer, and why.
func (e *Exporter) Fail(i int, why DownReason) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.targets[i].tried, e.targets[i].up, e.targets[i].down = true, false, why
}

// ObserveRecording takes whether the recording of target i works. A target that has none
// has no metric of it.
func (e *Exporter) ObserveRecording(i int, works bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.targets[i].recorded, e.targets[i].recording = true, works
}

// Ready reports whether the first scan of each target has ended, except of those that do
// not answer.
func (e *Exporter) Ready() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !slices.ContainsFunc(e.targets, func(t *target) bool { return !t.tried || t.up && !t.scanned })
}

// Write writes all metrics in the text format of Prometheus.
func (e *Exporter) Write(to io.Writer) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := &page{out: bufio.NewWriter(to)}
	p.begin("locktop_build_info", gauge, "The version of locktop and of Go; the value is 1.")
	p.number(1, "version", e.options.Version, "goversion", runtime.Version())
	for _, f := range families(e.options) {
		p.begin(f.name, f.kind, f.help)
		for _, t := range e.targets {
			if t.up || f.always {
				p.target = t.Name
				f.each(p, t)
			}
		}
	}
	return p.out.Flush()
}

// target has the metrics of one target.
type target struct {
	Target
	tried   bool // it was read at least once, or did not answer
	up      bool
	down    DownReason // why it is not up; "" if it is
	scanned bool       // a scan of it has ended

	recorded  bool // it has a recording
	recording bool // the recording works

	reading Reading // the last one, without its locks and events
	view    view    // of the last reading
	groups  map[groupID]*group
	classes classes
	blocked map[classID]time.Duration // by class with a series
	// findings has all kinds of findings without a class.
	findings findings
	dropped  int64                // events that are not in the counts of groups
	locks    map[keyspace.ID]bool // locks of Options.Locks that have been seen
	redlock  bool                 // a lock with votes has been seen
}

// groupID identifies the locks of one format in one database.
type groupID struct {
	db     int
	format string
}

// group has the metrics of the locks of one format in one database. A group stays when
// its last lock is gone: a series must not vanish and come again.
type group struct {
	gauges groupGauges
	events map[keyspace.EventKind]int64
	holds  histogram
}

// groupGauges are the numbers of a group at one moment.
type groupGauges struct {
	locks   map[keyspace.State]int
	waiters int
	oldest  time.Time // the earliest begin of a hold; zero = unknown
}

// observe takes the next reading with its view.
func (t *target) observe(r Reading, v view) {
	t.tried, t.up, t.down, t.scanned = true, true, "", t.scanned || r.Scanned()
	t.classes.admit(v.classes)
	if t.classes != nil && t.view.waiting != nil {
		t.addBlocked(r, v)
	}
	t.view = v
	for id := range v.groups {
		t.group(id)
	}
	for id, g := range t.groups {
		g.gauges = v.groups[id]
	}
	for _, e := range r.Events {
		g := t.group(groupID{e.Lock.DB, e.Lock.Format})
		g.events[e.Kind]++
		if e.Kind.Ends() && e.Held > 0 {
			g.holds.add(e.Held)
		}
	}
	t.dropped += r.EventsDropped
	for id := range v.locks {
		t.locks[id] = true
	}
	t.redlock = t.redlock || len(v.copies) > 0
	for id := range v.classes {
		t.blocked[t.classes.series(id)] += 0 // a counter begins with 0
	}
	t.findings.take(v.findings, t.classes)
	t.reading = r
	t.reading.Locks, t.reading.Events = nil, nil
}

// addBlocked adds the waiting between the last reading and the next one, which has a view. Of each
// lock as many clients count as waited at both ends of a span: from one reading or acquire to the next. None
// counts if the span is so long that nothing is known of it. One that leaves while another comes
// counts as one that stays.
func (t *target) addBlocked(next Reading, v view) {
	const longest = 10 * time.Second
	take := func(id keyspace.ID, is waiting) {
		was := t.view.waiting[id]
		is.until = keyspace.Later(is.until, was.until)
		if span := is.until.Sub(was.until); span <= longest {
			class := classID{id.DB, keyspace.ClassOf(id.Key)}
			t.blocked[t.classes.series(class)] += time.Duration(min(is.clients, was.clients)) * span
		}
		t.view.waiting[id] = is
	}
	for i := range next.Events {
		if e := &next.Events[i]; !e.Kind.Ends() {
			take(e.Lock.ID(), waitingFor(&e.Lock, e.At))
		}
	}
	for id, w := range v.waiting {
		take(id, w)
	}
}

// group returns the group with this ID, which it creates if there is none.
func (t *target) group(id groupID) *group {
	g := t.groups[id]
	if g == nil {
		g = &group{events: make(map[keyspace.EventKind]int64)}
		t.groups[id] = g
	}
	return g
}

// pass returns the end of the last scan that covers all servers of the target, and the
// longest duration of one; zero if there was none.
func (t *target) pass() (end time.Time, took time.Duration) {
	for i, n := range t.reading.Nodes {
		if i == 0 || n.ScannedAt.Before(end) {
			end = n.ScannedAt
		}
		took = max(took, n.ScanTime)
	}
	return end, took
}

// histogram counts durations. The zero value is empty.
type histogram struct {
	counts [14]int64 // of the durations that are not above each bound
	sum    time.Duration
	total  int64
}

// holdBounds are the upper bounds of the buckets of holds, in seconds.
func holdBounds() [14]float64 {
	return [14]float64{0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800, 3600}
}

func (h *histogram) add(d time.Duration) {
	h.total++
	h.sum += d
	for i, bound := range holdBounds() {
		if d.Seconds() <= bound {
			h.counts[i]++
		}
	}
}
