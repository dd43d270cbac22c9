package tui

import (
	"time"

	"locktop/keyspace"
	"locktop/loadgen"
)

// maxHolds is how many holds of one lock a timeline remembers.
const maxHolds = 512

// historyKept is how far back it remembers; a History keeps pictures for as long.
const historyKept = 10 * time.Minute

// timeline is who held what, and when, as far as looking has shown it: a lane
// for each lock.
type timeline struct {
	lanes  map[keyspace.ID]*lane
	exact  map[string]*lane // of the load's keys, from those who hold them
	owners map[string]int   // by their order of appearance
	swept  time.Time
}

// lane is the past of one lock.
type lane struct {
	exact    bool           // on our clock, from those who held it, not from looking
	holds    []timelineHold // by their beginning
	overlaps []overlap      // that the load's oracle has seen
	queue    []waiterCount  // how many waited, oldest first
}

// timelineHold is one hold.
type timelineHold struct {
	who      string // the holder's ID
	name     string
	owner    int // the number of the holder, for its letter and colour
	mode     keyspace.Mode
	from, to time.Time          // to is zero while it goes on
	end      keyspace.EventKind // how it ended
}

// waiterCount is a moment at which the number of waiters changed.
type waiterCount struct {
	at time.Time
	n  int
}

// add takes in what a new picture has shown.
func (c *timeline) add(change keyspace.Delta, events []keyspace.Event) {
	if c.lanes == nil {
		c.lanes, c.owners = map[keyspace.ID]*lane{}, map[string]int{}
	}
	for i := range events {
		c.onLoadEvent(&events[i])
	}
	for i := range change.Locks {
		l := &change.Locks[i]
		for _, v := range l.Votes {
			if v.Token != "" {
				c.owner(v.Token)
			}
		}
		c.lane(l.ID()).waiting(change.At, l.WaiterCount())
	}
	for _, id := range change.Gone {
		c.lane(id).waiting(change.At, 0)
	}
	if change.At.Sub(c.swept) > historyKept/10 {
		c.prune(change.At)
	}
}

// of returns what is known of a lock, nil if nothing is. What its holders tell
// is better than what looking shows.
func (c *timeline) of(id keyspace.ID) *lane {
	if n := c.exact[id.Key]; n != nil {
		return n
	}
	return c.lanes[id]
}

// apply takes in what the load has told of itself.
func (c *timeline) apply(events []loadgen.Event, anew bool) {
	if anew || c.exact == nil {
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
			n = &lane{exact: true}
			c.exact[e.Key] = n
		}
		n.told(e, c.owner(e.Owner()))
	}
}

// halt ends what goes on: the clients of the load are gone.
func (c *timeline) halt(at time.Time) {
	for _, n := range c.exact {
		n.waiting(at, 0)
		for i := range n.holds {
			if n.holds[i].to.IsZero() {
				n.holds[i].to, n.holds[i].end = at, keyspace.Vanished
			}
		}
	}
}

// told takes in one thing that the load tells of a key.
func (n *lane) told(e *loadgen.Event, owner int) {
	at, who := e.At, e.Owner()+" "+e.Token // some historic forms give one token to several clients
	waiting := 0
	if len(n.queue) > 0 {
		waiting = n.queue[len(n.queue)-1].n
	}
	switch e.Kind {
	case loadgen.Arrived:
		n.waiting(at, waiting+1)
	case loadgen.TimedOut, loadgen.Refused, loadgen.Failed:
		n.waiting(at, max(0, waiting-1))
	case loadgen.Acquired:
		n.waiting(at, max(0, waiting-1))
		mode := keyspace.Mode("")
		if e.Shared {
			mode = keyspace.Read
		}
		n.begin(timelineHold{who: who, name: e.Owner(), owner: owner, mode: mode, from: at})
	case loadgen.Released:
		n.over(who, at, keyspace.Released)
	case loadgen.Expired:
		n.over(who, at, keyspace.Expired)
	case loadgen.Abandoned:
		if e.Token == "" { // it died while it acquired, and what it left stays
			n.waiting(at, max(0, waiting-1))
			n.begin(timelineHold{who: who, name: e.Owner(), owner: owner, from: at})
			return
		}
		n.over(who, at, keyspace.Vanished)
	case loadgen.Lost:
		n.over(who, at, keyspace.Vanished)
	case loadgen.Overlapped:
		n.overlaps = append(n.overlaps, overlap{from: at, to: at.Add(e.Took), what: e.Text})
		n.overlaps = n.overlaps[max(0, len(n.overlaps)-maxHolds):]
	}
}

func (c *timeline) lane(id keyspace.ID) *lane {
	n := c.lanes[id]
	if n == nil {
		n = &lane{}
		c.lanes[id] = n
	}
	return n
}

func (c *timeline) onLoadEvent(e *keyspace.Event) {
	if e.Kind == keyspace.Discovered || e.Kind == keyspace.Acquired {
		from := e.At
		if !e.Holder.Since.IsZero() && e.Holder.Since.Before(from) {
			from = e.Holder.Since
		}
		c.lane(e.Lock.ID()).begin(timelineHold{
			who: e.Holder.ID, name: e.Holder.Name(), owner: c.owner(e.Holder.ID), mode: e.Holder.Mode, from: from,
		})
	}
	if e.Kind.Ends() {
		c.lane(e.Lock.ID()).over(e.Holder.ID, e.Ended(), e.Kind)
	}
}

// owner returns the number of an owner.
func (c *timeline) owner(id string) int {
	n, known := c.owners[id]
	if !known {
		n = len(c.owners)
		c.owners[id] = n
	}
	return n
}

// begin adds a hold. Looking cannot show two at once of which only one may be:
// a token that tells an earlier time tells when somebody began to try.
func (n *lane) begin(s timelineHold) {
	for i := range n.holds {
		if n.holds[i].who == s.who && n.holds[i].to.IsZero() {
			return // it is known already
		}
		if before := &n.holds[i]; !n.exact && s.mode != keyspace.Read && before.mode != keyspace.Read && before.to.After(s.from) {
			s.from = before.to
		}
	}
	n.holds = append(n.holds, s)
	if len(n.holds) > 2*maxHolds {
		n.holds = append([]timelineHold(nil), n.holds[len(n.holds)-maxHolds:]...)
	}
}

// over ends the hold of somebody.
func (n *lane) over(who string, at time.Time, how keyspace.EventKind) {
	for i := len(n.holds) - 1; i >= 0; i-- {
		if s := &n.holds[i]; s.who == who && s.to.IsZero() {
			s.to, s.end = at, how
			return
		}
	}
}

func (n *lane) waiting(at time.Time, waiters int) {
	last := 0
	if len(n.queue) > 0 {
		last = n.queue[len(n.queue)-1].n
	}
	if waiters != last {
		n.queue = append(n.queue, waiterCount{at, waiters})
	}
	if len(n.queue) > 2*maxHolds {
		n.queue = append([]waiterCount(nil), n.queue[len(n.queue)-maxHolds:]...)
	}
}

// prune forgets what is too old to be shown.
func (c *timeline) prune(now time.Time) {
	c.swept = now
	old := now.Add(-historyKept - historyKept/10)
	for id, n := range c.lanes {
		if n.lastSeen().Before(old) {
			delete(c.lanes, id)
		}
	}
	if len(c.owners) > 20*maxHolds { // letters begin anew
		c.owners = map[string]int{}
	}
}

// lastSeen is when the lane last had something to show; the far future while
// somebody holds the lock.
func (n *lane) lastSeen() time.Time {
	var last time.Time
	for i := range n.holds {
		if n.holds[i].to.IsZero() {
			return time.Unix(1<<40, 0)
		}
		if n.holds[i].to.After(last) {
			last = n.holds[i].to
		}
	}
	if k := len(n.queue); k > 0 && n.queue[k-1].at.After(last) {
		last = n.queue[k-1].at
	}
	return last
}
