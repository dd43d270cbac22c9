package holds_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/keyspace"
	"locktop/keyspace/holds"
)

// start is the moment from which the times of these tests count, in seconds.
var start = time.Date(2026, 11, 27, 3, 0, 0, 0, time.UTC)

func at(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }

// read is a read of the lock "k" with holders.
func read(holders ...keyspace.Holder) *keyspace.Lock {
	l := &keyspace.Lock{Key: "k", Node: "a:1", Kind: keyspace.Mutex, Holders: holders}
	if len(holders) > 0 {
		l.Expires = holders[0].Expires
	}
	return l
}

// by is a holder of whom only the token is known.
func by(token string) keyspace.Holder { return keyspace.Holder{ID: token, Depth: 1} }

// since is a holder whose begin was seen.
func since(token string, s float64) keyspace.Holder {
	return keyspace.Holder{ID: token, Depth: 1, Since: at(s)}
}

// book is a ledger that is told what happened to the lock.
type book struct{ holds.Ledger }

func (b *book) event(s float64, kind keyspace.EventKind, l *keyspace.Lock, h keyspace.Holder) {
	e := keyspace.Event{At: at(s), Kind: kind, Lock: *l, Holder: h}
	if kind.Ends() && !h.Since.IsZero() {
		e.Held = e.Ended().Sub(h.Since)
	}
	b.Event(&e)
}

// state tells the ledger how the lock is at a time; nil: it is gone.
func (b *book) state(s float64, l *keyspace.Lock) {
	d := keyspace.Delta{Snapshot: keyspace.Snapshot{At: at(s)}}
	if l == nil {
		d.Gone = []keyspace.ID{read().ID()}
	} else {
		d.Locks = []*keyspace.Lock{l}
	}
	b.State(d)
}

// waits is a lock with waiters beside its holders.
func waits(l *keyspace.Lock, waiters ...string) *keyspace.Lock {
	for _, w := range waiters {
		l.Waiters = append(l.Waiters, keyspace.Waiter{ID: w})
	}
	return l
}

// told returns the holds and the waits of the lock, one a line.
func told(p *holds.Account) string {
	var out strings.Builder
	seconds := func(m holds.Moment) string {
		s := func(t time.Time) string { return fmt.Sprint(t.Sub(start).Seconds()) }
		switch m.Grade {
		case holds.Exact:
			return s(m.At)
		case holds.NotAfter:
			return "≤" + s(m.At)
		case holds.NotBefore:
			return "≥" + s(m.At)
		case holds.Between:
			return s(m.At) + "~" + s(m.Upto)
		}
		return "?"
	}
	for _, h := range p.Holds {
		fmt.Fprintf(&out, "%s %s to %s", h.Holder.ID, seconds(h.From), seconds(h.To))
		if !h.Lasts() {
			fmt.Fprintf(&out, " %s (%s)", h.End.Kind, []string{"no proof", "report", "deadline", "successor", "loss"}[h.End.Proof])
		}
		if h.Renewals > 0 {
			fmt.Fprintf(&out, ", renewed %d", h.Renewals)
		}
		for _, s := range h.Depth {
			fmt.Fprintf(&out, ", depth %d at %v", s.Depth, s.At.Sub(start).Seconds())
		}
		out.WriteString("\n")
	}
	for w := range p.Waits {
		fmt.Fprintf(&out, "wait %s×%d %s, %s to %s\n", w.Waiter, w.Clients, w.Source, seconds(w.From), seconds(w.To))
	}
	return out.String()
}

// The hard points are those that each view of the past answered by itself.
func TestTheHardPoints(t *testing.T) {
	expiring := func(token string, from, deadline float64) keyspace.Holder {
		h := since(token, from)
		h.Expires = at(deadline)
		return h
	}
	deep := func(h keyspace.Holder, depth int) keyspace.Holder {
		h.Depth = depth
		return h
	}
	reader := func(h keyspace.Holder) keyspace.Holder {
		h.Mode = keyspace.Read
		return h
	}
	for name, c := range map[string]struct {
		do   func(*book)
		want string
	}{
		"a hold from its begin to its release": {func(b *book) {
			b.event(1, keyspace.Acquired, read(since("a", 1)), since("a", 1))
			b.event(3, keyspace.Released, read(), since("a", 1))
		}, "a 1 to 3 released (report)\n"},
		"the lock of the event is as last seen, and still lists the holder": {func(b *book) {
			b.event(1, keyspace.Acquired, waits(read(since("a", 1)), "w"), since("a", 1))
			b.state(1, waits(read(since("a", 1)), "w"))
			b.event(3, keyspace.Released, waits(read(since("a", 1)), "w"), since("a", 1))
		}, "a 1 to 3 released (report)\nwait w×1 stored, ≤1 to 3\n"},
		"a state has a renewal before its event": {func(b *book) {
			b.event(1, keyspace.Acquired, read(since("a", 1)), since("a", 1))
			renewed := read(since("a", 1))
			renewed.Renewals, renewed.Renewed = 1, at(2)
			b.state(2, renewed)
			b.event(2, keyspace.Renewed, renewed, since("a", 1))
		}, "a 1 to ?, renewed 1\n"},
		"the begin is not known": {func(b *book) {
			b.event(5, keyspace.Discovered, read(by("a")), by("a"))
			b.event(7, keyspace.Released, read(), by("a"))
		}, "a ≤5 to 7 released (report)\n"},
		"the event of the end is missing": {func(b *book) {
			b.event(1, keyspace.Acquired, read(since("a", 1)), since("a", 1))
			b.state(2, read(since("a", 1)))
			b.state(4, nil)
		}, "a 1 to 2~4 gone (no proof)\n"},
		"the events of an end and of the next begin are missing": {func(b *book) {
			b.event(1, keyspace.Acquired, read(since("a", 1)), since("a", 1))
			b.state(2, read(since("a", 1)))
			b.state(4, read(by("b")))
		}, "a 1 to 2~4 gone (no proof)\nb ≤4 to ?\n"},
		"only the end was seen": {func(b *book) {
			b.event(9, keyspace.Released, read(), since("a", 4))
		}, "a 4~9 to 9 released (report)\n"},
		"the time in a token is that of the attempt: the client has waited since": {func(b *book) {
			b.event(6, keyspace.Acquired, read(since("a", 2)), since("a", 2))
		}, "a 2~6 to ?\n"},
		"the clock of a client is ahead": {func(b *book) {
			b.event(1, keyspace.Acquired, read(since("a", 7)), since("a", 7))
		}, "a 1 to ?\n"},
		"a hand-over is read late: the next hold begins after the one before": {func(b *book) {
			b.event(1, keyspace.Acquired, read(since("a", 1)), since("a", 1))
			b.event(5, keyspace.HandedOver, read(since("b", 2)), since("a", 1))
			b.event(5, keyspace.Acquired, read(since("b", 2)), since("b", 2))
		}, "a 1 to 5 handed-over (successor)\nb 5 to ?\n"},
		"an expiry that is read late ends at its deadline": {func(b *book) {
			b.event(1, keyspace.Acquired, read(expiring("a", 1, 4)), expiring("a", 1, 4))
			b.event(6, keyspace.Expired, read(), expiring("a", 1, 4))
		}, "a 1 to 4 expired (deadline)\n"},
		"the node changed: it is the same hold": {func(b *book) {
			b.event(1, keyspace.Acquired, read(since("a", 1)), since("a", 1))
			moved := read(since("a", 1))
			moved.Node = "b:1"
			b.State(keyspace.Delta{Snapshot: keyspace.Snapshot{At: at(3), Locks: []*keyspace.Lock{moved}}, Gone: []keyspace.ID{read().ID()}})
			b.event(5, keyspace.Released, moved, since("a", 1))
		}, "a 1 to 5 released (report)\n"},
		"readers hold together, and one of them has its own deadline": {func(b *book) {
			l := &keyspace.Lock{Key: "k", Kind: keyspace.RW, Holders: []keyspace.Holder{reader(expiring("a", 1, 4)), reader(expiring("b", 2, 9))}}
			b.event(1, keyspace.Acquired, &keyspace.Lock{Key: "k", Kind: keyspace.RW, Holders: l.Holders[:1]}, reader(expiring("a", 1, 4)))
			b.event(2, keyspace.Acquired, l, reader(expiring("b", 2, 9)))
			left := &keyspace.Lock{Key: "k", Kind: keyspace.RW, Holders: []keyspace.Holder{reader(expiring("b", 2, 9))}}
			b.event(5, keyspace.Expired, left, reader(expiring("a", 1, 4)))
		}, "a 1 to 4 expired (deadline)\nb 2 to ?\n"},
		"renewals": {func(b *book) {
			b.event(1, keyspace.Acquired, read(expiring("a", 1, 4)), expiring("a", 1, 4))
			b.event(2, keyspace.Renewed, read(expiring("a", 1, 5)), expiring("a", 1, 5))
			b.event(3, keyspace.Renewed, read(expiring("a", 1, 6)), expiring("a", 1, 6))
		}, "a 1 to ?, renewed 2\n"},
		"the depth of a reentrant hold": {func(b *book) {
			b.event(1, keyspace.Acquired, read(since("a", 1)), since("a", 1))
			b.event(2, keyspace.Reentered, read(deep(since("a", 1), 2)), deep(since("a", 1), 2))
			b.event(3, keyspace.Exited, read(since("a", 1)), since("a", 1))
		}, "a 1 to ?, depth 2 at 2, depth 1 at 3\n"},
		"a second process with the same token ends no hold": {func(b *book) {
			b.event(1, keyspace.Acquired, read(since("1", 1)), since("1", 1))
			b.event(2, keyspace.Acquired, read(since("1", 1)), since("1", 1))
			b.event(3, keyspace.Released, read(), since("1", 1))
		}, "1 1 to 3 released (report)\n"},
		"keys that a full sync brings": {func(b *book) {
			b.state(1, nil)
			b.event(2, keyspace.Discovered, read(by("a")), by("a"))
		}, "a ≤2 to ?\n"},
		"the lock counts the renewals of all holders of a permit": {func(b *book) {
			l := &keyspace.Lock{Key: "k", Kind: keyspace.Semaphore, Holders: []keyspace.Holder{expiring("a", 1, 4), expiring("b", 1, 8)}}
			l.Renewals, l.Renewed = 5, at(1)
			b.event(1, keyspace.Acquired, l, l.Holders[0])
			b.event(1, keyspace.Acquired, l, l.Holders[1])
			l.Holders[1].Expires = at(10)
			b.state(3, l)
		}, "a 1 to ?\nb 1 to ?, renewed 1\n"},
		"a waiter that counts as dead waits no longer": {func(b *book) {
			l := waits(read(since("a", 1)), "w")
			l.Waiters[0].Expires = at(3)
			b.state(2, l)
			b.state(4, l)
		}, "a 1~2 to ?\nwait w×1 stored, ≤2 to 4\n"},
		"the server lost the lock": {func(b *book) {
			b.event(1, keyspace.Acquired, read(since("a", 1)), since("a", 1))
			b.event(3, keyspace.Lost, read(since("a", 1)), since("a", 1))
		}, "a 1 to 3 lost (loss)\n"},
		"a client that only asks has waited up to its last request": {func(b *book) {
			asked := func(s float64) *keyspace.Lock {
				l := read(since("a", 1))
				l.AskedAt = at(s)
				return l
			}
			b.state(2, asked(2))
			b.state(3, asked(3))
			b.state(9, asked(3))
		}, "a 1~2 to ?\nwait ×1 asked, ≤2 to 3\n"},
		"a waiter whose entry was not seen for a moment does not wait twice": {func(b *book) {
			since1 := waits(read(since("a", 1)))
			since1.Waiters = []keyspace.Waiter{{ID: "w", Since: at(1)}}
			b.state(2, since1)
			b.state(4, read(since("b", 4)))
			since1.Holders = read(since("b", 4)).Holders
			b.state(5, since1)
			b.state(6, read(since("b", 4)))
		}, "a 1~2 to 2~4 gone (no proof)\nb 4 to ?\nwait w×1 stored, 1 to 4\nwait w×1 stored, 4 to 6\n"},
		"waiters without names": {func(b *book) {
			counted := func(n int) *keyspace.Lock {
				l := read(since("a", 1))
				l.Waiting = n
				return l
			}
			b.state(2, counted(3))
			b.state(4, counted(1))
			b.state(5, counted(0))
		}, "a 1~2 to ?\nwait ×3 stored, ≤2 to 4\nwait ×1 stored, ≤4 to 5\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var b book
			c.do(&b)
			check.Equal(t, told(b.Of(read().ID(), nil, at(10))), c.want)
		})
	}
}

// A duration is known as well as its two ends.
func TestADurationHasBounds(t *testing.T) {
	for name, c := range map[string]struct {
		from, to    holds.Moment
		least, most float64 // seconds
	}{
		"both ends are exact":     {holds.Moment{At: at(1), Grade: holds.Exact}, holds.Moment{At: at(4), Grade: holds.Exact}, 3, 3},
		"it was found":            {holds.Moment{At: at(1), Grade: holds.NotAfter}, holds.Moment{At: at(4), Grade: holds.Exact}, 3, -1},
		"its begin is in a span":  {holds.Moment{At: at(1), Upto: at(2), Grade: holds.Between}, holds.Moment{At: at(4), Grade: holds.Exact}, 2, 3},
		"its end is in a span":    {holds.Moment{At: at(1), Grade: holds.Exact}, holds.Moment{At: at(4), Upto: at(6), Grade: holds.Between}, 3, 5},
		"nobody saw it end":       {holds.Moment{At: at(1), Grade: holds.Exact}, holds.Moment{At: at(4), Grade: holds.NotBefore}, 3, -1},
		"its begin is not known":  {holds.Moment{}, holds.Moment{At: at(4), Grade: holds.Exact}, 0, -1},
		"the two spans may touch": {holds.Moment{At: at(1), Upto: at(5), Grade: holds.Between}, holds.Moment{At: at(4), Upto: at(6), Grade: holds.Between}, 0, 5},
	} {
		h := holds.Hold{From: c.from, To: c.to, End: holds.End{Kind: keyspace.Released}}
		least, most := h.Held(at(10))
		check.True(t, least.Seconds() == c.least && (most.Seconds() == c.most || c.most < 0 && most < 0), "%s: %v to %v", name, least, most)
	}
}

// A lock to which nothing has happened has the holds of a read, and takes no memory.
func TestALockWithoutEventsHasTheHoldsOfARead(t *testing.T) {
	var b book
	b.state(1, read(by("a")))
	b.event(1.5, keyspace.Renewed, read(by("a")), by("a"))
	check.Equal(t, b.Len(), 0, "accounts")
	check.Equal(t, told(b.Of(read().ID(), read(by("a")), at(2))), "a ≤2 to ?\n")
}

func TestTheNextHoldIsAsked(t *testing.T) {
	var b book
	for i, token := range []string{"a", "b", "c"} {
		s := float64(10 * i)
		b.event(s, keyspace.Acquired, read(since(token, s)), since(token, s))
		b.event(s+5, keyspace.Released, read(), since(token, s))
	}
	p := b.Of(read().ID(), nil, at(30))
	next, ok := p.After(p.Holds[0])
	check.Require(t, ok && next.Holder.ID == "b", "after a: %v", next)
	_, ok = p.After(p.Holds[2])
	check.True(t, !ok, "there is a hold after the last one")
}

// The next holder of a lock that is handed over begins as the other one ends.
func TestAHandOffHasANextHold(t *testing.T) {
	var b book
	b.event(1, keyspace.Acquired, read(since("a", 1)), since("a", 1))
	reader := keyspace.Holder{ID: "b", Mode: keyspace.Read, Since: at(1.5)} // it has tried before
	b.event(2, keyspace.HandedOver, read(reader), since("a", 1))
	b.event(2, keyspace.Acquired, read(reader), reader)
	p := b.Of(read().ID(), nil, at(3))
	next, ok := p.After(p.Holds[0])
	check.True(t, ok && next.Holder.ID == "b", "after a: %v", next)
	b.Wait(keyspace.ID{Key: "k"}, "c", at(2))
	b.Halt(at(4)) // nobody saw what came later
	check.Equal(t, told(b.Of(read().ID(), nil, at(9))), "a 1 to 2 handed-over (successor)\nb 1.5~2 to ≥4 gone (no proof)\nwait c×1 stored, 2 to ≥4\n")
}

// The kind of an event says what proves the end.
func TestEachEndHasItsProof(t *testing.T) {
	proofs := map[keyspace.EventKind]holds.Proof{keyspace.Vanished: holds.NoProof, keyspace.Expired: holds.ByDeadline, keyspace.Lost: holds.ByLoss,
		keyspace.Flushed: holds.ByLoss, keyspace.Stolen: holds.BySuccessor, keyspace.Replaced: holds.BySuccessor, keyspace.HandedOver: holds.BySuccessor}
	for _, kind := range keyspace.EventKinds() {
		want, known := proofs[kind]
		if !known {
			want = holds.ByReport
		}
		if kind.Ends() {
			var ended []holds.End
			b := book{holds.Ledger{Ended: func(_ keyspace.ID, h *holds.Hold) { ended = append(ended, h.End) }}}
			b.event(1, keyspace.Acquired, read(since("a", 1)), since("a", 1))
			b.event(2, kind, read(), since("a", 1))
			check.Equal(t, fmt.Sprint(ended), fmt.Sprint([]holds.End{{Kind: kind, Proof: want}}))
		}
	}
}

// A client that only asks is proven to wait up to its last request, and a read without the address of
// a holder does not take away the one that was known.
func TestWhatWasProvenStays(t *testing.T) {
	asked := holds.Wait{Source: holds.Asked, Proven: at(2)}
	check.Equal(t, asked.Until(at(9)), at(2))
	var b book
	h := since("a", 1)
	h.Addr = "10.0.0.1:4711"
	b.event(1, keyspace.Acquired, read(h), h)
	b.state(2, read(since("a", 1)))
	check.Equal(t, b.Of(read().ID(), nil, at(3)).Holds[0].Holder.Addr, h.Addr)
}

// The waits of a span count as far as they are in it, as long as a hold of that time is kept. A client that takes
// the place of another one does not wait at the same time, and one that only asks does not count.
func TestTheWaitingOfASpanIsSummed(t *testing.T) {
	b, id := book{holds.Ledger{OfLock: 2}}, read().ID().OnAnyNode()
	b.Begin(id, by("z"), true, at(0))
	for i, client := range []string{"a", "b", "c"} {
		s := [][2]float64{{1, 4}, {2, 6}, {4, 7}}[i]
		b.Wait(id, client, at(s[0]))
		b.Leave(id, client, at(s[1]))
		b.Begin(id, by(client), true, at(8))
		b.End(id, client, at(8.5), keyspace.Released)
	}
	asked := read(by("z"))
	for _, asked.AskedAt = range []time.Time{at(8), at(9)} {
		b.state(9, asked)
	}
	p := b.Of(id, nil, at(9))
	check.Equal(t, p.Waiting(at(0), at(9)), holds.Waiting{Total: 10 * time.Second, Any: 6 * time.Second, Most: 2, Last: at(7)})
	check.Equal(t, p.Waiting(at(3), at(5)), holds.Waiting{Total: 4 * time.Second, Any: 2 * time.Second, Most: 2, Last: at(5)})
	polls := waits(read(by("z")), "w") // MONITOR has shown it
	polls.Waiters[0].Polls = true
	b.state(10, polls)
	p = b.Of(id, nil, at(12))
	check.Equal(t, p.Waiting(at(9), at(12)).Total, 2*time.Second, "the wait of a client that polls")
	for w := range p.Waits {
		check.Equal(t, w.Source, map[bool]holds.Source{true: holds.Seen, false: w.Source}[w.Waiter == "w"], "how the wait of %q is known", w.Waiter)
	}
}

// A ledger that takes the parts of another one knows what ended, and who waits.
func TestALedgerTakesThePartsOfAnother(t *testing.T) {
	var whole, other book
	whole.event(0, keyspace.Acquired, waits(read(since("a", 0)), "w"), since("a", 0))
	whole.state(3, waits(read(since("a", 0)), "w", "x"))
	whole.state(4, waits(read(since("a", 0)), "w"))
	whole.event(5, keyspace.Renewed, read(since("a", 0)), since("a", 0))
	whole.event(7, keyspace.Released, read(), since("a", 0))
	whole.event(8, keyspace.Acquired, waits(read(since("b", 8)), "v"), since("b", 8))
	other.event(2, keyspace.Discovered, read(by("a")), by("a"))
	other.event(2, keyspace.WaiterJoined, waits(read(since("a", 0)), "w"), keyspace.Holder{})
	id := keyspace.ID{Key: "k"}
	other.Take(other.Account(id), whole.Cut(id))
	check.Equal(t, told(other.Of(id, nil, at(30))), "a ≤2 to 7 released (report), renewed 1\nwait w×1 stored, ≤0 to 5\nwait x×1 stored, ≤3 to 4\nwait v×1 stored, ≤8 to ?\n")
	whole.event(12, keyspace.Released, read(), since("b", 8))
	other.Take(other.Account(id), whole.Cut(id))
	check.Equal(t, told(other.Of(id, nil, at(30))), "a ≤2 to 7 released (report), renewed 1\nb 8 to 12 released (report)\n"+
		"wait w×1 stored, ≤0 to 5\nwait x×1 stored, ≤3 to 4\nwait v×1 stored, ≤8 to 12\n")
	check.True(t, !whole.Has(id), "the lock has a past after the last part")
}

// Of too many holds the oldest are dropped, and the past says from when on it is whole.
func TestTheLedgerIsBounded(t *testing.T) {
	b := book{holds.Ledger{Most: 1000}}
	hold := func(key string, s float64) {
		l := read(since("a", s))
		l.Key = key
		b.event(s, keyspace.Acquired, l, since("a", s))
		free := read()
		free.Key = key
		b.event(s+0.5, keyspace.Released, free, since("a", s))
	}
	for i := range 2000 {
		hold("k", float64(i))
	}
	p := b.Of(read().ID(), nil, at(3000))
	check.AtMost(t, len(p.Holds), 512, "holds of one lock")
	check.Equal(t, p.Whole, p.Holds[0].From.At.Add(-time.Second/2))
	for i := range 3000 {
		hold(fmt.Sprint("other:", i), float64(2000+i))
	}
	all := 0
	for id := range b.Locks {
		all += len(b.Of(id, nil, at(9000)).Holds)
	}
	check.AtMost(t, all, 1000, "holds in all")
	check.True(t, b.Whole().After(at(3900)), "all pasts are whole since %v", b.Whole())
}

// A hold that a scan found began between the scan before and the read.
func TestAHoldThatAScanFoundBeganEarlier(t *testing.T) {
	var b book
	a := since("a", 5)
	a.Late = 2 * time.Second
	b.event(5, keyspace.Acquired, read(a), a)
	check.Equal(t, b.Of(read().ID(), nil, at(5)).Holds[0].From, holds.Moment{At: at(3), Upto: at(5), Grade: holds.Between}, "its begin")
}

// A deadline that is set earlier, or removed, is no renewal, and the TTL at the begin remains. It is not known of a hold
// that a scan has found, whose token may have a time.
func TestADeadlineThatMovesIsNoRenewal(t *testing.T) {
	for i, to := range []time.Time{{}, at(4), at(4)} {
		var b book
		a, ttl := since("a", 1), []time.Duration{59 * time.Second, 59 * time.Second, 0}[i]
		a.Expires = at(60)
		l := read(a)
		l.TTLSet = ttl
		b.event(1, keyspace.Acquired, l, a)
		a.Expires = to
		b.State(keyspace.Delta{Snapshot: keyspace.Snapshot{At: at(3), Locks: []*keyspace.Lock{read(a)}}})
		h := b.Of(read().ID(), nil, at(3)).Holds[0]
		check.Equal(t, fmt.Sprint(h.Moved, h.Renewals, h.First), fmt.Sprint(&holds.Move{At: at(3), From: at(60), To: to}, 0, ttl))
	}
}
