package tui

import (
	"cmp"
	"hash/fnv"
	"io"
	"slices"
	"time"

	"locktop/keyspace"
	"locktop/loadgen"
	"locktop/loadgen/oracle"
)

// maxHolds is the number of holds of one lock that a timeline keeps when it discards old ones.
const maxHolds = 512

// maxAllHolds is the default number of holds that the sampled lanes of a timeline keep together:
// about 15 MB. Clients of 200,000 locks begin thousands of holds a second.
const maxAllHolds = 50_000

// historyKept is how long a timeline keeps its lanes, as long as a History keeps snapshots.
const historyKept = 10 * time.Minute

// timeline records the holds of each lock, one lane per lock. A lock that was found, and to which
// nothing has happened since, has no lane: [state.lane] makes it. Most of 200,000 locks are such.
type timeline struct {
	lanes  map[keyspace.ID]*lane
	exact  map[string]*lane // lanes of the load's keys, from its clients' events
	owners map[string]int   // numbers by owner, in order of appearance
	pruned time.Time

	most  int           // holds of all sampled lanes; 0 = maxAllHolds
	begun []keyspace.ID // locks of the holds in lanes, in the order in which they were added
	whole time.Time     // earlier holds and waits may be discarded, and with them their lanes
}

// lane is the past of one lock.
type lane struct {
	exact    bool           // from the load's events and on the local clock; otherwise sampled from snapshots
	holds    []timelineHold // in order of their start
	overlaps []overlap      // found by the load's oracle
	letters  []letter       // of its owners, the latest last
	whole    time.Time      // earlier holds and waits may be discarded

	waits   []laneWait           // that have ended, in this order
	waiting map[string]time.Time // since when clients wait, by name
	unnamed laneWait             // the clients that wait now, but whose names are not known
}

// letter is the letter of an owner in one lane.
type letter struct{ owner, n int }

// timelineHold is one hold.
type timelineHold struct {
	holder   string // holder's ID
	name     string
	owner    int       // number of the holder
	letter   int       // number of its letter and colour in this lane
	shared   bool      // other owners may hold the lock, too
	from, to time.Time // to is zero while the hold lasts
	lapsed   bool      // it ended by expiry
}

// add records a new snapshot.
func (c *timeline) add(change keyspace.Delta, events []keyspace.Event) {
	if c.lanes == nil {
		c.lanes, c.owners = map[keyspace.ID]*lane{}, map[string]int{}
	}
	for i := range events {
		c.onEvent(&events[i])
	}
	for i := range change.Locks {
		l := change.Locks[i]
		for _, v := range l.Votes {
			if v.Token != "" {
				c.owner(v.Token)
			}
		}
		if n := c.lanes[l.ID().OnAnyNode()]; n != nil || l.LeastWaiters(change.At) > 0 {
			c.lane(l, change.At).observe(l, change.At)
		}
	}
	for _, id := range change.Ended() {
		if n := c.lanes[id]; n != nil {
			n.stopWaiting(change.At)
		}
	}
	if change.At.Sub(c.pruned) > historyKept/10 {
		c.prune(change.At)
	}
}

// of returns the lane of a lock, or nil. It prefers an exact lane.
func (c *timeline) of(id keyspace.ID) *lane {
	if n := c.exact[id.Key]; n != nil {
		return n
	}
	return c.lanes[id.OnAnyNode()]
}

// apply records events of the load. newRun discards the lanes of the run before.
func (c *timeline) apply(events []loadgen.Event, newRun, several bool) {
	if newRun || c.exact == nil {
		c.exact = map[string]*lane{}
	}
	if c.owners == nil {
		c.owners = map[string]int{}
	}
	for i := range events {
		e := &events[i]
		if e.Key == "" {
			continue
		}
		n := c.exact[e.Key]
		if n == nil {
			n = &lane{exact: true, whole: e.At}
			c.exact[e.Key] = n
		}
		n.onLoadEvent(e, c.owner(e.Owner()), several)
	}
}

// halt ends all holds and waits of the load.
func (c *timeline) halt(at time.Time) {
	for _, n := range c.exact {
		n.stopWaiting(at)
		for i := range n.holds {
			if n.holds[i].to.IsZero() {
				n.holds[i].to = at
			}
		}
	}
}

// onLoadEvent records an event of the load.
func (n *lane) onLoadEvent(e *loadgen.Event, owner int, several bool) {
	at, holder := e.At, e.Owner()+" "+e.Token // some unsound kinds of lock give one token to several clients
	switch e.Kind {
	case loadgen.Arrived:
		n.joins(e.Owner(), at)
	case loadgen.TimedOut, loadgen.Refused, loadgen.Failed:
		n.leaves(e.Owner(), at)
	case loadgen.Acquired:
		n.leaves(e.Owner(), at)
		n.begin(timelineHold{holder: holder, name: e.Owner(), owner: owner, shared: e.Shared || several, from: at})
	case loadgen.Released, loadgen.Expired, loadgen.Lost:
		n.end(holder, at, e.Kind != loadgen.Released)
	case loadgen.Abandoned:
		if e.Token == "" { // the client crashed during the acquire; its key stays
			n.leaves(e.Owner(), at)
			n.begin(timelineHold{holder: holder, name: e.Owner(), owner: owner, from: at})
			return
		}
		n.end(holder, at, false)
	case loadgen.EventKind(oracle.Overlap):
		n.overlaps = append(n.overlaps, overlap{from: at, to: at.Add(e.Took)})
		n.overlaps = n.overlaps[max(0, len(n.overlaps)-maxHolds):]
	}
}

// lane returns the lane of a lock, which is the same on every node. A new one begins with the
// holders that the lock has at a time.
func (c *timeline) lane(l *keyspace.Lock, at time.Time) *lane {
	id := l.ID().OnAnyNode()
	n := c.lanes[id]
	if n == nil {
		for i := range l.Holders {
			c.owner(l.Holders[i].ID)
		}
		n = c.found(new(lane), l, at)
		c.lanes[id] = n
		for range n.holds {
			c.count(id)
		}
	}
	return n
}

// begin adds a hold to the lane of a lock.
func (c *timeline) begin(l *keyspace.Lock, at time.Time, h timelineHold) {
	if c.lane(l, at).begin(h) {
		c.count(l.ID().OnAnyNode())
	}
}

// count counts a hold that was added to the lane of a lock. If there are too many, it discards
// the oldest.
func (c *timeline) count(id keyspace.ID) {
	if c.begun = append(c.begun, id); len(c.begun) <= cmp.Or(c.most, maxAllHolds) {
		return
	}
	oldest := c.begun[0]
	c.begun = c.begun[1:]
	switch n := c.lanes[oldest]; {
	case n == nil:
	case n.discard():
		c.whole = later(c.whole, n.whole)
	case len(n.waits) == 0 && n.waiters() == 0: // it has only holds that last
		delete(c.lanes, oldest) // [timeline.found] makes it again
	}
}

// discard discards the oldest hold that has ended, and the waits until then. It is false if there
// is no such hold.
func (n *lane) discard() bool {
	i := slices.IndexFunc(n.holds, func(s timelineHold) bool { return !s.to.IsZero() })
	if i < 0 {
		return false
	}
	n.whole = later(n.whole, n.holds[i].to)
	n.holds = slices.Delete(n.holds, i, i+1)
	n.waits = slices.DeleteFunc(n.waits, func(w laneWait) bool { return !w.to.After(n.whole) })
	n.letters = slices.Clone(n.letters[max(0, len(n.letters)-len(n.holds)):]) // of the latest owners
	return true
}

// found sets n to the holds that a lock has at a time, and returns it. It uses the memory of n again,
// and changes no other state.
func (c *timeline) found(n *lane, l *keyspace.Lock, at time.Time) *lane {
	*n = lane{whole: c.whole, holds: n.holds[:0], letters: n.letters[:0]}
	for i := range l.Holders {
		n.begin(c.hold(l, &l.Holders[i], at))
	}
	return n
}

// hold returns the hold that a holder of a lock has at a time.
func (c *timeline) hold(l *keyspace.Lock, h *keyspace.Holder, at time.Time) timelineHold {
	return timelineHold{
		holder: h.ID, name: h.Name(), owner: c.number(h.ID), from: at.Add(-max(0, h.Age(at).Duration)),
		shared: h.Mode == keyspace.Read || l.Kind == keyspace.Semaphore,
	}
}

// lockLane is a lane and its lock.
type lockLane struct {
	id   keyspace.ID
	lane lane
}

// copies returns copies of the lanes of [timeline.each], without overlaps and letters. A wait that goes on
// is one that ends in the far future.
func (c *timeline) copies() []lockLane {
	all := make([]lockLane, 0, len(c.lanes)+len(c.exact))
	holds, waits := make([]timelineHold, 0, max(len(c.begun), len(c.lanes))), make([]laneWait, 0, len(c.lanes)) // of all lanes
	for id, n := range c.each {
		firstHold, firstWait := len(holds), len(waits)
		holds, waits = append(holds, n.holds...), append(waits, n.waits...)
		for client, since := range n.waiting {
			waits = append(waits, laneWait{client: client, n: 1, from: since, to: farFuture})
		}
		all = append(all, lockLane{id, lane{exact: n.exact, holds: holds[firstHold:], waits: waits[firstWait:], whole: n.whole, unnamed: n.unnamed}})
	}
	return all
}

func (c *timeline) onEvent(e *keyspace.Event) {
	switch id := e.Lock.ID().OnAnyNode(); {
	case e.Kind == keyspace.Discovered && c.lanes[id] == nil && !(e.Holder.Since.IsZero() && e.Holder.Seen.IsZero()):
		c.owner(e.Holder.ID) // of the lane that [timeline.found] makes
	case e.Kind == keyspace.Discovered, e.Kind == keyspace.Acquired:
		c.owner(e.Holder.ID)
		c.begin(&e.Lock, e.At, c.hold(&e.Lock, &e.Holder, e.At))
	case e.Kind.Ends():
		c.ended(id, e)
	case e.Kind == keyspace.WaiterJoined:
		c.lane(&e.Lock, e.At).joins(e.Waiter.ID, e.At.Add(-e.Waiter.Age(e.At).Duration))
	case e.Kind == keyspace.WaiterLeft && c.lanes[id] != nil:
		c.lanes[id].leaves(e.Waiter.ID, e.At)
	}
}

// ended records the end of a hold. A lane that is made now begins with the holds before the
// event; the lock of the event is that after it.
func (c *timeline) ended(id keyspace.ID, e *keyspace.Event) {
	c.owner(e.Holder.ID)
	hold := c.hold(&e.Lock, &e.Holder, e.At)
	if c.lanes[id] == nil && !hold.shared { // another holder begins only now
		c.lanes[id] = &lane{whole: c.whole}
	}
	c.begin(&e.Lock, e.At, hold) // unless it is known
	n := c.lane(&e.Lock, e.At)
	slices.SortStableFunc(n.holds, func(a, b timelineHold) int { return a.from.Compare(b.from) })
	n.end(e.Holder.ID, e.Ended(), e.Kind == keyspace.Expired)
}

// maxOwners is the number of owners with a number of their own.
const maxOwners = 20 * maxHolds

// owner returns the number of an owner, and assigns a new one to an unknown owner.
func (c *timeline) owner(id string) int {
	if _, known := c.owners[id]; !known && len(c.owners) < maxOwners {
		c.owners[id] = len(c.owners)
	}
	return c.number(id)
}

// number returns the number of an owner. Owners without a number of their own have one that
// few others have.
func (c *timeline) number(id string) int {
	if n, known := c.owners[id]; known {
		return n
	}
	h := fnv.New32a()
	_, _ = io.WriteString(h, id)
	return maxOwners + int(h.Sum32())
}

// begin adds a hold. In a sampled lane, two exclusive holds cannot overlap. A start time before
// the end of the previous hold is the start of the attempt, so begin corrects it. It is false if the
// hold is known.
func (n *lane) begin(s timelineHold) bool {
	for i := range n.holds {
		if n.holds[i].holder == s.holder && n.holds[i].to.IsZero() {
			return false
		}
		if before := &n.holds[i]; !n.exact && !s.shared && !before.shared && before.to.After(s.from) {
			s.from = before.to
		}
	}
	s.letter = n.letterOf(s.owner)
	if n.holds = newest(append(n.holds, s), maxHolds); len(n.holds) == maxHolds {
		n.whole = n.holds[0].from
	}
	return true
}

// letterOf returns the number of an owner's letter in this lane: the letter that the owner has in other lanes, unless
// another owner of this lane has it. If all letters are taken, it is that of the owner seen least recently.
func (n *lane) letterOf(owner int) int {
	i := slices.IndexFunc(n.letters, func(x letter) bool { return x.owner == owner })
	own := letter{owner, owner % len(letters)}
	switch {
	case i >= 0:
		own = n.letters[i]
		n.letters = slices.Delete(n.letters, i, i+1)
	case len(n.letters) == len(letters):
		own.n = n.letters[0].n
		n.letters = slices.Delete(n.letters, 0, 1)
	default:
		for slices.ContainsFunc(n.letters, func(x letter) bool { return x.n == own.n }) {
			own.n = (own.n + 1) % len(letters)
		}
	}
	n.letters = append(n.letters, own)
	return own.n
}

// end ends the hold of a holder.
func (n *lane) end(holder string, at time.Time, lapsed bool) {
	for i := len(n.holds) - 1; i >= 0; i-- {
		if s := &n.holds[i]; s.holder == holder && s.to.IsZero() {
			s.to, s.lapsed = at, lapsed
			return
		}
	}
}

// newest returns a list that has grown to more than twice n elements with the last n only.
func newest[T any](all []T, n int) []T {
	if len(all) <= 2*n {
		return all
	}
	return slices.Clone(all[len(all)-n:])
}

// prune discards old lanes.
func (c *timeline) prune(now time.Time) {
	c.pruned = now
	old := now.Add(-historyKept - historyKept/10)
	for id, n := range c.lanes {
		if n.lastSeen().Before(old) {
			delete(c.lanes, id)
		}
	}
	if len(c.owners) >= maxOwners { // restart the letters
		c.owners = map[string]int{}
	}
}

var farFuture = time.Unix(1<<40, 0)

// lastSeen returns the end of the lane's last hold or wait, or a time in the far future while
// the lock is held or waited for.
func (n *lane) lastSeen() time.Time {
	if n.waiters() > 0 {
		return farFuture
	}
	var last time.Time
	for i := range n.holds {
		if n.holds[i].to.IsZero() {
			return farFuture
		}
		last = later(last, n.holds[i].to)
	}
	if k := len(n.waits); k > 0 {
		last = later(last, n.waits[k-1].to)
	}
	return last
}

// holder returns the name of the current holder, "" if the lock is free.
func (n *lane) holder() string {
	if k := len(n.holds); k > 0 && n.holds[k-1].to.IsZero() {
		return n.holds[k-1].name
	}
	return ""
}

// owners calls yield with the name of each hold's owner.
func (n *lane) owners(yield func(string) bool) {
	for i := range n.holds {
		if !yield(n.holds[i].name) {
			return
		}
	}
}

// busy returns the fraction of the time from from to to in which the lock was held.
func (n *lane) busy(from, to time.Time) float64 {
	var held time.Duration
	end := from // end of the time counted so far
	for i := range n.holds {
		x := &n.holds[i]
		a, b := keyspace.Later(x.from, end), x.until(to)
		if b.After(a) {
			held += b.Sub(a)
			end = b
		}
	}
	return float64(held) / float64(to.Sub(from))
}
