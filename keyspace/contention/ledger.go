// Package contention accounts for the time that clients wait for locks, and blames it on the
// holds that cause it. It is pure: reads of locks and commands of clients in, a report out.
package contention

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"locktop/keyspace"
	"locktop/keyspace/holds"
)

// Ledger collects what is seen of locks. Times are on the clock of the lock's server. It is not
// safe for concurrent use.
type Ledger struct {
	formats   map[string]*keyspace.Format // by name
	past      holds.Ledger
	locks     map[keyspace.ID]*account // on any node
	before    keyspace.Snapshot        // the last one
	called    map[string]string        // names of connections, by address
	watched   Span
	monitored Span
}

// account is what is seen of one lock, besides its holds and waits.
type account struct {
	*holds.Account
	last   keyspace.Lock // as last read
	since  time.Time     // of the first read
	tries  []try         // in the order of the server
	shared bool          // several clients may hold it at the same time
}

// Hold is who holds a lock until the next hold. Without holders it is free.
type Hold struct {
	At      time.Time
	Holders []keyspace.Holder
	client  string // address of the connection that has acquired it; "" = not known
}

// has reports whether a token holds the lock.
func (h Hold) has(token string) bool {
	return slices.ContainsFunc(h.Holders, func(one keyspace.Holder) bool { return one.ID == token })
}

// excludes reports whether a hold of this lock refuses all others.
func (h Hold) excludes(l keyspace.Lock) bool {
	switch l.Kind {
	case keyspace.RW:
		return slices.ContainsFunc(h.Holders, func(one keyspace.Holder) bool { return one.Mode == keyspace.Write })
	case keyspace.Semaphore:
		return l.Limit > 0 && len(h.Holders) >= l.Limit
	default:
		return true
	}
}

// NewLedger returns an empty ledger for locks of some formats.
func NewLedger(formats []keyspace.Format) *Ledger {
	g := &Ledger{formats: make(map[string]*keyspace.Format), called: make(map[string]string), locks: make(map[keyspace.ID]*account)}
	g.past = holds.Ledger{Most: math.MaxInt, OfLock: math.MaxInt, All: true}
	for i := range formats {
		f := &formats[i]
		if known := g.formats[f.Name]; known == nil || known.Attempts == nil { // of several types, that of strings
			g.formats[f.Name] = f
		}
	}
	return g
}

// Snapshot takes all locks as they are known at the time of s, and the events before. A lock
// that is missing is free.
func (g *Ledger) Snapshot(s keyspace.Snapshot) {
	for i := range s.Events {
		e := &s.Events[i]
		g.passed(e.At)
		g.observe(e.Ended(), &e.Lock)
		g.past.Event(e)
	}
	g.passed(s.At)
	for _, l := range s.Locks {
		g.observe(s.At, l)
	}
	g.past.State(keyspace.DeltaOf(g.before, s))
	g.before = s
}

// passed takes that the locks are known up to a time.
func (g *Ledger) passed(at time.Time) {
	g.watched = Span{cmp.Or(g.watched.From, at), keyspace.Later(g.watched.Until, at)}
}

// observe takes a lock as it was read.
func (g *Ledger) observe(at time.Time, l *keyspace.Lock) {
	id := l.ID().OnAnyNode()
	a := g.locks[id]
	if a == nil {
		a = &account{Account: g.past.Account(id), since: at}
		g.locks[id] = a
	}
	a.shared = a.shared || l.Kind == keyspace.RW || l.Kind == keyspace.Semaphore || len(l.Holders) > 1
	a.last = *l
}

// states returns who held the lock, from each change on, as the reads show it.
func (a *account) states() (all []Hold) {
	type change struct {
		at    time.Time
		hold  *holds.Hold
		begin bool
	}
	var changes []change
	for _, h := range a.Holds {
		began, _ := h.From.Latest()
		changes = append(changes, change{keyspace.Later(began, a.since), h, true})
		if ended, ok := h.To.Latest(); ok {
			changes = append(changes, change{keyspace.Later(ended, a.since), h, false})
		}
	}
	slices.SortStableFunc(changes, func(a, b change) int { return a.at.Compare(b.at) })
	if len(changes) == 0 || changes[0].at.After(a.since) {
		all = append(all, Hold{At: a.since})
	}
	var now []keyspace.Holder
	for i, c := range changes {
		now = slices.DeleteFunc(slices.Clone(now), func(h keyspace.Holder) bool { return h.ID == c.hold.Holder.ID })
		if c.begin {
			now = append(now, c.hold.Holder)
		}
		if i+1 == len(changes) || changes[i+1].at.After(c.at) {
			all = append(all, Hold{At: c.at, Holders: now})
		}
	}
	return all
}

// waitsBy returns the waits that a source shows. A waiter that was there at the first read, or is
// there still, has waited for longer.
func (a *account) waitsBy(source holds.Source, watched Span) (all []holds.Wait) {
	for w := range a.Waits {
		w.From.At = w.Seen
		part, ok := w.In(watched.From, watched.Until)
		switch {
		case w.Source != source || !ok:
			continue
		case source == holds.Asked: // how long it lasted is not told
			part.From.Grade, part.To.Grade = holds.Exact, holds.Exact
		case w.Waiter == "":
			part.From.Grade = holds.NotAfter
		}
		all = append(all, part)
	}
	return all
}

// Monitored takes that MONITOR shows all commands of a span. Only they count; commands before it
// tell who has waited before.
func (g *Ledger) Monitored(s Span) { g.monitored = s }

// Clients takes a list of the connections of a server: their names are those of the clients. A name
// that several connections have stands behind the address.
func (g *Ledger) Clients(list []keyspace.Client) {
	uses := make(map[string]int)
	for _, c := range list {
		uses[c.Name]++
	}
	for _, c := range list {
		switch {
		case c.Name == "":
		case uses[c.Name] == 1:
			g.called[c.Addr] = c.Name
		default:
			g.called[c.Addr] = c.Addr + " " + c.Name
		}
	}
}

// deletions are the commands that delete a key, whatever its type.
var deletions = []string{"del", "unlink", "getdel", "delex"}

// Commands lists the commands by which clients acquire and delete locks, in lower case.
func Commands(formats []keyspace.Format) []string {
	all := slices.Concat(deletions, keyspace.ScriptCommands())
	for _, f := range formats {
		for _, shape := range f.Attempts {
			if shape.Command != keyspace.AnyScript {
				all = append(all, shape.Command)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Command takes a command that the server has run, with its arguments. client is the address of
// the connection; "" = a script has run it. Commands are in the order of the server. It ignores
// a command that has no key of a lock that was read before, and one that is neither an attempt
// to acquire it nor deletes it.
func (g *Ledger) Command(at time.Time, client string, db int, args []string) {
	if len(args) == 0 {
		return
	}
	name := strings.ToLower(args[0])
	deletes, script := slices.Contains(deletions, name), slices.Contains(keyspace.ScriptCommands(), name)
	for i, arg := range args[1:] {
		a := g.locks[keyspace.ID{DB: db, Key: arg}]
		if a == nil || slices.Contains(args[1:i+1], arg) {
			continue
		}
		if deletes {
			a.tries = append(a.tries, try{at: at, deletes: true})
			continue
		}
		f := g.formats[a.last.Format]
		if f == nil || client == "" {
			continue
		}
		if token, ok := f.Attempt(args, arg); ok && !a.triedJustNow(at, client, token) {
			a.tries = append(a.tries, try{at: at, client: client, token: token, script: script})
		}
	}
}

// sameTry is the longest time between two commands of one attempt: EVALSHA without the script
// and EVAL with it, or a quick SET NX before the script.
const sameTry = 2 * time.Millisecond

// triedJustNow reports whether a command belongs to the attempt before. After a deletion of the
// key it may succeed, and is one of its own.
func (a *account) triedJustNow(at time.Time, client, token string) bool {
	for _, t := range slices.Backward(a.tries) {
		if t.deletes || at.Sub(t.at) > sameTry {
			return false
		}
		if t.client == client && t.token == token {
			return true
		}
	}
	return false
}
