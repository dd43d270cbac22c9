package metrics

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"locktop/keyspace"
)

// view has the numbers of one reading.
type view struct {
	groups   map[groupID]groupGauges
	findings findings
	copies   map[copyState]int        // of Redlocks
	locks    map[keyspace.ID]lockView // of Options.Locks
	classes  map[classID]classGauges
	waiting  map[keyspace.ID]waiting // by lock of a class; without the locks for which no client waits
}

// waiting is how many clients wait for a lock, and until when they are known to: a client that only
// asks until its last request.
type waiting struct {
	clients int
	until   time.Time
}

// waitingFor returns how many clients wait at least for a lock at a time.
func waitingFor(l *keyspace.Lock, at time.Time) waiting {
	if l.WaiterCount() == 0 && l.Asked(at) {
		return waiting{1, l.AskedAt}
	}
	return waiting{l.WaiterCount(), at}
}

// lockView is a lock of Options.Locks.
type lockView struct {
	held            bool
	deadline, since time.Time // zero = there is none, or it is unknown
}

// copyState is what a server has of a Redlock.
type copyState string

// States of copies.
const (
	copyHeld        copyState = "held"        // the token that most servers have
	copyOther       copyState = "other"       // another token
	copyMissing     copyState = "missing"     // no token
	copyUnreachable copyState = "unreachable" // the server did not answer
)

// newView counts what r shows.
func newView(r Reading, o Options) view {
	v := view{
		groups: make(map[groupID]groupGauges), findings: make(findings), copies: make(map[copyState]int),
		locks: make(map[keyspace.ID]lockView), classes: make(map[classID]classGauges), waiting: make(map[keyspace.ID]waiting),
	}
	blind := make(map[string]bool)
	for _, n := range r.Nodes {
		blind[n.Addr] = n.AskBlind != ""
	}
	for _, l := range r.Locks {
		v.addLock(l, r.At)
		v.addCopies(l.Votes)
		if slices.Contains(o.Locks, l.Key) {
			v.addListed(l)
		}
		if o.Classes {
			id := classID{l.DB, keyspace.ClassOf(l.Key)}
			c := v.classes[id]
			c.locks++
			c.waiters += l.WaiterCount()
			if o.hides(l.Format) {
				c.hiding++
			}
			if w := waitingFor(l, r.At); w.clients > 0 {
				v.waiting[l.ID()] = w
			}
			if len(l.Holders) > 0 && !blind[l.Node] {
				c.held++
				c.asked += min(l.LeastWaiters(r.At), 1)
			}
			v.classes[id] = c
		}
	}
	for _, f := range keyspace.Findings(r.Snapshot) {
		class := noClass
		if o.Classes {
			class = classID{f.Lock.DB, keyspace.ClassOf(f.Lock.Key)}
		}
		v.findings.add(f.Problem, class, 1)
	}
	for _, f := range keyspace.ServerFindings(r.Snapshot) {
		v.findings.add(f.Problem, noClass, 1)
	}
	return v
}

// addLock counts a lock in its group.
func (v *view) addLock(l *keyspace.Lock, now time.Time) {
	id := groupID{l.DB, l.Format}
	g, ok := v.groups[id]
	if !ok {
		g.locks = make(map[keyspace.State]int)
	}
	g.locks[l.State(now)]++
	g.waiters += l.WaiterCount()
	g.oldest = keyspace.Earliest(g.oldest, since(l))
	v.groups[id] = g
}

// addListed adds a lock of Options.Locks. Of several servers with the key, one holder is
// enough.
func (v *view) addListed(l *keyspace.Lock) {
	id := l.ID().OnAnyNode()
	if len(l.Holders) > 0 {
		v.locks[id] = lockView{held: true, deadline: l.Expires, since: since(l)}
	} else if !v.locks[id].held {
		v.locks[id] = lockView{}
	}
}

// addCopies counts the copies of a Redlock.
func (v *view) addCopies(votes []keyspace.Vote) {
	if len(votes) == 0 {
		return
	}
	most := mostFrequent(votes)
	for _, vote := range votes {
		switch {
		case vote.Unreachable:
			v.copies[copyUnreachable]++
		case vote.Token == "":
			v.copies[copyMissing]++
		case vote.Token == most:
			v.copies[copyHeld]++
		default:
			v.copies[copyOther]++
		}
	}
}

// mostFrequent returns the token that most servers have; of several, the first one.
func mostFrequent(votes []keyspace.Vote) string {
	counts := make(map[string]int)
	for _, v := range votes {
		counts[v.Token]++
	}
	delete(counts, "")
	return slices.MaxFunc(votes, func(a, b keyspace.Vote) int { return counts[a.Token] - counts[b.Token] }).Token
}

// since returns the earliest begin of a hold of l, or when it was first seen; zero if
// neither is known.
func since(l *keyspace.Lock) (first time.Time) {
	for _, h := range l.Holders {
		first = keyspace.Earliest(first, keyspace.Earliest(h.Since, h.Seen))
	}
	return first
}

// maxClasses limits the classes. Each class is a series, which Prometheus keeps.
const maxClasses = 200

// otherClass counts the locks of the classes without a series of their own, and those of
// a class with this name.
const otherClass = "other"

// classID identifies the locks of one class in one database.
type classID struct {
	db   int
	name string
}

// noClass is the class of a finding of a server, and of all findings without Options.Classes.
var noClass = classID{db: AllDatabases}

// classGauges are the numbers of a class at one moment.
type classGauges struct {
	locks, waiters int
	hiding         int // locks of formats that do not show waiters
	held, asked    int // held locks on servers that show requests, and those of them with one
}

// classes are the classes with a series of their own; nil if classes are not counted.
type classes map[classID]bool

// admit gives classes that are new a series of their own, the largest first, as long as
// there are not too many. A class keeps its series: one that comes and goes would make
// sums by class wrong.
func (c classes) admit(now map[classID]classGauges) {
	if c == nil {
		return
	}
	fresh := slices.Collect(maps.Keys(now))
	fresh = slices.DeleteFunc(fresh, func(id classID) bool { return c[id] })
	slices.SortFunc(fresh, func(a, b classID) int {
		return cmp.Or(cmp.Compare(now[b].locks, now[a].locks), a.compare(b))
	})
	for _, id := range fresh[:min(len(fresh), max(0, maxClasses-len(c)))] {
		c[id] = true
	}
}

// series returns the class in whose series a class is counted: itself, or other.
func (c classes) series(id classID) classID {
	if id == noClass || c[id] {
		return id
	}
	return classID{id.db, otherClass}
}

// findings counts findings by their problem without its remedy, and by the class of their lock.
type findings map[keyspace.Problem]map[classID]int

func (f findings) add(kind keyspace.Problem, class classID, n int) {
	kind.Remedy = ""
	if f[kind] == nil {
		f[kind] = make(map[classID]int)
	}
	f[kind][class] += n
}

// take replaces the numbers by those of a reading. A class that had a finding keeps its
// series of this kind.
func (f findings) take(now findings, c classes) {
	for _, byClass := range f {
		for class := range byClass {
			byClass[class] = 0
		}
	}
	for kind, byClass := range now {
		for class, n := range byClass {
			f.add(kind, c.series(class), n)
		}
	}
}

func (id classID) compare(other classID) int {
	return cmp.Or(cmp.Compare(id.db, other.db), strings.Compare(id.name, other.name))
}

// DownReason is why a target does not answer. Those that Prometheus has for its own
// connections have the same names.
type DownReason string

// Reasons. The first ones are found before the server has a connection, so they are those
// of a network that does not work, too.
const (
	Resolution     DownReason = "resolution"      // the name of the server has no address
	Unreachable    DownReason = "unreachable"     // the network reports that there is no way to the server
	ConnectTimeout DownReason = "connect-timeout" // there was no answer to the request for a connection
	Refused        DownReason = "refused"         // the machine answers, but nothing listens on the port
	ReplyTimeout   DownReason = "reply-timeout"   // there is a connection, but no reply
	Closed         DownReason = "closed"          // the connection was closed
	TLS            DownReason = "tls"             // no agreement on TLS, such as a wrong certificate
	Rejected       DownReason = "rejected"        // the server rejects the user or the password
	ErrorReply     DownReason = "error-reply"     // the server replies with another error, such as LOADING
	OtherReason    DownReason = "other"
)

// DownReasons lists all reasons.
func DownReasons() []DownReason {
	return []DownReason{Resolution, Unreachable, ConnectTimeout, Refused, ReplyTimeout, Closed, TLS, Rejected, ErrorReply, OtherReason}
}
