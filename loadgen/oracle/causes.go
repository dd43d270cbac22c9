package oracle

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"locktop/internal/humanize"
)

// Cause is something outside a lock that may explain a violation.
type Cause string

// Causes: faults that a generator injects, and below what it notices.
const (
	Crash        Cause = "crash"
	Freeze       Cause = "freeze"
	Cut          Cause = "cut"
	CutReplies   Cause = "cut-replies"
	Slow         Cause = "slow"
	Flush        Cause = "flush"
	Steal        Cause = "steal"
	Pause        Cause = "pause"
	Stop         Cause = "stop"
	NodeDown     Cause = "node-down"
	RestartEmpty Cause = "node-restart-empty"
	Failover     Cause = "failover"

	Stalled    Cause = "stall"     // the process of the clients did not run
	Unanswered Cause = "outage"    // a server did not answer
	Restarted  Cause = "restart"   // a server was restarted or replaced
	LostKeys   Cause = "lost keys" // the servers lost all keys
)

var (
	ofClients = []Cause{Freeze, Cut, CutReplies, Slow, Crash}
	ofServers = []Cause{Pause, Stop, NodeDown, RestartEmpty, Failover, Unanswered, Restarted}
)

// rule says which violations a cause can produce although the lock keeps its promises. A
// cause without a rule explains nothing.
type rule struct {
	causes   []Cause
	explains []Violation
	deletes  bool          // the causes delete locks, and with them the order of holds before and after
	majority bool          // the causes together must strike a majority of the servers of a quorum
	after    time.Duration // how long after its end the cause may still have effects
	rejoin   time.Duration // how long after its end the waiting clients may need to be in the queue of a fair lock again
	why      string
}

// settling is how long connections may take to recover from a cause.
const settling = 500 * time.Millisecond

// rejoining is how long a library may retry until a waiting client is connected, and in the queue
// of a fair lock again.
const rejoining = 10 * time.Second

// rules are all excuses. A cause explains a violation on the key, the client or the servers
// that it strikes, and only if it was at work between the last moment at which everything
// was certainly right and the violation; see [suspect]. What no rule lists is a violation of
// the lock.
var rules = []rule{{
	causes:   []Cause{Flush, Steal, Failover, RestartEmpty, Restarted, LostKeys},
	explains: []Violation{Overlap, FenceOrder, ForeignUnlock},
	deletes:  true,
	why:      "the lock or the counter was deleted while a client had it",
}, {
	causes:   []Cause{Flush, Steal, LostKeys},
	explains: []Violation{UnexplainedLoss, Overtaken},
	rejoin:   rejoining,
	why:      "the lock or its queue was deleted",
}, {
	causes:   slices.Concat(ofClients, ofServers),
	explains: []Violation{UnexplainedLoss, Overtaken},
	majority: true,
	after:    settling,
	rejoin:   rejoining,
	why:      "the client did not run, or did not reach its servers, to renew its lease or to claim its turn",
}, {
	causes:   ofClients,
	explains: []Violation{ForeignUnlock},
	majority: true,
	after:    settling,
	why:      "the client may have lost its lock by itself",
}, {
	causes:   []Cause{Stalled},
	explains: []Violation{UnexplainedLoss, Overtaken, Unnotified},
	after:    settling,
	rejoin:   settling,
	why:      "no client ran",
}, {
	causes:   []Cause{Freeze},
	explains: []Violation{Unnotified},
	after:    settling,
	why:      "a client that does not run notifies nobody",
}, {
	causes:   slices.Concat(ofClients, ofServers, []Cause{Flush, Steal, Stalled}),
	explains: []Violation{Silent},
	after:    rejoining,
	why:      "the client or its server did not run",
}}

// Silent is what [Oracle.Excuses] asks about: a client process did not answer in time. It is
// no violation of a lock.
const Silent Violation = "silent"

// Everybody is the number of all clients, or of all keys.
const Everybody = -1

// Trouble is a period in which a cause outside the lock was at work.
type Trouble struct {
	Cause    Cause
	Client   int // from 0, or Everybody
	Key      int // from 0, or Everybody
	Server   int // of a quorum, from 1; 0 = all
	From, To time.Time

	lasting bool
}

// is reports whether a trouble has this cause on this client and this key.
func (t *Trouble) is(cause Cause, client, key int) bool {
	return t.Cause == cause && t.Client == client && t.Key == key
}

// TroubleBegan records a trouble that lasts until [Oracle.TroubleEnded]. For a cause that
// deletes locks, the caller must call it before the deletion.
func (o *Oracle) TroubleBegan(t Trouble) {
	o.mu.Lock()
	defer o.mu.Unlock()
	t.lasting = true
	o.troubles = append(o.troubles, t)
}

// TroubleEnded records the end of the oldest trouble of this cause, client and key that
// lasts. It does nothing if there is none.
func (o *Oracle) TroubleEnded(cause Cause, client, key int, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if i := o.lasting(cause, client, key); i >= 0 {
		o.troubles[i].To, o.troubles[i].lasting = now, false
	}
}

// TroubleUndone forgets the oldest trouble of this cause, client and key that lasts: it had
// no effect.
func (o *Oracle) TroubleUndone(cause Cause, client, key int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if i := o.lasting(cause, client, key); i >= 0 {
		o.troubles = slices.Delete(o.troubles, i, i+1)
	}
}

func (o *Oracle) lasting(cause Cause, client, key int) int {
	return slices.IndexFunc(o.troubles, func(t Trouble) bool { return t.lasting && t.is(cause, client, key) })
}

// Troubled records a trouble that is over, or that deletes locks now: then no client may acquire a
// lock before the deletion is over. Two of the same kind with a short time between them become one.
func (o *Oracle) Troubled(t Trouble) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range o.troubles {
		last := &o.troubles[len(o.troubles)-1-i]
		if !last.lasting && last.Server == t.Server && last.is(t.Cause, t.Client, t.Key) {
			if t.From.Sub(last.To) < settling && !t.Cause.Deletes() {
				last.To = t.To
				return
			}
			break
		}
	}
	o.troubles = append(o.troubles, t)
}

// Deletes reports whether the cause deletes locks: no lock can then prevent an overlap, and its
// time must stay exact.
func (c Cause) Deletes() bool {
	return slices.ContainsFunc(rules, func(r rule) bool { return r.deletes && slices.Contains(r.causes, c) })
}

// suspect is a possible violation. A trouble may explain it, and may become known later.
type suspect struct {
	violation Violation
	since, at time.Time // the last moment at which everything was certainly right, and when it was not
	joined    time.Time // of an overtaken client that could join the queue then: it was in the queue when the other one asked
	client    int       // whose troubles explain it; Everybody = those of no client
	keys      []int     // whose troubles explain it
	evidence  *Evidence // nil: it is counted and reported already
}

// Settle counts the suspects up to until that no trouble explains.
func (o *Oracle) Settle(until time.Time) {
	o.mu.Lock()
	var violations []suspect
	o.suspects = slices.DeleteFunc(o.suspects, func(s suspect) bool {
		if s.at.After(until) {
			return false
		}
		switch explained := o.explained(s); {
		case explained && s.violation == Overlap:
			o.found.Overlap.Excused++
		case !explained && s.evidence != nil:
			violations = append(violations, s)
		}
		return true
	})
	o.mu.Unlock()
	for _, s := range violations {
		o.keep(*s.evidence)
	}
}

// suspect keeps a possible violation of a holder, or of a client that waits, until Settle.
func (o *Oracle) suspect(s suspect) {
	s.violation, s.at = s.evidence.Violation, s.evidence.At
	o.mu.Lock()
	defer o.mu.Unlock()
	o.suspects = append(o.suspects, s)
}

// excused counts the suspect as explained if a known trouble explains it.
func (o *Oracle) excused(s suspect) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.explained(s)
}

// explained is excused with o.mu held.
func (o *Oracle) explained(s suspect) bool {
	t, why := o.explain(s)
	if t == nil {
		return false
	}
	k := [2]string{string(s.violation), string(t.Cause)}
	e := o.explanations[k]
	if e == nil {
		e = &explanation{Explained: Explained{Violation: s.violation, Cause: t.Cause, Why: why}, clients: make(map[int]bool)}
		o.explanations[k] = e
	}
	e.Count++
	if t.Client != Everybody {
		e.clients[t.Client] = true
		e.Client, e.Clients = cmp.Or(e.Client, ClientLabel(t.Client+1)), len(e.clients)
	}
	return true
}

// explain returns the trouble that can have caused a suspect, and why; nil if there is none.
// o.mu must be held.
func (o *Oracle) explain(s suspect) (by *Trouble, why string) {
	for _, r := range rules {
		if !slices.Contains(r.explains, s.violation) {
			continue
		}
		struck := make(map[int]bool)
		for i := range o.troubles {
			t := &o.troubles[len(o.troubles)-1-i]
			if !slices.Contains(r.causes, t.Cause) || !t.strikes(s, r) {
				continue
			}
			struck[t.Server] = true
			if !r.majority || t.Server == 0 || len(struck) > o.config.Servers/2 {
				return t, r.why
			}
		}
	}
	return nil, ""
}

// strikes reports whether the trouble concerns a suspect, and was at work, or had effects that
// the rule knows, between since and the violation.
func (t *Trouble) strikes(s suspect, r rule) bool {
	return (t.Client == Everybody || t.Client == s.client) && (t.Key == Everybody || slices.Contains(s.keys, t.Key)) &&
		!t.From.After(s.at) && (t.lasting || !t.To.Add(r.after).Before(s.since) && !t.To.Add(r.rejoin).Before(s.joined))
}

// span is a time, longer than the patience, in which clients waited for a key that no
// client had.
type span struct {
	from, to time.Time
	waits    []wait // of these clients
}

// stuckSpans returns the times in which keys were stuck, also those that are stuck now. It leaves out
// keys that a client has forgotten to release.
func (o *Oracle) stuckSpans(now time.Time) []span {
	var all []span
	for s := range o.locked {
		if s.forgot {
			continue
		}
		all = append(all, s.stuck...)
		if unheld := o.unheldFor(s, now); unheld > o.config.Patience {
			all = append(all, span{now.Add(-unheld), now, slices.Clone(s.waits)})
		}
	}
	return all
}

// calm returns the longest time of a span in which no trouble can have kept a waiting client from a
// free key: none of all clients, and none of its own. A crash cannot: what the client held is free after the TTL.
func (o *Oracle) calm(s span) time.Duration {
	o.mu.Lock()
	all := slices.Clone(o.troubles)
	o.mu.Unlock()
	all = slices.DeleteFunc(all, func(t Trouble) bool {
		return slices.Contains([]Cause{Crash, Flush, Steal}, t.Cause) || t.From.After(s.to)
	})
	slices.SortFunc(all, func(a, b Trouble) int { return a.From.Compare(b.From) })
	longest := s.calm(all)
	for _, w := range s.waits {
		own := slices.DeleteFunc(slices.Clone(all), func(t Trouble) bool { return t.Client != Everybody && t.Client != w.client })
		part := span{from: later(s.from, w.from), to: s.to}
		if !w.to.IsZero() {
			part.to = w.to
		}
		longest = max(longest, part.calm(own))
	}
	return longest
}

// calm returns the longest time of a span without one of the troubles, which are in the order of their begins.
func (s span) calm(troubles []Trouble) time.Duration {
	longest := time.Duration(0)
	for _, one := range troubles {
		longest = max(longest, one.From.Sub(s.from))
		if one.lasting {
			return longest
		}
		s.from = later(s.from, one.To)
	}
	return max(longest, s.to.Sub(s.from))
}

// causeOf names the known cause of an overlap, "" if there is none.
func (o *Oracle) causeOf(earliest []*Hold, second *Hold) string {
	o.mu.Lock()
	t, _ := o.explain(o.doubtful(earliest, second))
	o.mu.Unlock()
	if t != nil {
		return string(t.Cause)
	}
	for _, v := range []*Hold{earliest[0], second} {
		if cause := v.knownCause(); cause != "" {
			return cause
		}
	}
	return ""
}

// knownCause names the fault and the flaw of a holder. section.mu must be held.
func (v *Hold) knownCause() string {
	switch {
	case v.fault != "" && v.Flaw != "":
		return v.fault + ", " + v.Flaw
	case v.fault != "":
		return v.fault
	}
	return v.Flaw
}

// Excuses reports whether a trouble may be the reason that the process of a client has not
// answered since.
func (o *Oracle) Excuses(client int, since, now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	t, _ := o.explain(suspect{violation: Silent, since: since, at: now, client: client})
	return t != nil
}

// Losses returns the troubles that deleted locks, for [History.Cut].
func (o *Oracle) Losses() []Trouble {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(o.troubles), func(t Trouble) bool { return !t.Cause.Deletes() })
}

// Explained counts the suspects of one kind that are no violation of the lock, because one
// cause outside the lock explains them.
type Explained struct {
	Violation Violation `json:"violation"`
	Cause     Cause     `json:"cause"`
	Why       string    `json:"why"`
	Count     int64     `json:"violation_count"`
	Client    string    `json:"client,omitempty"`      // the first one that the cause struck
	Clients   int       `json:"client_count,omitzero"` // how many clients it struck; 0 = none in particular
}

type explanation struct {
	Explained
	clients map[int]bool
}

// String describes the suspects and the cause, like "12 lost leases (freeze of client-1)".
func (e Explained) String() string {
	of := ""
	switch {
	case e.Clients == 1:
		of = " of " + e.Client
	case e.Clients > 1:
		of = fmt.Sprintf(" of %s clients", humanize.Count(e.Clients))
	}
	kind, _ := e.Violation.Kind()
	return fmt.Sprintf("%s (%s%s)", humanize.Plural(e.Count, kind.Suspect), e.Cause, of)
}

// Excuses describes in one sentence how many suspects were explained and by what. It is
// empty if there were none.
func (v Violations) Excuses() string {
	var all []string
	total := int64(0)
	for _, e := range v.Explained {
		all = append(all, e.String())
		total += e.Count
	}
	if total == 0 {
		return ""
	}
	return fmt.Sprintf("%s explained: %s.", humanize.Plural(total, "suspect"), strings.Join(all, ", "))
}

// addExplained adds what another oracle has explained. The clients of two oracles are
// different ones.
func (v *Violations) addExplained(others []Explained) {
	v.Explained = slices.Clone(v.Explained)
	for _, other := range others {
		i := slices.IndexFunc(v.Explained, func(e Explained) bool { return e.Violation == other.Violation && e.Cause == other.Cause })
		if i < 0 {
			v.Explained = append(v.Explained, other)
			continue
		}
		e := &v.Explained[i]
		e.Count += other.Count
		e.Client, e.Clients = cmp.Or(e.Client, other.Client), e.Clients+other.Clients
	}
	sortExplained(v.Explained)
}

func sortExplained(all []Explained) {
	slices.SortFunc(all, func(a, b Explained) int {
		return cmp.Or(a.Violation.rank()-b.Violation.rank(), cmp.Compare(a.Cause, b.Cause))
	})
}
