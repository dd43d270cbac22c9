package contention

import (
	"net"
	"slices"
	"time"

	"locktop/keyspace"
	"locktop/keyspace/holds"
)

// try is a command that MONITOR has shown: an attempt to acquire a lock, or the deletion of its
// key. MONITOR shows no replies.
type try struct {
	at      time.Time
	client  string // address of the connection
	token   string // which the lock has if the attempt succeeds
	script  bool   // a script runs it: a renewal may look the same
	deletes bool
	won     bool // it has acquired the lock
	unsure  bool // it, or that of another connection with the same token
	refused bool
}

const (
	// readJitter is the largest difference between the time of a read and that of the command
	// before it.
	readJitter = 5 * time.Millisecond
	// A client that asks no more has stopped waiting: after minPause, or after stopAfter times the
	// longest pause between two of its attempts, whichever is longer.
	minPause  = time.Second
	stopAfter = 3
	// patience is the longest time between two attempts of one wait that have the same token.
	patience = 5 * time.Second
)

// witness puts together what MONITOR and the reads show of a lock.
type witness struct {
	*account
	states    []Hold
	monitored Span
	tries     []try
	holds     []Hold
	read      int                       // states that were taken
	began     []time.Time               // of each state, when its new holder made the attempt; zero = not known
	free      bool                      // the key does not exist
	won       map[string]bool           // tokens that have acquired the lock so far
	flags     map[string]bool           // values that clients write although another one holds the lock with it
	users     map[string]map[string]int // attempts by token and connection
	attempted int
	acquired  int
}

// seen returns what MONITOR shows of a lock. An attempt has succeeded if a read shows its token
// afterwards, or if it is the first one after the key was deleted. One that finds a holder is
// refused.
func (a *account) seen(monitored Span) *witness {
	w := &witness{account: a, states: a.states(), monitored: monitored, tries: slices.Clone(a.tries), won: make(map[string]bool)}
	w.compareTokens()
	w.confirm()
	for i := range w.tries {
		t := &w.tries[i]
		w.takeReads(t.at.Add(-readJitter))
		switch {
		case t.deletes:
			w.free = !a.shared
		case t.won, w.free && !a.shared:
			w.acquire(t)
		case w.isRefused(*t):
			t.refused = true
			w.attempted += w.counts(*t)
		}
	}
	w.takeReads(monitored.Until)
	return w
}

// compareTokens finds out who uses the tokens. SET NX of the value that holds the lock is that of
// another client than its holder: the value is a flag, and names nobody. A value that one connection
// alone has tried is one if it was read before MONITOR showed anything: later, the read may be of this try.
func (w *witness) compareTokens() {
	w.flags, w.users = make(map[string]bool), make(map[string]map[string]int)
	for _, t := range w.tries {
		if w.users[t.token] == nil {
			w.users[t.token] = make(map[string]int)
		}
		w.users[t.token][t.client]++
	}
	tried := make(map[string]bool)
	var now Hold // as the reads show it
	var deleted time.Time
	read := 0
	for _, t := range w.tries {
		for ; read < len(w.states) && w.states[read].At.Before(t.at.Add(-readJitter)); read++ {
			now = w.states[read]
		}
		switch {
		case t.deletes:
			deleted = t.at
			continue
		case !t.script && now.has(t.token) && !deleted.After(now.At) && (len(w.users[t.token]) > 1 || !tried[t.token] && now.At.Before(w.tries[0].at)):
			w.flags[t.token] = true
		}
		tried[t.token] = true
	}
}

// confirm marks the attempts that a read confirms: the last one with the token of a new holder
// before the read. A flag confirms none.
func (w *witness) confirm() {
	byToken := make(map[string][]int)
	for i, t := range w.tries {
		if !t.deletes && t.token != "" {
			byToken[t.token] = append(byToken[t.token], i)
		}
	}
	var before Hold
	w.began = make([]time.Time, len(w.states)+1)
	for k, s := range w.states {
		for _, h := range s.Holders {
			if before.has(h.ID) || w.flags[h.ID] {
				continue
			}
			mine := byToken[h.ID]
			n, _ := slices.BinarySearchFunc(mine, s.At.Add(readJitter), func(i int, t time.Time) int { return w.tries[i].at.Compare(t) })
			if n > 0 {
				t := &w.tries[mine[n-1]]
				t.won, t.unsure, w.began[k] = true, len(w.users[h.ID]) > 1, t.at
			}
		}
		before = s
	}
}

// takeReads takes the reads up to a time. A read that shows an earlier state than the last
// attempt is late, also if the time of the read is a later one, as on a busy machine.
func (w *witness) takeReads(to time.Time) {
	for ; w.read < len(w.states) && !w.states[w.read].At.After(to); w.read++ {
		s := w.states[w.read]
		switch now := w.now(); {
		case slices.EqualFunc(s.Holders, now.Holders, func(a, b keyspace.Holder) bool { return a.ID == b.ID }):
		case len(s.Holders) == 0 && s.At.Sub(now.At) < readJitter:
		case !w.shared && len(s.Holders) == 0 && !w.began[w.read+1].IsZero() && !w.began[w.read+1].After(s.At): // the next holder had the lock already
		case !w.shared && len(s.Holders) == 1 && w.won[s.Holders[0].ID]: // its attempt is known
		default:
			w.holds, w.free = append(w.holds, s), len(s.Holders) == 0
		}
	}
}

// now returns the current hold.
func (w *witness) now() Hold {
	if len(w.holds) == 0 {
		return Hold{}
	}
	return w.holds[len(w.holds)-1]
}

// acquire takes a successful attempt.
func (w *witness) acquire(t *try) {
	client := t.client
	if t.unsure && !w.free {
		client = ""
	}
	t.won, w.free, w.won[t.token] = true, false, true
	w.attempted, w.acquired = w.attempted+w.counts(*t), w.acquired+w.counts(*t)
	if !w.shared {
		w.holds = append(w.holds, Hold{At: t.at, Holders: []keyspace.Holder{{ID: t.token}}, client: client})
	}
}

// counts returns 1 for a command in the span of MONITOR; those before only tell what led to it.
func (w *witness) counts(t try) int {
	if t.at.Before(w.monitored.From) {
		return 0
	}
	return 1
}

// isRefused reports whether an attempt that has not succeeded is a refused one. It is none if
// it may be a renewal, or if the lock may have been free.
func (w *witness) isRefused(t try) bool {
	now := w.now()
	if len(now.Holders) == 0 || !now.excludes(w.last) {
		return false
	}
	if now.has(t.token) && (t.script || t.client == now.client) {
		return false
	}
	renewsLost := t.script && !w.flags[t.token] && w.won[t.token] && w.last.Kind != keyspace.Reentrant
	return !renewsLost
}

// waiter identifies the attempts of one client.
type waiter struct{ token, client string }

// identify returns a function that returns who has made an attempt: its connection, whatever its
// tokens look like. Tokens that take turns on a connection, or are on several, are clients of their
// own, if most attempts of the connection repeat a token: its clients keep theirs. A connection
// with one attempt, as of redis-cli in a loop, is known by its host and its value.
func (w *witness) identify() func(try) waiter {
	tries, keeps, turns := make(map[string]int), make(map[string]int), make(map[string]bool) // by connection
	last, tried, byToken := make(map[string]string), make(map[waiter]bool), make(map[string][]try)
	for _, t := range w.tries {
		if !t.refused && !t.won {
			continue
		}
		id := waiter{t.token, t.client}
		turns[t.client] = turns[t.client] || tried[id] && last[t.client] != t.token
		tried[id], last[t.client] = true, t.token
		tries[t.client]++
		byToken[t.token] = append(byToken[t.token], t)
	}
	for _, all := range byToken {
		for i, t := range all {
			if i > 0 && t.at.Sub(all[i-1].at) < patience || i+1 < len(all) && all[i+1].at.Sub(t.at) < patience {
				keeps[t.client]++
			}
		}
	}
	return func(t try) waiter {
		host, _, _ := net.SplitHostPort(t.client)
		switch c := t.client; {
		case !w.flags[t.token] && 2*keeps[c] > tries[c] && (turns[c] || len(w.users[t.token]) > 1):
			return waiter{token: t.token}
		case tries[c] == 1:
			return waiter{t.token, host}
		}
		return waiter{client: t.client}
	}
}

// asking is a wait that has not ended.
type asking struct {
	first, last try
	pause       time.Duration // the longest between two attempts
}

// stopped reports whether a client that has not asked since, or with another token than before, has
// stopped waiting at a time.
func (w *asking) stopped(at time.Time, token string) bool {
	limit := max(minPause, stopAfter*w.pause)
	if token == w.last.token {
		limit = max(limit, patience)
	}
	return at.Sub(w.last.at) > limit
}

// seenWait is a wait that attempts show, for the lock on any node.
type seenWait struct {
	holds.Wait
	lock keyspace.ID
	last try
}

// waits returns the waits that the refused attempts show, without names. A wait begins with the first refused
// attempt. It ends with a success, or with the last attempt. One that begins before the span of
// MONITOR, or so soon after its begin that the client may have asked before, is a lower bound.
func (w *witness) waits() (all []seenWait) {
	monitored := w.monitored
	who := w.identify()
	open := make(map[waiter]*asking)
	end := func(id waiter, with try, at time.Time, goesOn bool) {
		o := open[id]
		delete(open, id)
		one := seenWait{holds.Wait{Clients: 1, Source: holds.Seen, From: holds.Moment{At: o.first.at, Grade: holds.Exact}, To: holds.Moment{At: at, Grade: holds.Exact}}, w.last.ID().OnAnyNode(), with}
		if o.first.at.Sub(monitored.From) <= max(o.pause, readJitter) {
			one.From = holds.Moment{At: keyspace.Later(o.first.at, monitored.From), Grade: holds.NotAfter}
		}
		if goesOn {
			one.To.Grade = holds.NotBefore
		}
		if at.After(one.From.At) {
			all = append(all, one)
		}
	}
	for _, t := range w.tries {
		if !t.refused && !t.won {
			continue
		}
		id := who(t)
		o := open[id]
		if o != nil && o.stopped(t.at, t.token) {
			end(id, o.last, o.last.at, false)
			o = nil
		}
		switch {
		case t.won && o != nil:
			end(id, t, t.at, false)
		case t.won:
		case o == nil:
			open[id] = &asking{first: t, last: t}
		default:
			o.pause = max(o.pause, t.at.Sub(o.last.at))
			o.last = t
		}
	}
	for id, o := range open {
		if o.stopped(monitored.Until, "") {
			end(id, o.last, o.last.at, false)
		} else {
			end(id, o.last, monitored.Until, true)
		}
	}
	return all
}
