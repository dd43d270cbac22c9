package tui

import (
	"hash/fnv"
	"io"
	"slices"
	"time"

	"locktop/keyspace"
	"locktop/keyspace/holds"
	"locktop/loadgen"
	"locktop/loadgen/oracle"
)

// historyKept is the part of the past that can be seen again, as long as a History keeps snapshots.
const historyKept = 10 * time.Minute

// timeline has the past of each lock: as the snapshots show it and, for the keys of a load, as its
// clients report it. Most of 200,000 locks have none of their own: [moment.lane] takes it from the snapshot.
type timeline struct {
	sampled  holds.Ledger         // on the clocks of the servers
	exact    holds.Ledger         // of the keys of the load, on the local clock
	overlaps map[string][]overlap // by key, found by the oracle of the load
	told     map[string]told      // of the holds of the first key of the load
	reads    map[string]bool      // by client of the load: its newest attempt was for reading
	owners   map[string]int       // numbers by owner, in order of appearance
	renamed  time.Time            // when the owners got new numbers
}

// lane is the past of one lock, as it is drawn.
type lane struct {
	holds.Past
	exact    bool // from the load's events and on the local clock; otherwise sampled from snapshots
	overlaps []overlap
	number   func(*holds.Hold) int // of its owner
}

// overlap is a time in which two clients held an exclusive lock.
type overlap struct {
	from, to time.Time
}

// add records a new snapshot.
func (c *timeline) add(change keyspace.Delta, events []keyspace.Event) {
	for i := range events {
		c.owner(events[i].Holder.ID)
		c.sampled.Event(&events[i])
	}
	for _, l := range change.Locks {
		for _, v := range l.Votes {
			c.owner(v.Token)
		}
	}
	c.sampled.State(change)
	if len(c.owners) >= maxOwners && change.At.Sub(c.renamed) > historyKept/10 { // restart the letters
		c.owners, c.renamed = nil, change.At
	}
}

// ofLoad returns the identity of a key of the load, which is known by its name only.
func ofLoad(key string) keyspace.ID { return keyspace.ID{Key: key} }

// reported reports whether the load has reported the past of a key.
func (c *timeline) reported(key string) bool { return c.exact.Has(ofLoad(key)) }

// lane returns the past of a lock as the load reports it, else as the snapshots show it. now is a read of
// the lock at a time, nil if it does not exist.
func (c *timeline) lane(id keyspace.ID, now *keyspace.Lock, at time.Time) *lane {
	if c.reported(id.Key) {
		return &lane{c.exact.Of(ofLoad(id.Key), nil, at), true, c.overlaps[id.Key], func(h *holds.Hold) int { return c.numberOf(h.Holder.Label) }}
	}
	if now == nil && !c.sampled.Has(id) {
		return nil
	}
	return &lane{Past: c.sampled.Of(id, now, at), number: func(h *holds.Hold) int { return c.numberOf(h.Holder.ID) }}
}

// each calls yield with each lock that has a past.
func (c *timeline) each(yield func(keyspace.ID, *lane) bool) {
	for id := range c.sampled.Locks {
		if !c.reported(id.Key) && !yield(id, c.lane(id, nil, time.Time{})) {
			return
		}
	}
	for id := range c.exact.Locks {
		if !yield(id, c.lane(id, nil, time.Time{})) {
			return
		}
	}
}

// apply records events of the load with a lock. newRun discards the past of the run before. Only a key that is
// marked has marks.
func (c *timeline) apply(events []loadgen.Event, newRun bool, lock loadgen.Lock, marked string) {
	several := lock.Limit() > 1
	if newRun || c.overlaps == nil {
		c.exact, c.overlaps, c.told, c.reads = holds.Ledger{}, make(map[string][]overlap), nil, make(map[string]bool)
	}
	for i := range events {
		e := &events[i]
		if e.Key == "" {
			continue
		}
		c.owner(e.Owner())
		id, at := ofLoad(e.Key), e.At
		holder := keyspace.Holder{ID: e.Owner() + " " + e.Token, Label: e.Owner()} // some unsound kinds of lock give one token to several clients
		if e.Key == marked {
			c.mark(e, lock)
		}
		switch e.Kind {
		case loadgen.Arrived:
			c.reads[e.Owner()] = e.Shared
			c.exact.Wait(id, e.Owner(), at)
		case loadgen.TimedOut, loadgen.Refused, loadgen.Failed:
			c.exact.Leave(id, e.Owner(), at)
			if e.Token != "" { // the release has failed, and the client has left
				c.exact.End(id, holder.ID, at, keyspace.Released)
			}
		case loadgen.Acquired:
			c.exact.Leave(id, e.Owner(), at)
			c.exact.Begin(id, holder, e.Shared || several, at)
		case loadgen.Released:
			c.exact.End(id, holder.ID, at, keyspace.Released)
		case loadgen.Expired, loadgen.Lost:
			c.exact.End(id, holder.ID, at, keyspace.Expired)
		case loadgen.Abandoned:
			if e.Token != "" {
				c.exact.End(id, holder.ID, at, keyspace.Vanished)
				continue
			}
			c.exact.Leave(id, e.Owner(), at) // the client crashed during the acquire; its key stays
			c.exact.Begin(id, holder, false, at)
		case loadgen.EventKind(oracle.Overlap):
			c.overlaps[e.Key] = append(c.overlaps[e.Key], overlap{from: at, to: at.Add(e.Took)})
		}
	}
}

// maxOwners is the number of owners with a number of their own.
const maxOwners = 10_000

// owner assigns a number to an owner.
func (c *timeline) owner(id string) {
	if c.owners == nil {
		c.owners = make(map[string]int)
	}
	if _, known := c.owners[id]; id != "" && !known && len(c.owners) < maxOwners {
		c.owners[id] = len(c.owners)
	}
}

// numberOf returns the number of an owner. Owners without a number of their own have one that few
// others have.
func (c *timeline) numberOf(id string) int {
	if n, known := c.owners[id]; known {
		return n
	}
	h := fnv.New32a()
	_, _ = io.WriteString(h, id)
	return maxOwners + int(h.Sum32())
}

// drawn is a hold with the number of its letter and colour in its lane.
type drawn struct {
	*holds.Hold
	owner, letter int
}

// begin and end return when a hold began and ended, as it is drawn; the end of one that lasts is zero.
func (s drawn) begin() time.Time { return s.From.At }
func (s drawn) end() time.Time   { return s.To.At }

// until returns the end of a hold, at most now.
func (s drawn) until(now time.Time) time.Time { return earlier(s.Until(now), now) }

// drawn returns the holds of the lane with their letters.
func (n *lane) drawn() []drawn {
	all, last := make([]drawn, 0, len(n.Holds)), make([]drawn, 0, len(letters)) // of each letter, the latest last
	for _, h := range n.Holds {
		d := drawn{Hold: h, owner: n.number(h)}
		d.letter = letterOf(d.owner, last)
		last = append(slices.DeleteFunc(last, func(x drawn) bool { return x.letter == d.letter }), d)
		all = append(all, d)
	}
	return all
}

// letterOf returns the number of an owner's letter in a lane: the letter that the owner has in other lanes, unless
// another owner of this lane has it. If all letters are taken, it is that of the owner seen least recently.
func letterOf(owner int, last []drawn) int {
	if i := slices.IndexFunc(last, func(x drawn) bool { return x.owner == owner }); i >= 0 {
		return last[i].letter
	}
	if len(last) == len(letters) {
		return last[0].letter
	}
	letter := owner % len(letters)
	for slices.ContainsFunc(last, func(x drawn) bool { return x.letter == letter }) {
		letter = (letter + 1) % len(letters)
	}
	return letter
}

// holder returns the name of the current holder, "" if the lock is free.
func (n *lane) holder() string {
	if k := len(n.Holds); k > 0 && n.Holds[k-1].Lasts() {
		return n.Holds[k-1].Holder.Name()
	}
	return ""
}

// names calls yield with the name of each hold's owner.
func (n *lane) names(yield func(string) bool) {
	for _, h := range n.Holds {
		if !yield(h.Holder.Name()) {
			return
		}
	}
}

// readers returns the names of the clients with current shared holds.
func (n *lane) readers() (names []string) {
	for _, h := range n.Holds {
		if h.Shared && h.Lasts() {
			names = append(names, h.Holder.Name())
		}
	}
	slices.SortFunc(names, keyspace.CompareNames)
	return names
}

// busy returns the fraction of a window in which the lock was held. With dead, a hold whose client died lasts
// until the next one begins.
func (n *lane) busy(v timeWindow, dead bool) float64 {
	var held time.Duration
	end := v.from // end of the time counted so far
	for i, h := range n.Holds {
		a, b := later(h.From.At, end), earlier(h.Until(v.to), v.to)
		if dead && h.End.Kind == keyspace.Vanished {
			if b = v.to; i+1 < len(n.Holds) {
				b = earlier(n.Holds[i+1].From.At, b)
			}
		}
		if b.After(a) {
			held += b.Sub(a)
			end = b
		}
	}
	return float64(held) / float64(v.to.Sub(v.from))
}
