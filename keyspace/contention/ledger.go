// Package contention accounts for the time that clients wait for locks, and blames it on the
// holds that cause it. It is pure: reads of locks and commands of clients in, a report out.
package contention

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"locktop/keyspace"
)

// Source says how the waiting for a lock is known. Each source is a lower bound, so of several
// figures the largest is the best.
type Source string

// The sources.
const (
	Stored Source = "stored" // the library stores its waiters, or the server lists them
	Asked  Source = "asked"  // another client has asked for the held lock: at least one waits
	Seen   Source = "seen"   // MONITOR has shown the attempts of the waiters
)

// Ledger collects what is seen of locks. Times are on the clock of the lock's server. It is not
// safe for concurrent use.
type Ledger struct {
	formats   map[string]*keyspace.Format // by name
	locks     map[keyspace.ID]*account    // on any node
	watched   Span
	monitored Span
}

// account is what is seen of one lock.
type account struct {
	last    keyspace.Lock // as last read
	at      time.Time     // of that read
	states  []state       // in order; each differs from the one before
	waiting map[string]time.Time
	waits   []Wait // stored waiters that have left
	counted []Wait // waiters of which only the number is known
	asked   []Wait // times during which another client has asked again and again
	tries   []try  // in the order of the server
	shared  bool   // several clients may hold it at the same time
}

// state is who holds a lock from a time on, as read.
type state struct {
	at      time.Time
	holders []keyspace.Holder
}

// hold returns the hold of a state.
func (s state) hold() Hold {
	h := Hold{At: s.at}
	for _, holder := range s.holders {
		h.Tokens = append(h.Tokens, holder.ID)
		h.write = h.write || holder.Mode == keyspace.Write
	}
	return h
}

// Hold is who holds a lock until the next hold. Without Tokens it is free.
type Hold struct {
	At     time.Time
	Tokens []string
	client string // address of the connection that has acquired it; "" = not known
	write  bool   // one of them holds it for writing
}

// excludes reports whether a hold of this lock refuses all others.
func (h Hold) excludes(l keyspace.Lock) bool {
	switch l.Kind {
	case keyspace.RW:
		return h.write
	case keyspace.Semaphore:
		return l.Limit > 0 && len(h.Tokens) >= l.Limit
	default:
		return true
	}
}

// Wait is the wait of N clients for a lock.
type Wait struct {
	Waiter      string // "" if only the number is known
	From, Until time.Time
	N           int
	AtLeast     bool // it began earlier, or goes on
}

// NewLedger returns an empty ledger for locks of some formats.
func NewLedger(formats []keyspace.Format) *Ledger {
	g := &Ledger{formats: make(map[string]*keyspace.Format), locks: make(map[keyspace.ID]*account)}
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
	for _, e := range s.Events {
		g.Event(e)
	}
	g.passed(s.At)
	there := make(map[keyspace.ID]bool, len(s.Locks))
	for _, l := range s.Locks {
		there[l.ID().OnAnyNode()] = true
		g.observe(s.At, *l)
	}
	for id, a := range g.locks {
		if !there[id] {
			a.observe(s.At, gone(a.last))
		}
	}
}

// Event takes a change of a lock.
func (g *Ledger) Event(e keyspace.Event) {
	g.passed(e.At)
	l := e.Lock
	if _, still := l.Holder(e.Holder.ID); still && e.Kind.Ends() { // the lock is gone: it is as last seen
		l = gone(l)
	}
	if e.Kind == keyspace.WaiterLeft && slices.ContainsFunc(l.Waiters, func(w keyspace.Waiter) bool { return w.ID == e.Waiter.ID }) {
		l = gone(l)
	}
	g.observe(e.Ended(), l)
}

// passed takes that the locks are known up to a time.
func (g *Ledger) passed(at time.Time) {
	g.watched = Span{cmp.Or(g.watched.From, at), keyspace.Later(g.watched.Until, at)}
}

// gone returns the lock without holders and waiters.
func gone(l keyspace.Lock) keyspace.Lock {
	l.Holders, l.Waiters, l.Waiting = nil, nil, 0
	return l
}

// observe takes a lock as it was read.
func (g *Ledger) observe(at time.Time, l keyspace.Lock) {
	id := l.ID().OnAnyNode()
	a := g.locks[id]
	if a == nil {
		a = &account{waiting: make(map[string]time.Time)}
		g.locks[id] = a
	}
	a.observe(at, l)
}

func (a *account) observe(at time.Time, l keyspace.Lock) {
	at = keyspace.Later(at, a.at) // a deadline that was read late
	a.shared = a.shared || l.Kind == keyspace.RW || l.Kind == keyspace.Semaphore || len(l.Holders) > 1
	if !sameHolders(a.last.Holders, l.Holders) || len(a.states) == 0 {
		a.states = append(a.states, state{at, l.Holders})
	}
	a.count(at)
	a.ask(l)
	for id, since := range a.waiting {
		if !slices.ContainsFunc(l.Waiters, func(w keyspace.Waiter) bool { return w.ID == id }) {
			a.waits = append(a.waits, Wait{Waiter: id, From: since, Until: at, N: 1})
			delete(a.waiting, id)
		}
	}
	for _, w := range l.Waiters {
		if _, known := a.waiting[w.ID]; !known {
			a.waiting[w.ID] = at
		}
	}
	a.last, a.at = l, at
}

// count adds the time since the last read for the waiters without a name.
func (a *account) count(at time.Time) {
	if n := a.last.WaiterCount() - len(a.last.Waiters); n > 0 && at.After(a.at) {
		a.counted = extended(a.counted, Wait{From: a.at, Until: at, N: n})
	}
}

// ask adds the time between two requests of another client for the held lock.
func (a *account) ask(l keyspace.Lock) {
	before, now := a.last.AskedAt, l.AskedAt
	if !before.IsZero() && now.After(before) && now.Sub(before) <= keyspace.AskedWithin {
		a.asked = extended(a.asked, Wait{From: before, Until: now, N: 1})
	}
}

// extended returns the waits with one more, which continues the last one if it can.
func extended(all []Wait, w Wait) []Wait {
	if i := len(all) - 1; i >= 0 && all[i].N == w.N && all[i].Until.Equal(w.From) {
		all[i].Until = w.Until
		return all
	}
	return append(all, w)
}

func sameHolders(a, b []keyspace.Holder) bool {
	return slices.EqualFunc(a, b, func(x, y keyspace.Holder) bool { return x.ID == y.ID && x.Mode == y.Mode })
}

// stored returns the waits of the stored waiters. A waiter that was there at the
// first read, or is there still, has waited for longer.
func (a *account) stored(watched Span) []Wait {
	all := slices.Concat(a.waits, a.counted)
	for id, since := range a.waiting {
		all = append(all, Wait{Waiter: id, From: since, Until: watched.Until, N: 1, AtLeast: true})
	}
	for i := range all {
		all[i].AtLeast = all[i].AtLeast || !all[i].From.After(watched.From) || all[i].Waiter == ""
	}
	return all
}

// Monitored takes that MONITOR shows all commands of a span. Only they count; commands before it
// tell who has waited before.
func (g *Ledger) Monitored(s Span) { g.monitored = s }

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
