package contention

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sort"
	"time"

	"locktop/keyspace"
	"locktop/keyspace/holds"
)

// Report is what a [Ledger] has seen.
type Report struct {
	Watched   Span      // when the locks were read
	Monitored Span      // when MONITOR ran; zero = it did not
	Classes   []Class   // those with the most waiting first
	Blames    []Blame   // those with the most waiting first
	Waits     []Blocked // by lock, holder and waiter, in this order
	// Findings are the deadlocks at the end, also of clients that MONITOR shows, and the locks that owners acquire in different orders.
	Findings []keyspace.Finding
	Orders   []keyspace.Step // in which owners acquire locks; set by the caller
}

// Span is a time on the clock of a server.
type Span struct{ From, Until time.Time }

// Duration returns how long the span lasts.
func (s Span) Duration() time.Duration { return s.Until.Sub(s.From) }

// Class is the contention for the locks whose keys differ in IDs only.
type Class struct {
	DB          int
	Name        string
	Locks       int           // that were seen
	Held        float64       // share of the time during which a lock of the class is held, on average; NaN = it was watched for no time
	Source      holds.Source  // how the waiting is known; "" = none was seen
	MostWaiting int           // the most clients that waited at the same time
	Blocked     float64       // seconds of waiting per second: clients that wait, on average
	Waited      time.Duration // sum of all waits
	Attempts    int           // that MONITOR has shown; 0 = it has shown none
	Acquired    int           // those that succeeded
	Worst       string        // the holder that is to blame for most of the waiting; "" = not known
	WorstShare  float64       // its share of the waiting
	P50, P99    Quantile      // of the waits
}

// Quantile is a quantile of waits. AtLeast says that it may be longer, because some waits began
// before the watch or still go on.
type Quantile struct {
	time.Duration
	AtLeast bool
}

// Blame is the waiting that one holder of a lock has caused.
type Blame struct {
	Lock    keyspace.ID
	Holder  string // "" = not known
	Source  holds.Source
	Clients int // that were blocked; those without a name count as they waited at the same time
	Total   time.Duration
	Longest time.Duration // of one wait, the part that this holder has caused
}

// Blocked is the waiting of one client for one holder of a lock.
type Blocked struct {
	Lock           keyspace.ID
	Holder, Waiter string // the waiter is "" if only the number is known
	Waited         time.Duration
}

// Past is the contention for one lock during a time, as one source shows it.
type Past struct {
	Source   holds.Source
	Period   time.Duration
	Held     float64 // share of the time
	Waits    []holds.Wait
	Holds    []Hold // in order
	attempts int
	acquired int
}

// PerSecond returns the seconds of waiting per second.
func (f Past) PerSecond() float64 {
	if f.Period <= 0 {
		return 0
	}
	return holds.Sum(f.Waits).Total.Seconds() / f.Period.Seconds()
}

// Report returns what was seen so far. Of the waiting that several sources show, the largest
// counts: no source shows more than there is.
func (g *Ledger) Report() Report {
	r := Report{Watched: g.watched, Monitored: g.monitored}
	sums, called := make(map[classID]*Sum), make(map[string]string)
	for _, id := range slices.SortedFunc(maps.Keys(g.locks), keyspace.ID.Compare) {
		a := g.locks[id]
		f, names := g.judge(a)
		if last := len(f.Holds) - 1; last >= 0 {
			for _, h := range f.Holds[last].Holders {
				called[h.Name()] = names.holder(f.Holds[last], h.ID)
			}
		}
		class := classID{id.DB, keyspace.ClassOf(id.Key)}
		if sums[class] == nil {
			sums[class] = new(Sum)
		}
		blamed := blame(f, names)
		sums[class].add(f, blamed)
		blames, waits := summarize(a.last.ID(), f, blamed)
		r.Blames, r.Waits = append(r.Blames, blames...), append(r.Waits, waits...)
	}
	for id, sum := range sums {
		r.Classes = append(r.Classes, sum.Class(id.db, id.name))
	}
	slices.SortFunc(r.Classes, func(a, b Class) int {
		return cmp.Or(cmp.Compare(b.Blocked, a.Blocked), cmp.Compare(b.Held, a.Held), cmp.Compare(a.DB, b.DB), cmp.Compare(a.Name, b.Name))
	})
	slices.SortStableFunc(r.Blames, func(a, b Blame) int { return cmp.Compare(b.Total, a.Total) })
	for _, d := range g.Deadlocks() {
		for i := range d.Waits {
			d.Waits[i].Owner, d.Waits[i].For = cmp.Or(called[d.Waits[i].Owner], d.Waits[i].Owner), cmp.Or(called[d.Waits[i].For], d.Waits[i].For)
		}
		r.Findings = append(r.Findings, d.Finding(d.Waits[0].Lock.ID(), g.before.At))
	}
	for _, i := range g.before.Inversions {
		r.Findings = append(r.Findings, i.Finding())
	}
	return r
}

// judge returns the source that shows the most waiting for a lock, and the names of the clients.
func (g *Ledger) judge(a *account) (Past, names) {
	w := a.seen(g.monitored)
	n := g.names(w)
	best := Past{Source: holds.Stored, Period: g.watched.Duration(), Holds: w.states, Waits: a.waitsBy(holds.Stored, g.watched)}
	asked := Past{Source: holds.Asked, Period: best.Period, Holds: w.states, Waits: a.waitsBy(holds.Asked, g.watched)}
	if asked.PerSecond() > best.PerSecond() {
		best = asked
	}
	if len(a.tries) > 0 {
		seen := Past{Source: holds.Seen, Period: g.monitored.Duration(), Holds: w.holds}
		for _, one := range w.waits() {
			one.Waiter = n.of(one.last)
			seen.Waits = append(seen.Waits, one.Wait)
		}
		if seen.PerSecond() >= best.PerSecond() {
			best = seen
		}
		best.attempts, best.acquired = w.attempted, w.acquired
	}
	best.Held = heldFor(w.states, g.watched.Until).Seconds() / g.watched.Duration().Seconds()
	return best, n
}

// heldFor returns how long a lock was held up to a time.
func heldFor(states []Hold, until time.Time) (sum time.Duration) {
	for i, s := range states {
		end := until
		if i+1 < len(states) {
			end = states[i+1].At
		}
		if len(s.Holders) > 0 {
			sum += end.Sub(s.At)
		}
	}
	return sum
}

// names are the names of clients: the label of one of their tokens, the name of their connection,
// or its address.
type names struct {
	labels  map[string]string // by token, and by address
	clients map[string]string // address, by token
	called  map[string]string // name of a connection, by address
	flags   map[string]bool   // tokens that name nobody
}

func (g *Ledger) names(w *witness) names {
	n := names{make(map[string]string), make(map[string]string), g.called, w.flags}
	for _, s := range w.states {
		for _, h := range s.Holders {
			if h.Label != "" && !w.flags[h.ID] {
				n.labels[h.ID] = h.Label
			}
		}
	}
	n.nameProcesses(w.tries)
	f := g.formats[w.last.Format]
	for _, t := range w.tries {
		if t.deletes || w.flags[t.token] {
			continue
		}
		if len(w.users[t.token]) == 1 {
			n.clients[t.token] = t.client
		}
		if n.labels[t.client] == "" && f != nil {
			n.labels[t.client] = f.Label(w.last.Key, t.token, t.at)
		}
		if label := n.labels[t.token]; label != "" {
			n.labels[t.client] = label
		}
	}
	return n
}

// nameProcesses gives the tokens that are tried again and again, each time on a new connection,
// their own text as a label: the number of a process, whose address says nothing.
func (n names) nameProcesses(tries []try) {
	byToken, byClient := make(map[string]int), make(map[string]int)
	for _, t := range tries {
		byToken[t.token]++
		byClient[t.client]++
	}
	for _, t := range tries {
		switch {
		case t.deletes || t.token == "" || byToken[t.token] < 2 || n.flags[t.token]:
		case byClient[t.client] == 1 && n.labels[t.token] == "":
			n.labels[t.token] = t.token
		}
	}
}

// of names the client of an attempt.
func (n names) of(t try) string { return cmp.Or(n.labels[t.token], n.client(t.client)) }

// client names the client behind a connection.
func (n names) client(addr string) string { return cmp.Or(n.labels[addr], n.called[addr], addr) }

// holder names one holder of a hold; "" = it is not known.
func (n names) holder(h Hold, token string) string {
	name := cmp.Or(n.labels[token], n.client(cmp.Or(h.client, n.clients[token])))
	if name == "" && !n.flags[token] {
		name = token
	}
	return name
}

// blamed is a part of a wait, with the holder that has caused it.
type blamed struct {
	wait   int // index
	holder string
	waited time.Duration // of all clients of the wait
}

// blame divides each wait among the holds that were in force. While a lock is free, the hold
// before is to blame: its clients wait until they ask again. Several holders share the blame.
func blame(f Past, n names) (all []blamed) {
	var held []Hold
	for _, h := range f.Holds {
		if len(h.Holders) > 0 {
			held = append(held, h)
		}
	}
	for i, w := range f.Waits {
		first := sort.Search(len(held), func(k int) bool { return held[k].At.After(w.From.At) })
		for k := max(first-1, 0); k < len(held) && held[k].At.Before(w.To.At); k++ {
			from, until := keyspace.Later(held[k].At, w.From.At), w.To.At
			if k == 0 {
				from = w.From.At
			}
			if k+1 < len(held) && held[k+1].At.Before(until) {
				until = held[k+1].At
			}
			for _, h := range held[k].Holders {
				part := time.Duration(w.Clients) * until.Sub(from) / time.Duration(len(held[k].Holders))
				all = append(all, blamed{i, n.holder(held[k], h.ID), part})
			}
		}
	}
	return all
}

// summarize returns the blame of the holders of a lock, and of each waiter.
func summarize(id keyspace.ID, f Past, all []blamed) (blames []Blame, waits []Blocked) {
	type pair struct{ holder, waiter string }
	byHolder := make(map[string]*Blame)
	byPair := make(map[pair]time.Duration)
	byWait := make(map[blamed]time.Duration)
	for _, b := range all {
		w := f.Waits[b.wait]
		sum := byHolder[b.holder]
		if sum == nil {
			sum = &Blame{Lock: id, Holder: b.holder, Source: f.Source}
			byHolder[b.holder] = sum
		}
		sum.Total += b.waited
		one := blamed{wait: b.wait, holder: b.holder}
		byWait[one] += b.waited / time.Duration(w.Clients)
		sum.Longest = max(sum.Longest, byWait[one])
		if w.Waiter == "" {
			sum.Clients = max(sum.Clients, w.Clients)
		}
		byPair[pair{b.holder, w.Waiter}] += b.waited
	}
	for p, waited := range byPair {
		if p.waiter != "" {
			byHolder[p.holder].Clients++
		}
		waits = append(waits, Blocked{id, p.holder, p.waiter, waited})
	}
	for _, b := range byHolder {
		blames = append(blames, *b)
	}
	slices.SortFunc(blames, func(a, b Blame) int { return cmp.Compare(a.Holder, b.Holder) })
	slices.SortFunc(waits, func(a, b Blocked) int {
		return cmp.Or(cmp.Compare(a.Holder, b.Holder), cmp.Compare(a.Waiter, b.Waiter))
	})
	return blames, waits
}

// classID identifies a class.
type classID struct {
	db   int
	name string
}

// Sum adds up the locks of a class. The zero value is empty.
type Sum struct {
	class  Class   // Held is the sum of the shares so far
	best   float64 // waiting for one lock, which Source shows
	waits  []holds.Wait
	blamed map[string]time.Duration
}

// Add adds a lock whose holders have their names as tokens.
func (c *Sum) Add(f Past) { c.add(f, blame(f, names{})) }

func (c *Sum) add(f Past, all []blamed) {
	k, rate := &c.class, f.PerSecond()
	k.Locks, k.Held, k.Blocked = k.Locks+1, k.Held+f.Held, k.Blocked+rate
	k.Attempts, k.Acquired = k.Attempts+f.attempts, k.Acquired+f.acquired
	if rate > c.best {
		c.best, k.Source = rate, f.Source
	}
	c.waits = append(c.waits, f.Waits...)
	if c.blamed == nil {
		c.blamed = make(map[string]time.Duration)
	}
	for _, b := range all {
		c.blamed[b.holder] += b.waited
	}
}

// Class returns the figures of the locks so far.
func (c *Sum) Class(db int, name string) Class {
	k, all := c.class, holds.Sum(c.waits)
	k.DB, k.Name, k.Held, k.Waited, k.MostWaiting = db, name, k.Held/float64(max(1, k.Locks)), all.Total, all.Most
	var worst time.Duration
	for holder, waited := range c.blamed {
		if holder != "" && (waited > worst || waited == worst && holder < k.Worst) {
			worst, k.Worst = waited, holder
		}
	}
	if k.Waited > 0 {
		k.WorstShare = worst.Seconds() / k.Waited.Seconds()
	}
	k.P50, k.P99 = quantile(c.waits, 0.50), quantile(c.waits, 0.99)
	return k
}

// quantile returns a quantile of waits. Some are lower bounds: if they were much longer, and the
// quantile would change by more than a tenth, it may be longer.
func quantile(waits []holds.Wait, q float64) Quantile {
	const noDifference = 1.1
	least, most := make([]time.Duration, len(waits)), make([]time.Duration, len(waits))
	for i, w := range waits {
		length, atLeast := w.Length()
		if least[i], most[i] = length, length; atLeast {
			most[i] = math.MaxInt64
		}
	}
	if len(waits) == 0 {
		return Quantile{}
	}
	slices.Sort(least)
	slices.Sort(most)
	n := min(int(q*float64(len(waits))), len(waits)-1)
	return Quantile{least[n], float64(most[n]) > noDifference*float64(least[n])}
}
